"""Rows written into a store from outside the log, at a position of their own: for a repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import SinkError
from cdc.record.schema import TableSchema
from cdc.wire.format import DELETE_OP, READ_OP, bare_row
from sinks.contract.batch import Event, events_of
from sinks.contract.port import OpenSink
from sinks.contract.table_places import SchemaBook

declare("mend_applied", "mend_removed")


class RepairedRow(Protocol):
    """A record's key as JSON, and the row as on the wire. None for a delete."""

    @property
    def key(self) -> bytes:
        """The record's key as JSON."""

    @property
    def after(self) -> bytes | None:
        """The row as on the wire. None for a delete."""


class StoreRepair:
    """:class:`cdc.verification.repair.RepairTarget` over a store, which has to be opened as one of several writers."""

    def __init__(self, opened: OpenSink) -> None:
        self._sink = opened.sink
        self._discards = opened.discards

    def put(self, shape: TableSchema, pos: str, rows: Sequence[RepairedRow]) -> Sequence[str]:
        events = [
            Event(
                topic=shape.topic,
                partition=0,
                offset=number,
                key=row.key,
                value=None if row.after is None else bare_row(row.after),
                pos=pos,
                op=DELETE_OP if row.after is None else READ_OP,
                ver=shape.version,
            )
            for number, row in enumerate(rows)
        ]
        done = self._sink.apply(events_of(events), SchemaBook([shape]))
        crash_point("mend_applied")
        self._sink.show()
        return [one.reason for one in done.refused]

    def remove(self, shape: TableSchema, versions: Mapping[str, str]) -> None:
        if self._discards is None:
            raise SinkError("this store cannot take a version away", hint="cdc rebuild fills it anew")
        self._discards.remove(shape, versions)
        crash_point("mend_removed")
