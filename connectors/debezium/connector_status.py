"""A connector's status in Kafka Connect, as plain values and without secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from connectors.debezium.answer import answering, entry, text
from connectors.debezium.faults import cause, first_line

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
    """The connector, its tasks, its stored offsets and, for Postgres, its slot."""

    name: str
    state: str
    worker: str
    trace: str = ""
    tasks: tuple[TaskStatus, ...] = ()
    offsets: tuple[dict[str, Any], ...] = field(default=())
    lag: Lag | None = None
    lag_unknown: str = ""
    """Why there is no lag."""

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
            tasks=tuple(_task(entry(task)) for task in document.get("tasks", ())),
        )


def _task(task: Mapping[str, Any]) -> TaskStatus:
    trace = text(task.get("trace", ""))
    return TaskStatus(
        task=int(task["id"]),
        state=text(task["state"]),
        worker=text(task.get("worker_id", "")),
        trace=first_line(trace),
        cause=cause(trace),
    )
