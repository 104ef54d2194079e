"""The warehouse as Delta tables, written by delta-rs without a JVM: one table per captured table, merged by key."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cdc.clock import Clock
from cdc.schema import TableSchema
from cdc.sql import quote_literal
from sinks.delta_table import Delta, Storage
from sinks.generations import Place
from sinks.names import folder
from sinks.notes import NotedWatermarks
from sinks.plan import TableBatch
from sinks.port import Applied, OpenSink, Refused, StoredRow
from sinks.registry import SinkSpec
from sinks.store import StoreSink
from sinks.warehouse_columns import (
    DELETED,
    DELETED_AT,
    EXACT,
    KEY,
    POS,
    TIMESTAMPTZ,
    WarehouseColumn,
    retypes,
    warehouse_columns,
)
from sinks.warehouse_rows import EXACT_TYPE, WarehouseRows

_MERGE_ROWS = 250_000
_SCAN_ROWS = 16_384
_LOOKUP = 1_000
_OWN_FIELDS: list[tuple[str, pa.DataType]] = [
    (KEY, pa.string()),
    (POS, pa.string()),
    (DELETED, pa.bool_()),
    (DELETED_AT, TIMESTAMPTZ),
    (EXACT, EXACT_TYPE),
]


def open_delta(spec: SinkSpec, clock: Clock) -> OpenSink:
    """Open a warehouse; the folder is made when the first table is."""
    storage = Storage.of(spec)
    notes = DeltaNotes(storage, clock)
    tables = _DeltaTables(storage, spec.replay_window_s, clock)
    sink = StoreSink(tables, notes, _DeltaSession(), shared=spec.parallel)
    place = Place(notes, None, shared=False)
    reader = _DeltaReader(storage, clock)
    return OpenSink(sink=sink, watermarks=NotedWatermarks(notes), reader=reader, current=place.current)


def table_path(schema: TableSchema) -> str:
    """A table's folder below the warehouse's root."""
    return f"{folder(schema.table.schema)}/{folder(schema.table.table)}"


class _DeltaTables:
    def __init__(self, storage: Storage, replay_window_s: float, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._remember_us = int(replay_window_s * 1e6)
        self._tables: dict[str, Delta] = {}
        self._purged: dict[str, float] = {}
        self._every_s = min(3600.0, replay_window_s)

    def prepare(self, schema: TableSchema, *, older: bool) -> bool:
        table = self._table(schema)
        wanted = warehouse_columns(schema)
        if not table.exists():
            table.create(pa.schema([*((c.name, c.type) for c in wanted), *_OWN_FIELDS]))
            return True
        held = table.types()
        retyped = {} if older else retypes(schema.table, held, wanted)
        table.add_columns([(c.name, c.type) for c in wanted if c.name not in held])
        table.retype(retyped)
        return False

    def write(self, batch: TableBatch) -> Applied:
        table = self._table(batch.schema)
        types = table.types()
        columns = [
            WarehouseColumn(source=c.source, name=c.name, type=types[c.name]) for c in warehouse_columns(batch.schema)
        ]
        rows = WarehouseRows(batch.schema, columns)
        done = Applied()
        pieces = rows.tables(batch, self._clock.now_ns() // 1000)
        for tables, kept, refused in _lots(pieces):
            done += Applied(refused=refused)
            if kept:
                done += self._merge(table, tables, kept)
        self._maintain(batch.schema, table)
        return done

    def _merge(self, table: Delta, rows: pa.Table, deletes: Sequence[bool]) -> Applied:
        """Put rows in; the newer of each key stays."""
        written = table.put(rows, KEY, POS)
        stale = len(deletes) - written
        # Which of the stale ones were deletes is not told: they are taken off the deletes first.
        deleted = max(0, sum(deletes) - stale)
        return Applied(applied=written - deleted, deleted=deleted, stale=stale)

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        return _look_up(self._table(schema), schema, keys)

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        self._table(schema).delete(f"{POS} < '{floor}'")

    def _maintain(self, schema: TableSchema, table: Delta) -> None:
        now = self._clock.monotonic()
        if now - self._purged.setdefault(table.path, now) >= self._every_s:
            self._purged[table.path] = now
            before = datetime.fromtimestamp((self._clock.now_ns() // 1000 - self._remember_us) / 1e6, UTC)
            table.delete(f"{DELETED} and {DELETED_AT} < '{before:%Y-%m-%dT%H:%M:%S.%fZ}'")
        table.tidy()

    def _table(self, schema: TableSchema) -> Delta:
        path = table_path(schema)
        if path not in self._tables:
            self._tables[path] = Delta(self._storage, path, self._clock)
        return self._tables[path]


def _lots(
    pieces: Iterator[tuple[pa.Table, TableBatch, tuple[Refused, ...]]],
) -> Iterator[tuple[pa.Table, list[bool], tuple[Refused, ...]]]:
    """Pieces joined to what one merge takes: columns, which rows are deletes, what was refused."""
    while lot := list(itertools.islice(pieces, _MERGE_ROWS // _SCAN_ROWS)):
        rows = pa.concat_tables([table for table, _, _ in lot])
        deletes: list[Any] = rows[DELETED].to_pylist()
        yield rows, deletes, tuple(itertools.chain.from_iterable(refused for _, _, refused in lot))


class _DeltaSession:
    def show(self) -> None:
        """A commit shows at once."""

    def close(self) -> None:
        """Nothing is open between commits."""


class DeltaNotes:
    """The Delta table ``<root>/_watermark``: a name and a JSON text each."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._table = Delta(storage, "_watermark", clock, versions_kept="1 minutes")

    def read(self) -> Mapping[str, bytes]:
        if not self._table.refresh():
            return {}
        # The file itself, also at a version that was read before: a folder that was put back has such versions, too.
        rows = self._table.dataset().to_table(["name", "text"]).to_pylist()
        return {row["name"]: row["text"].encode() for row in rows}

    def write(self, name: str, text: bytes) -> None:
        self.write_all({name: text})

    def write_all(self, some: Mapping[str, bytes]) -> None:
        """:meth:`write` for several, in one commit."""
        notes = {**self.read(), **some}
        columns = [list(notes), [note.decode() for note in notes.values()]]
        self._table.replace(pa.table(dict(zip(("name", "text"), columns, strict=True))))
        self._table.tidy()


class _DeltaReader:
    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        table = Delta(self._storage, table_path(schema), self._clock)
        if not table.exists():
            return
        rows = WarehouseRows(schema, warehouse_columns(schema))
        for batch in table.dataset().to_batches(batch_size=_SCAN_ROWS, batch_readahead=2, fragment_readahead=1):
            if batch.num_rows:
                yield rows.stored(batch)

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        table = Delta(self._storage, table_path(schema), self._clock)
        return _look_up(table, schema, [key]).get(key) if table.exists() else None

    def close(self) -> None:
        """Nothing is open between scans."""


def _look_up(table: Delta, schema: TableSchema, keys: Sequence[str]) -> dict[str, StoredRow]:
    rows = WarehouseRows(schema, warehouse_columns(schema))
    found: dict[str, StoredRow] = {}
    for start in range(0, len(keys), _LOOKUP):
        wanted = ", ".join(quote_literal(key) for key in keys[start : start + _LOOKUP])
        for row in rows.stored(table.where(f"{KEY} in ({wanted})")).to_pylist():
            found[row["key"]] = StoredRow(key=row["key"], pos=row["pos"], row=row["row"])
    return found
