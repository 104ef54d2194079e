"""From a batch of events to what each table needs: the newest of each key, keys and rows read, the rest refused.

Pure. Missing values of rows are filled afterwards, see :mod:`sinks.contract.store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson
import pyarrow as pa

from cdc.record.position import MAX_EPOCH
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.envelope import row_reader
from cdc.wire.format import DELETE_OP, OP, POS, ROW_OPS, VER
from cdc.wire.plain import PlainTable
from sinks.contract.batch import FLOOR_OP, Column, Event, conform, pc, where
from sinks.contract.history_rows import kept_rows
from sinks.contract.newest import POS_CHARS, floors_mask, newest, out_of_range, rows_mask
from sinks.contract.port import Refused, Schemas
from sinks.contract.store_notes import FloorMark
from sinks.contract.table_places import PlaceStep

T = TypeVar("T")
FloorOf = Callable[[TableName], str]
_VALUE_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBatch:
    """Rows of one table in one shape, one per key. The lists run in parallel.

    ``rows``: JSON of the row as on the wire, None for a delete. ``filled``: rows by number whose unavailable
    values were found elsewhere, whole, as plain values. They stand for the one in ``rows``. ``events``: the
    records themselves. ``place``: what is to be done to the table's place with the last of these rows, unless one of
    them is refused.
    """

    schema: TableSchema
    plain: PlainTable
    keys: list[str]
    pos: list[str]
    rows: list[bytes | None]
    events: pa.Table
    filled: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    place: PlaceStep | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def piece(self, start: int, stop: int) -> TableBatch:
        """Some of its rows."""
        filled = {n - start: row for n, row in self.filled.items() if start <= n < stop}
        return TableBatch(
            schema=self.schema,
            plain=self.plain,
            keys=self.keys[start:stop],
            pos=self.pos[start:stop],
            rows=self.rows[start:stop],
            events=self.events.slice(start, stop - start),
            filled=filled,
        )

    def pieces(self, most_bytes: int) -> Iterator[TableBatch]:
        """All of it, in pieces whose rows have about so many bytes: what a store makes of a row is a copy of it."""
        start = size = 0
        for number, row in enumerate(self.rows):
            size += len(row or b"")
            if size >= most_bytes:
                yield self.piece(start, number + 1)
                start, size = number + 1, 0
        if start == 0:
            yield self
        elif start < len(self):
            yield self.piece(start, len(self))

    def converted(self, convert: Callable[[bytes], T], filled: Callable[[dict[str, Any]], T]) -> Converted[T]:
        """Each row as a store wants it: ``convert`` from JSON on the wire, ``filled`` from plain values. None for
        a delete. Rows for which either raises ValueError are left out and refused."""
        if not self.filled:
            try:
                done = [None if row is None else convert(row) for row in self.rows]
                return Converted(batch=self, rows=done, refused=())
            except ValueError:
                pass
        rows: list[T | None] = []
        bad: dict[int, str] = {}
        for number, row in enumerate(self.rows):
            try:
                whole = self.filled.get(number)
                rows.append(filled(whole) if whole is not None else None if row is None else convert(row))
            except ValueError as error:
                bad[number] = reason(error)
                rows.append(None)
        batch, refused = self.without(bad)
        return Converted(batch=batch, rows=[r for n, r in enumerate(rows) if n not in bad], refused=refused)

    def without(self, bad: Mapping[int, str]) -> tuple[TableBatch, tuple[Refused, ...]]:
        """The same less some rows (number -> reason), and those as refused."""
        if not bad:
            return self, ()
        return self.of([number for number in range(len(self)) if number not in bad]), self.refused(bad)

    def of(self, numbers: Sequence[int]) -> TableBatch:
        """Some of its rows, by number."""
        moved = {new: self.filled[old] for new, old in enumerate(numbers) if old in self.filled}
        return TableBatch(
            schema=self.schema,
            plain=self.plain,
            keys=[self.keys[n] for n in numbers],
            pos=[self.pos[n] for n in numbers],
            rows=[self.rows[n] for n in numbers],
            events=self.events.take(pa.array(numbers, pa.int64())),
            filled=moved,
        )

    def refused(self, bad: Mapping[int, str]) -> tuple[Refused, ...]:
        """Rows by number, as refused."""
        return tuple(refuse(self.events.slice(number, 1), why)[0] for number, why in bad.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted(Generic[T]):
    """A batch and its rows in a store's form, in parallel. ``refused``: what had none."""

    batch: TableBatch
    rows: list[T | None]
    refused: tuple[Refused, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteRows:
    """A table's rows, some of which may lack values, and deletes. ``every``: the events that these are the newest of,
    and others."""

    batch: TableBatch
    every: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The work that a batch of events makes for the stores. ``stale``: how many lay below a floor."""

    batches: tuple[IncompleteRows, ...]
    stale: int
    refused: tuple[Refused, ...]


def floor_marks(
    events: pa.Table, schemas: Schemas
) -> tuple[list[FloorMark], Mapping[TableName, TableSchema], tuple[Refused, ...]]:
    """The floors in a batch, the shapes of their tables, and the floor records that cannot be read."""
    marks: list[FloorMark] = []
    shapes: dict[TableName, TableSchema] = {}
    refused: list[Refused] = []
    told = events.filter(floors_mask(events))
    for number, event in enumerate(event_rows(told)):
        try:
            schema = schemas(event.topic, event.ver or 0)
            mark = FloorMark.of(schema.table, event.partition, event.key or b"", event.value, event.pos or "")
            marks.append(mark)
            shapes[schema.table] = schema
        except KeyError:
            refused.extend(refuse(told.slice(number, 1), _no_shape(event.ver)))
        except ValueError as error:
            refused.extend(refuse(told.slice(number, 1), reason(error)))
    return marks, shapes, tuple(refused)


def plan(events: pa.Table, schemas: Schemas, floor_of: FloorOf) -> BatchPlan:
    """Take the newest of each key, drop what lies below a floor, read keys and rows. Refuse what cannot be read."""
    every = conform(events)
    winners = newest(every)
    rows = rows_mask(winners)
    refused = list(_unordered(winners.filter(pc.invert(rows))))
    batches: list[IncompleteRows] = []
    stale = 0
    for group in _groups(where(winners, rows)):
        event = event_rows(group.slice(0, 1))[0]
        try:
            schema = schemas(event.topic, -1 if event.ver is None else event.ver)
        except KeyError:
            refused.extend(refuse(group, _no_shape(event.ver)))
            continue
        floor = floor_of(schema.table)
        above = _above(group, floor)
        stale += group.num_rows - above.num_rows
        if above.num_rows:
            batch, unread = _read(above, schema)
            refused.extend(unread)
            batches.append(IncompleteRows(batch=batch, every=_above(every, floor)))
    return BatchPlan(batches=tuple(batches), stale=stale, refused=tuple(refused))


def refuse(events: pa.Table, why: str) -> tuple[Refused, ...]:
    """Every one of some events, refused for one reason."""
    return tuple(Refused(**event._asdict(), reason=why) for event in event_rows(events))


def reason(error: ValueError) -> str:
    """The text of a ValueError, without the values that a JSON reader quotes."""
    return "the record is not JSON" if isinstance(error, orjson.JSONDecodeError) else str(error)


def _no_shape(ver: int | None) -> str:
    return (
        "the record names no schema version" if ver is None else f"the schema topic has no version {ver} of this table"
    )


def event_rows(table: pa.Table) -> list[Event]:
    """A table of events as single ones."""
    return [Event(**row) for row in table.to_pylist()]


def _unordered(events: pa.Table) -> list[Refused]:
    """Records that are neither rows nor floors."""
    strange = events.filter(pc.invert(floors_mask(events)))
    found: list[Refused] = []
    for number, event in enumerate(event_rows(strange)):
        if event.key is None:
            why = "the record has no key"
        elif event.op not in (*ROW_OPS, FLOOR_OP):
            why = "the record has no op header" if event.op is None else "the record's op is none of c, u, d, r, t"
        elif event.pos is not None and len(event.pos) == POS_CHARS and out_of_range(event.pos):
            why = f"the record's position is none of a pipeline's: its epoch is over {MAX_EPOCH}, or its LSN too large"
        else:
            why = "the record has no position"
        found.extend(refuse(strange.slice(number, 1), why))
    return found


def _groups(rows: pa.Table) -> list[pa.Table]:
    """The rows by topic and version."""
    kinds = rows.group_by(["topic", VER]).aggregate([]).to_pylist()
    if len(kinds) <= 1:
        return [rows] if rows.num_rows else []
    groups = []
    for kind in kinds:
        version = pc.is_null(rows[VER]) if kind[VER] is None else pc.equal(rows[VER], kind[VER])
        groups.append(rows.filter(pc.and_(pc.equal(rows["topic"], kind["topic"]), pc.fill_null(version, False))))
    return groups


def _above(rows: pa.Table, floor: str) -> pa.Table:
    """The rows at or above a floor."""
    return where(rows, pc.greater_equal(rows[POS], floor)) if floor else rows


def _read(events: pa.Table, schema: TableSchema) -> tuple[TableBatch, tuple[Refused, ...]]:
    """Keys and rows of one table's events. The unreadable refused."""
    plain = PlainTable(schema)
    keys_json: list[Any] = events["key"].to_pylist()
    pos: list[Any] = events[POS].to_pylist()
    bad: dict[int, str] = {}
    keys: list[str]
    rows: list[bytes | None]
    if schema.history:
        keys, rows, bad = kept_rows(schema, keys_json, list(_values(events["value"])))
    else:
        keys, rows = _keys_and_rows(events, plain, keys_json, bad)
    batch = TableBatch(schema=schema, plain=plain, keys=keys, pos=pos, rows=rows, events=events)
    readable, refused = batch.without(bad)
    return _one_per_key(readable), refused


def _keys_and_rows(
    events: pa.Table, plain: PlainTable, keys_json: Sequence[bytes], bad: dict[int, str]
) -> tuple[list[str], list[bytes | None]]:
    """``bad``: gets the numbers of those that cannot be read, with the reasons."""
    read = row_reader([c.name for c in plain.schema.columns])
    deletes: list[bool] = pc.or_(pc.equal(events[OP], DELETE_OP), pc.is_null(events["value"])).to_pylist()
    try:
        keys = plain.keys(keys_json)
        values = zip(deletes, _values(events["value"]), strict=True)
        return keys, [None if gone else read(value) for gone, value in values]
    except ValueError:
        keys = [_attempt(plain.key, key, number, bad, "") for number, key in enumerate(keys_json)]
        return keys, [
            None if gone else _attempt(read, value, number, bad, None)
            for number, (gone, value) in enumerate(zip(deletes, _values(events["value"]), strict=True))
        ]


def _values(column: Column) -> Iterator[Any]:
    """A column's values, some megabytes of them at a time: they are copied out of Arrow."""
    step = max(1, len(column) * _VALUE_BYTES // max(1, column.nbytes))
    for start in range(0, len(column), step):
        yield from column.slice(start, step).to_pylist()


def _one_per_key(batch: TableBatch) -> TableBatch:
    """The batch without older rows of one store key, which different bytes of a foreign key can name."""
    if len(set(batch.keys)) == len(batch):
        return batch
    offsets = batch.events["offset"].to_pylist()
    newest_of: dict[str, int] = {}
    older: dict[int, str] = {}
    for number, key in enumerate(batch.keys):
        other = newest_of.setdefault(key, number)
        if other == number:
            continue
        last = max(number, other, key=lambda n: (batch.pos[n], offsets[n] or 0))
        newest_of[key] = last
        older[number + other - last] = ""
    return batch.without(older)[0]


def _attempt(read: Callable[[bytes], T], text: bytes, number: int, bad: dict[int, str], otherwise: T) -> T:
    try:
        return read(text)
    except ValueError as error:
        bad[number] = reason(error)
        return otherwise
