"""A store in a dict, with every promise of a real one: for tests, and for users who want to see events applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.record.documents import dumped
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from sinks.contract.batch_plan import TableBatch
from sinks.contract.port import Applied, CannotCarry, OpenSink, PlaceMissing, StoreAway, StoredRow, stored_batch
from sinks.contract.store import StoreSink
from sinks.contract.store_notes import NotedWatermarks
from sinks.contract.table_places import Places, PlaceStep

_SCAN_ROWS = 10_000


@dataclass(slots=True)
class MemoryStore:
    """The content of a store: rows by table and key, deletes with the time until which they are remembered, notes.

    Several sinks may be opened over one. For tests, ``refuse``: keys that this store does not take. ``rigid``: a
    column keeps the type that it had first. ``away``: it does not answer. ``closed``: tables of which it takes nothing.
    A table is dropped by taking it out of ``rows``. ``places``: by table, each with its rows.
    """

    clock: Clock = SYSTEM_CLOCK
    replay_window_s: float = 7 * 86_400.0
    refuse: frozenset[str] = frozenset()
    rigid: bool = False
    away: bool = False
    closed: frozenset[TableName] = frozenset()
    kinds: dict[TableName, dict[str, str]] = field(default_factory=dict)
    rows: dict[TableName, dict[str, StoredRow]] = field(default_factory=dict)
    forget_ns: dict[tuple[TableName, str], int] = field(default_factory=dict)
    notes: dict[str, bytes] = field(default_factory=dict)
    places: dict[TableName, bytes] = field(default_factory=dict)

    def open(self) -> OpenSink:
        """The ports over this store."""
        tables, notes = _MemoryTables(self), _MemoryNotes(self)
        places = Places(tables)
        sink = StoreSink(tables, notes, _NoSession(), places=places, shared=True)
        return OpenSink(
            sink=sink,
            watermarks=NotedWatermarks(notes),
            reader=_MemoryReader(self),
            places=places,
            discards=_MemoryDiscards(self),
            sweep_late=sink.sweep_late,
        )

    def table(self, table: TableName) -> dict[str, StoredRow]:
        """A table's rows by key, forgotten deletes gone."""
        rows = self.rows.get(table, {})
        now = self.clock.now_ns()
        for name, key in [known for known, until in self.forget_ns.items() if until <= now]:
            del self.forget_ns[name, key]
            self.rows.get(name, {}).pop(key, None)
        return rows


class _MemoryTables:
    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        self._check(schema.table)
        if schema.table not in self._memory.rows:
            self._memory.places.pop(schema.table, None)
        self._memory.rows.setdefault(schema.table, {})
        kinds = self._memory.kinds.setdefault(schema.table, {})
        for column in schema.columns if self._memory.rigid else ():
            existing = kinds.setdefault(column.name, column.type)
            if existing != column.type and not older:
                raise CannotCarry.column(schema.table, column.name, existing, column.type)

    def _check(self, table: TableName, *, there: bool = False) -> None:
        if self._memory.away:
            raise StoreAway("the store in memory is away")
        if table in self._memory.closed:
            raise CannotCarry.because(table, "the store takes nothing of it")
        if there and table not in self._memory.rows:
            raise PlaceMissing.of(table, "its table")

    def write(self, batch: TableBatch) -> Applied:
        memory, table = self._memory, batch.schema.table
        self._check(table, there=True)
        refused = {n: "the store does not take this key" for n, key in enumerate(batch.keys) if key in memory.refuse}
        taken, refusals = batch.without(refused)
        converted = taken.converted(batch.plain.row, dumped)
        rows = memory.table(table)
        until = memory.clock.now_ns() + int(memory.replay_window_s * 1e9)
        applied = deleted = stale = 0
        for key, pos, row in zip(converted.batch.keys, converted.batch.pos, converted.rows, strict=True):
            stored = rows.get(key)
            if stored is not None and stored.pos > pos:
                stale += 1
                continue
            rows[key] = StoredRow(key=key, pos=pos, row=row)
            if row is None:
                memory.forget_ns[table, key] = until
                deleted += 1
            else:
                memory.forget_ns.pop((table, key), None)
                applied += 1
        return Applied(applied=applied, deleted=deleted, stale=stale, refused=refusals + converted.refused)

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        self._check(schema.table, there=True)
        rows = self._memory.table(schema.table)
        return {key: rows[key] for key in keys if key in rows}

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        self._check(schema.table, there=True)
        rows = self._memory.table(schema.table)
        for key in [key for key, row in rows.items() if row.pos < floor]:
            del rows[key]
            self._memory.forget_ns.pop((schema.table, key), None)

    def place(self, schema: TableSchema) -> bytes | None:
        if self._memory.away:
            raise StoreAway("the store in memory is away")
        return self._memory.places.get(schema.table) if schema.table in self._memory.rows else None

    def put_places(self, steps: Sequence[PlaceStep]) -> None:
        for step in steps:
            self._check(step.schema.table, there=True)
            if not step.fits(self.place(step.schema)):
                raise PlaceMissing.moved(step.schema.table)
            self._memory.places[step.schema.table] = step.after

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        if empty:
            self._memory.places.pop(schema.table, None)
            self._memory.rows.get(schema.table, {}).clear()


class _MemoryNotes:
    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def read(self) -> Mapping[str, bytes]:
        return dict(self._memory.notes)

    def write(self, name: str, text: bytes) -> None:
        self._memory.notes[name] = text


class _NoSession:
    def show(self) -> None:
        """Everything shows at once."""

    def close(self) -> None:
        """Nothing is open."""


class _MemoryReader:
    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        rows = list(self._memory.table(schema.table).values())
        for start in range(0, len(rows), _SCAN_ROWS):
            yield stored_batch(rows[start : start + _SCAN_ROWS])

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        return self._memory.table(schema.table).get(key)

    def close(self) -> None:
        """Nothing is open."""


class _MemoryDiscards:
    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def remove(self, schema: TableSchema, versions: Mapping[str, str]) -> None:
        rows = self._memory.table(schema.table)
        for key, pos in versions.items():
            if key in rows and rows[key].pos == pos:
                del rows[key]
                self._memory.forget_ns.pop((schema.table, key), None)
