"""Waiting for a connector's state, the outcome of a deploy, and the tables that join."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError
from cdc.settings.model import Settings
from connectors.connect.connector_publication import Known, Published, makes_publication
from connectors.connect.signalling import execute_snapshot, new_identifier, require_captured, require_snapshots, send
from connectors.debezium.captured_tables import named_tables, newly_taken, spelled
from connectors.debezium.client import ConnectClient, ConnectError, MissingConnector
from connectors.debezium.connector_status import FAILED, STOPPED, ConnectorStatus, advice, parse_status

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


Change = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The result of :meth:`connectors.connect.connector.Connector.deploy`.

    ``action``: ``created``, ``updated`` or ``unchanged``. ``changes``: option -> (before, now). ``added``: tables that
    joined a connector which runs already, or patterns. ``signal``: the id of the snapshot of their rows. Empty where
    they are not read, and ``unread`` then says why. ``exact``: it writes in transactions.
    """

    action: str
    changes: dict[str, Change]
    status: ConnectorStatus
    added: tuple[str, ...] = ()
    signal: str = ""
    unread: str = ""
    exact: bool = False


# The tables that join a connector whose own first snapshot is over: their rows are asked for by a signal.
#
# The signal is given while the connector stands still, and before it has the configuration and the notes by which the
# tables count as known. Given to one that says RUNNING, it may reach the task of before the change, which passes over
# a table that it does not know, and says so in the worker's log alone: the rows would be missing in silence. Given
# last, it would be forgotten by a deploy that ends between the two. A task reads signals from where the last one has
# stopped, so that one which waits for it is heard, nearly always: see :mod:`connectors.connect.joined_tables`.


class Asked(NamedTuple):
    """The outcome of asking. ``signal``: the snapshot's id. Empty where none was sent, and ``unread`` then says why."""

    signal: str = ""
    unread: str = ""


def joined_tables(settings: Settings, published: Published, known: Known) -> tuple[str, ...]:
    """Those of the publication, or entries of the settings where the source is not asked. Pure.

    A configuration in force proves no reading: a deploy that failed may have made it, so the notes have to know a table
    as well. Without one every table that is named joins: the connector that was there may have passed it over.
    """
    if makes_publication(settings):
        return tuple(map(str, published.added))
    if known.topics is None:
        return ()
    if known.running is None:
        return tuple(named_tables(settings))
    new = [table for table in named_tables(settings) if table not in known.topics.tables]
    return tuple(dict.fromkeys([*newly_taken(settings, known.running), *new]))


def ask_for_rows(settings: Settings, wanted: Mapping[str, str], tables: Iterable[str], *, waits: bool) -> Asked:
    """Ask for a snapshot of tables that joined. ``wanted``: the configuration that the connector is to run with.
    ``waits``: a transaction from before them is still open.

    Raises what :func:`connectors.connect.signalling.send` raises, and UsageError for a table that is not captured.
    """
    names = [*tables]
    if not names:
        return Asked()
    if waits:
        return Asked(unread="a transaction that is older than the table is open")
    if any("*" in name for name in names):
        return Asked(unread="which tables of a pattern have rows already is not known")
    meant = [*map(spelled, names)]
    require_captured(settings, meant)
    try:
        require_snapshots(settings, wanted, "incremental")
    except ConfigError as refusal:
        return Asked(unread=refusal.message)
    signal = execute_snapshot(new_identifier(), meant)
    send(signal, settings)
    return Asked(signal=signal.identifier)
