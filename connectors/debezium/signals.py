"""Signals that a running connector takes: through a Kafka topic, or through a table of the database.

Format: Debezium's "Sending signals to a Debezium connector" (3.x): ``id``, ``type``, ``data``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from cdc.errors import UsageError
from cdc.json_bytes import dumped
from connectors.debezium.regex import table_list

SnapshotKind = Literal["incremental", "blocking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal. ``identifier`` shows up in the connector's log and notifications."""

    identifier: str
    type: str
    data: dict[str, Any]

    def record(self) -> bytes:
        """The value on the signal topic. Its key is the connector's topic prefix."""
        return dumped({"id": self.identifier, "type": self.type, "data": self.data})

    def row(self) -> tuple[str, str, str]:
        """The row of a signal table: id, type, data."""
        return self.identifier, self.type, orjson.dumps(self.data).decode()


def new_identifier() -> str:
    """An identifier that no other signal has."""
    return str(uuid.uuid4())


def execute_snapshot(
    identifier: str, tables: Iterable[str], *, kind: SnapshotKind = "incremental", where: str | None = None
) -> Signal:
    """Read these tables again while streaming goes on (incremental) or is paused (blocking).

    ``where``: only rows for which this SQL condition holds. For one table only. UsageError where none is named.
    """
    names = list(tables)
    if not names:
        raise UsageError("a snapshot signal names no table", hint="cdc connect signal snapshot public.orders")
    if where is not None and len(names) > 1:
        raise UsageError("--where fits one table", hint="send one signal per table")
    data: dict[str, Any] = {"type": kind, "data-collections": [_collection(name) for name in names]}
    if where is not None:
        data["additional-conditions"] = [{"data-collection": _collection(names[0]), "filter": where}]
    return Signal(identifier=identifier, type="execute-snapshot", data=data)


def stop_snapshot(identifier: str, tables: Iterable[str] = ()) -> Signal:
    """End the incremental snapshot: of these tables, or all of it."""
    names = [_collection(name) for name in tables]
    data: dict[str, Any] = {"type": "incremental"}
    return Signal(
        identifier=identifier, type="stop-snapshot", data=data | ({"data-collections": names} if names else {})
    )


def pause_snapshot(identifier: str) -> Signal:
    """Hold the incremental snapshot."""
    return Signal(identifier=identifier, type="pause-snapshot", data={"type": "incremental"})


def resume_snapshot(identifier: str) -> Signal:
    """Go on with it."""
    return Signal(identifier=identifier, type="resume-snapshot", data={"type": "incremental"})


def _collection(table: str) -> str:
    return table_list([table]).removeprefix("(?-i)")
