"""The contract between the log and a store: three small ports, at most four methods each.

A store is kept by one :class:`Sink`, says how far it is by :class:`Watermarks`, and its tables by
:class:`sinks.contract.table_places.Places`. A :class:`StoreReader` reads it back whole.
:func:`sinks.contract.sink_spec.open_sink` opens them together. :mod:`sinks.contract.memory_store` holds them in a dict,
for tests and for users. One contract suite runs over every implementation.

An error of a store is one of three kinds, and each store says which: :class:`StoreAway` passes with
time, :class:`PlaceMissing` needs a new beginning, and what the store cannot take is one record (:class:`Refused`)
or one table (:class:`CannotCarry`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import CdcError, Exit, Retry, SinkError
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.format import POS
from sinks.contract.attempt_limits import unrepeated
from sinks.contract.batch import schema_of
from sinks.contract.table_places import Places

declare("places_written")

log = logging.getLogger("headrace.sinks")
READ_BYTES = 8 * 1024**2
"""About as many bytes of a store's rows are read at once."""


class Schemas(Protocol):
    """The shapes of tables, by their topics."""

    def __call__(self, topic: str, version: int) -> TableSchema:
        """The shape of a record by its ``ver``. KeyError when the schema topic does not hold it."""

    def newest(self, topic: str) -> TableSchema:
        """The newest shape known of a topic's table. KeyError when there is none."""


class StoreAway(SinkError):
    """The store does not answer, or takes nothing for the time. Wait, and give it the same again."""


class PlaceMissing(SinkError):
    """A table was removed under the sink, or another state of it put in its place. Begin again: it is read on from
    where it is."""

    retry = Retry.NOW

    table: TableName | None = None

    @classmethod
    def of(cls, table: TableName, place: str) -> PlaceMissing:
        """For a table whose rows were in ``place``."""
        return cls._about(table, f"{place} was removed while the sink was running")

    @classmethod
    def moved(cls, table: TableName) -> PlaceMissing:
        """For a table whose rows are other ones than those that were written."""
        return cls._about(table, "another state of it was put in its place")

    @classmethod
    def _about(cls, table: TableName, what: str) -> PlaceMissing:
        error = cls(f"{table}: {what}", hint="the sink goes on from what is there, or fills it anew from the log")
        error.table = table
        return error


class CannotCarry(SinkError):
    """The store cannot take ``table`` as it is: its newest shape, or any of its rows. That table waits, alone."""

    exit = Exit.CONFIG
    retry = Retry.NEVER

    def __init__(self, message: str, *, hint: str = "", table: TableName = TableName("", "")) -> None:  # noqa: B008
        super().__init__(message, hint=hint)
        self.table = table

    @classmethod
    def column(cls, table: TableName, column: str, stored: str, wanted: str) -> CannotCarry:
        """For a column whose type is ``stored`` in the store, and ``wanted`` in the source now."""
        return cls(
            f"{table}: column {column} is {stored} in the store, and {wanted} in the source now",
            table=table,
            hint="a store made anew takes the newest shape: cdc rebuild",
        )

    @classmethod
    def because(cls, table: TableName, why: str, *, hint: str = "") -> CannotCarry:
        """For any other reason: one clause, without values of rows. ``hint``: its own cure, where it has one."""
        hint = hint or "change that in the store, or make it anew: cdc rebuild"
        return cls(f"{table}: {why}", table=table, hint=hint)


STORED_SCHEMA = schema_of([("key", pa.string()), (POS, pa.string()), ("deleted", pa.bool_()), ("row", pa.binary())])
"""What :class:`StoreReader` yields: the store key, the position of the stored version, whether it is the memory of
a delete, and the row as JSON of plain values (null for a deleted one)."""


STRANGE_ROW = b"null"
"""Stands for a stored row that is none of ours: a column holds what no row of ours has there, or a key has several
rows. No row of the source is equal to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A record that the store, or the sink before it, cannot take. It goes to the dead letters as it came.

    ``reason``: one sentence, with column names but no values. ``key``, ``value``, ``pos``, ``op`` and ``ver``
    as the record had them, None where it had none.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    pos: str | None
    op: str | None
    ver: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of one ``apply``, in records after the newest of each key was taken.

    ``applied`` rows written, ``deleted`` deletes written, ``stale`` records older than the store or below a
    floor, ``refused`` the records the store does not take. Sums with ``+``.
    """

    applied: int = 0
    deleted: int = 0
    stale: int = 0
    refused: tuple[Refused, ...] = field(default=())

    def __add__(self, other: Applied) -> Applied:
        return Applied(
            applied=self.applied + other.applied,
            deleted=self.deleted + other.deleted,
            stale=self.stale + other.stale,
            refused=self.refused + other.refused,
        )


class Sink(Protocol):
    """Writes to one store. One thread at a time.

    Order: none is asked of the caller. Events of one key may come in any order, over any number of calls. The newest by
    ``(pos, offset)`` stays, and a delete is remembered for ``replay_window`` at least. But a row that lacks a value is
    made whole of what is there: one that comes after a later one of its key is stale. Duplicates:
    every call may be repeated, whole or in part, at any later time. The store ends up the same. Among equal positions
    the later call wins, so a replay has to go on to where it was. Floors: events with op ``t`` set a floor
    of their table, kept in the store. Rows and events below it go, from every source. Where several sinks share a
    store, give the ``t`` events to one of them first, alone. Failure: ``apply`` either returns, and then every event is
    applied, stale or in ``refused``, or raises SinkError, and then any part of the events may have been applied: call
    again with the same. After StoreAway later, after PlaceMissing with the sink opened anew, after CannotCarry at once
    without the events of its table.
    """

    def prepare(self, schema: TableSchema, *, older: bool = False) -> None:
        """Make the table's place, or evolve it to this shape, the newest of its table. Repeatable.

        CannotCarry when the place cannot become that. ``older``: a shape that is not the newest any more. Columns
        that are missing are added for its rows, and the others stay as they are. ``apply`` calls it by itself.
        """

    def apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        """Apply events (:data:`sinks.contract.batch.EVENT_SCHEMA`) of any tables. An empty batch does nothing.

        Connection faults are retried inside, for a bounded time. StoreAway when the store stays down, PlaceMissing
        when a table's place was removed, CannotCarry when the store takes none of a table's rows. A
        record that cannot be read or that the store does not take is returned in ``refused``, never raised.
        """

    def show(self) -> None:
        """Every reader of the store sees the writes of ``apply`` when this returns."""

    def close(self) -> None:
        """Close the connections. Never raises. Writes that are not yet shown may be lost: replay it."""


class Watermarks(Protocol):
    """A store's notes about itself. They are kept in the store, so that a restored store knows how old it is."""

    def read(self) -> Watermark | None:
        """The watermark. None in a store that has none (new, flushed, dropped)."""

    def write(self, watermark: Watermark) -> None:
        """Replace it. Call after ``show``. Where the store has transactions, what the sink of the same
        :class:`OpenSink` applied and did not show yet becomes visible in the same one."""


class StoreReader(Protocol):
    """Reads a store back, for ``verify`` and for tests. Not for serving."""

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Every stored key of a table, in no order, as :data:`STORED_SCHEMA`, in bounded memory.

        Deletes that are still remembered come with ``deleted``. A table the store does not hold yields nothing.
        A key may come more than once. :meth:`get` says whether it has several rows: then its ``pos`` is empty.
        Keys written meanwhile may or may not be seen.
        """

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        """One key (see :meth:`cdc.wire.plain.PlainTable.key`). None where the store holds nothing."""

    def close(self) -> None:
        """Close the connections. Never raises."""


class Discards(Protocol):
    """Takes stored versions away that no event can replace: for a repair, never for a sink."""

    def remove(self, schema: TableSchema, versions: Mapping[str, str]) -> None:
        """Remove what is stored under each key at exactly the position that is given with it. An empty one stands for
        none at all. A row that has another position by then stays. When it returns, a row of any position is taken
        there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """One stored version. ``row``: JSON of plain values, None for the memory of a delete. ``pos`` is empty for one that
    has none: somebody else put it there, and ``row`` may be anything."""

    key: str
    pos: str
    row: bytes | None

    @property
    def deleted(self) -> bool:
        """Whether the store remembers that the row was deleted."""
        return self.row is None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSink:
    """A store, opened: the three ports over one set of connections.

    ``transactional``: the store can show data and watermark in one transaction. ``current``: whether the place that
    was opened is still the one that readers are led to, asked of the store. ``sweep_late``: removes what was written
    below floors that others have raised meanwhile.
    """

    sink: Sink
    watermarks: Watermarks
    reader: StoreReader
    places: Places
    transactional: bool = False
    current: Callable[[], bool] = field(default=lambda: True)
    discards: Discards | None = None
    sweep_late: Callable[[], None] = field(default=lambda: None)

    def show(self) -> None:
        """Show what was applied, and write the places that it led to. Where the store has transactions, both show with
        the watermark."""
        if not self.transactional:
            self.sink.show()
        self.places.finish()
        crash_point("places_written")

    def commit(self, watermark: Watermark, check: Callable[[], None] = lambda: None) -> None:
        """:meth:`show`, then :meth:`claim`. In one transaction where the store has them."""
        self.show()
        self.claim(watermark, check)

    def claim(self, watermark: Watermark, check: Callable[[], None] = lambda: None) -> None:
        """Write the watermark of what shows.

        ``check`` is called right before, and raises where the store may not claim it. The writing is tried once: a
        store that went away behind the check may come back as an older copy."""
        self.checked(check)
        with unrepeated():
            self.watermarks.write(watermark)
        self.places.settle()
        if self.transactional:
            # All of it shows already. The upkeep that a sink does at each show is left.
            self.sink.show()

    def checked(self, check: Callable[[], None]) -> None:
        """Check whether the store may be claimed. Where it may not, rows may have to go again."""
        try:
            check()
        except CdcError:
            # Somebody else has fed the store meanwhile. Rows of ours came behind a TRUNCATE of theirs.
            if not self.transactional:
                self._sweep_late()
            raise

    def _sweep_late(self) -> None:
        try:
            self.sweep_late()
        except CdcError as failure:
            # The refusal is what ends the sink. That rows may be left is told beside it.
            log.warning("late_rows_left", extra={"reason": failure.message, "hint": failure.hint})

    def close(self) -> None:
        """Close all three. Never raises."""
        self.reader.close()
        self.sink.close()


def rows_at_once(row_bytes: float, most: int) -> int:
    """How many rows a scan reads at once, ``most`` at most, where rows of their table have had so many bytes each."""
    return max(1, min(most, int(READ_BYTES / max(1.0, row_bytes))))


def stored_batch(rows: Sequence[StoredRow]) -> pa.RecordBatch:
    """Stored rows as a reader yields them."""
    return stored_columns([row.key for row in rows], [row.pos for row in rows], [row.row for row in rows])


def stored_columns(keys: Sequence[str], pos: Sequence[str], rows: Sequence[bytes | None]) -> pa.RecordBatch:
    """The same from its columns."""
    columns: list[pa.Array[Any]] = [
        pa.array(keys, pa.string()),
        pa.array(pos, pa.string()),
        pa.array([row is None for row in rows], pa.bool_()),
        pa.array(rows, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STORED_SCHEMA)
