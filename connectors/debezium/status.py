"""A connector's status, waiting for it, and a task's trace in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cdc.process.clock import Clock
from cdc.process.untrusted_text import hide
from connectors.debezium.client import ConnectClient, ConnectError, MissingConnector, answering, entry, text

RUNNING, FAILED, PAUSED, STOPPED = "RUNNING", "FAILED", "PAUSED", "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task. ``trace``: the first line of its stack trace. ``cause``: the innermost one's words."""

    task: int
    state: str
    worker: str
    trace: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far the slot is behind: ``lag_bytes`` from confirmed_flush_lsn, ``retained_bytes`` of WAL kept for it."""

    slot: str
    active: bool
    wal_status: str | None
    lag_bytes: int | None
    retained_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStatus:
    """The connector, its tasks, its stored offsets and, for Postgres, its slot. ``lag_unknown``: why there is no
    lag."""

    name: str
    state: str
    worker: str
    trace: str = ""
    tasks: tuple[TaskStatus, ...] = ()
    offsets: tuple[dict[str, Any], ...] = field(default=())
    lag: Lag | None = None
    lag_unknown: str = ""

    @property
    def failed(self) -> tuple[TaskStatus, ...]:
        """The tasks that failed."""
        return tuple(task for task in self.tasks if task.state == FAILED)

    @property
    def runs(self) -> bool:
        """Whether the connector and at least one task run, and none has failed."""
        return self.state == RUNNING and bool(self.tasks) and all(task.state == RUNNING for task in self.tasks)

    @property
    def halted(self) -> bool:
        """Whether it was paused or stopped by a command, and waits for the next one."""
        return self.state in (PAUSED, STOPPED)

    @property
    def fault(self) -> str:
        """The failure, in the server's words. Empty where nothing did."""
        if self.state == FAILED:
            return self.trace
        return next((task.cause or task.trace for task in self.failed), "")

    def error(self) -> ConnectError:
        """The error for one that has failed, with the remedy."""
        return ConnectError(f"the connector {self.name} failed: {self.fault}", hint=advice(self.fault))

    def document(self) -> dict[str, Any]:
        """As ``cdc connect status --json`` prints it."""
        return asdict(self)


def parse_status(document: Mapping[str, Any]) -> ConnectorStatus:
    """``GET /connectors/NAME/status``. ConfigError where the answer has another form."""
    with answering("the connector's status"):
        connector = entry(entry(document)["connector"])
        return ConnectorStatus(
            name=text(document["name"]),
            state=text(connector["state"]),
            worker=text(connector.get("worker_id", "")),
            trace=first_line(text(connector.get("trace", ""))),
            tasks=tuple(
                TaskStatus(
                    task=int(task["id"]),
                    state=text(task["state"]),
                    worker=text(task.get("worker_id", "")),
                    trace=first_line(text(task.get("trace", ""))),
                    cause=cause(text(task.get("trace", ""))),
                )
                for task in map(entry, document.get("tasks", ()))
            ),
        )


# Waiting for a state.

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
            nonlocal steady
            steady = steady + 1 if status.runs else 0
            late = self._clock.monotonic() - began > _OLD_FAULT_S
            if status.halted and late:
                raise ConnectError(
                    f"the connector {self._name} is {status.state.lower()}, and does not go on by itself",
                    hint="cdc connect resume",
                )
            if status.fault and (late or status.fault != old_fault):
                raise status.error()
            return steady >= _STEADY_POLLS

        return self._until(runs, "run")

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


# A task's trace.

RESTART = "mend the cause, then cdc connect restart; the worker's log has the whole trace"
_LONGEST = 400
_IDENTIFIED = re.compile(r"(?i)(identified\s+(?:by|with|via|as)\b).*", re.DOTALL)
"""The password in a statement of MySQL or MariaDB, and all behind it."""
_ADVICE = {
    "DDL statement couldn't be parsed": (
        'if it changes no captured table: "schema.history.internal.skip.unparseable.ddl" = "true" in '
        "[debezium.options] and cdc connect deploy; else write the change in another way, and begin anew by "
        "cdc connect resnapshot, which reads every table again"
    ),
    "schema isn't known to this connector": (
        "the schema history lacks that table: cdc connect deploy, so that all tables are kept, then cdc connect "
        "resnapshot, which reads every table again"
    ),
    '"this.gtidSet" is null': (
        "the server had no GTID when the connector began, as after RESET MASTER; it has one now, so that cdc connect "
        "restart begins anew"
    ),
    "currentDataCollectionId()": (
        "Debezium could not read a table that joined, or that was to be read again; the worker's log names it and the "
        "reason: mend that, then cdc connect restart; cdc connect signal stop TABLE lets the connector go on meanwhile"
    ),
    "without key": "that topic's table has no primary key: give it one, or exclude it and run cdc connect deploy",
    "no longer available on the server": (
        "what was changed since then cannot be read any more: cdc connect resnapshot reads every table again"
    ),
}
"""Words of a fault -> what to do about it."""


def first_line(trace: str) -> str:
    r"""The first line of the trace. Empty for no trace.

    >>> first_line("a.B: outer\n\tat x")
    'a.B: outer'
    """
    return _shown(_messages(trace)[0]) if trace.strip() else ""


def cause(trace: str) -> str:
    r"""The innermost ``Caused by`` that says something, without its class's package. Empty where none does.

    >>> cause("a.B: outer\n\tat x\nCaused by: org.c.PSQLException: no slot\n\tat y\nCaused by: d.NoWords\n\tat z")
    'PSQLException: no slot'
    """
    causes = [text.removeprefix("Caused by: ") for text in _messages(trace) if text.startswith("Caused by: ")]
    telling = next((text for text in reversed(causes) if ": " in text), causes[-1] if causes else "")
    name, colon, words = telling.partition(": ")
    return _shown(f"{name.rsplit('.', 1)[-1]}{colon}{words}")


def advice(fault: str) -> str:
    """The advice for a fault that is known by its words. Else to remove the cause."""
    return next((what for words, what in _ADVICE.items() if words in fault), RESTART)


def _messages(trace: str) -> list[str]:
    """The exceptions of a trace, each with all lines of its message and none of its frames."""
    found: list[str] = []
    within = False
    for line in trace.strip().splitlines():
        if line.startswith(("\tat ", "\t... ", "\tSuppressed:")):
            within = False
        elif line.startswith("Caused by: ") or not found:
            found.append(line.strip())
            within = True
        elif within:
            found[-1] += " " + line.strip()
    return found


def _shown(message: str) -> str:
    """Without passwords, and of a long one both ends: Debezium says what is wrong at either."""
    shown = hide(_IDENTIFIED.sub(r"\1 ***", message))
    half = _LONGEST // 2
    return shown if len(shown) <= _LONGEST else f"{shown[:half].rstrip()} ... {shown[-half:].lstrip()}"
