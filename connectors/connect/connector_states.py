"""Waiting for a connector's state, with a deadline."""

from __future__ import annotations

from collections.abc import Callable

from cdc.clock import Clock
from connectors.debezium.client import ConnectClient, ConnectError, MissingConnector
from connectors.debezium.connector_status import FAILED, STOPPED, ConnectorStatus, parse_status
from connectors.debezium.faults import advice

_POLL_S = 0.2
_STEADY_POLLS = 5
"""A connector that runs at so many looks in a row has started: right after a restart the old tasks still show."""
_OLD_FAULT_S = 10.0
_DEAD_S = 5.0


class ConnectorStates:
    """The states of one connector. ``timeout_s``: how long each is waited for."""

    def __init__(self, name: str, client: ConnectClient, clock: Clock, *, timeout_s: float) -> None:
        self._name = name
        self._client = client
        self._clock = clock
        self._timeout_s = timeout_s

    def now(self) -> ConnectorStatus:
        """State and tasks. MissingConnector where there is none, ConnectError where Kafka Connect does not answer."""
        return parse_status(self._client.status(self._name))

    def until_stopped(self) -> ConnectorStatus:
        """Return when it is stopped and no task is left, or has failed for some seconds without any: one that cannot
        even be started cannot be stopped, and runs nothing. ConnectError when that takes too long."""
        began = self._clock.monotonic()

        def stands(status: ConnectorStatus) -> bool:
            failed = status.state == FAILED and self._clock.monotonic() - began > _DEAD_S
            return not status.tasks and (status.state == STOPPED or failed)

        return self._until(stands, "stop")

    def until_running(self, old_fault: str = "") -> ConnectorStatus:
        """Return when it runs. ``old_fault`` is what had failed before: it still shows for a moment, until the restart
        is noted. ConnectError when it fails, when it is halted, or when that takes too long."""
        steady, began = 0, self._clock.monotonic()

        def runs(status: ConnectorStatus) -> bool:
            nonlocal steady, old_fault
            steady = steady + 1 if status.runs else 0
            if status.halted and self._clock.monotonic() - began > _OLD_FAULT_S:
                raise ConnectError(
                    f"the connector {self._name} is {status.state.lower()}, and does not go on by itself",
                    hint="cdc connect resume",
                )
            if not status.fault or self._clock.monotonic() - began > _OLD_FAULT_S:
                old_fault = ""
            if status.fault and status.fault != old_fault:
                raise self.failed(status)
            return steady >= _STEADY_POLLS

        return self._until(runs, "run")

    def failed(self, status: ConnectorStatus) -> ConnectError:
        """The error for one that has failed, with the remedy."""
        remedy = advice(status.fault)
        return ConnectError(f"the connector {self._name} failed: {status.fault}", hint=remedy)

    def _until(self, reached: Callable[[ConnectorStatus], bool], verb: str) -> ConnectorStatus:
        deadline = self._clock.monotonic() + self._timeout_s
        words = "it has no status yet"
        while self._clock.monotonic() < deadline:
            try:
                status = self.now()
            except MissingConnector:
                status = None
            if status is not None:
                if reached(status):
                    return status
                words = f"it is {status.state} with {len(status.tasks)} tasks"
            self._clock.sleep(_POLL_S)
        raise ConnectError(
            f"the connector {self._name} did not {verb} in {self._timeout_s:g} s: {words}",
            hint="cdc connect status shows how it goes on; [debezium] deploy_timeout sets the time",
        )
