"""The warehouse as Delta tables, written by delta-rs without a JVM: one table per captured table, merged by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.schema import TableSchema
from cdc.sql import quote_literal
from cdc.wire import format as wire
from sinks.batch_plan import TableBatch
from sinks.delta.delta_engine import DeltaEngine
from sinks.delta.delta_faults import Removed, Unfit
from sinks.delta.delta_notes import DeltaNotes, DeltaWatermarks, NotedVersions, is_older_copy
from sinks.delta.delta_partitions import partition_of, require_same
from sinks.delta.delta_storage import Storage
from sinks.delta.delta_table import Delta
from sinks.generations import OpenGeneration
from sinks.names import folder
from sinks.notes import Floors, KeptColumns, NotedWatermarks, Notes, TableIds
from sinks.port import (
    Applied,
    CannotCarry,
    OpenSink,
    PlaceMissing,
    StoreAway,
    StoredRow,
    rows_at_once,
)
from sinks.registry import SinkSpec
from sinks.store import StoreSink
from sinks.warehouse.warehouse_columns import (
    DELETED,
    DELETED_AT,
    EXACT,
    KEY,
    POS,
    TIMESTAMPTZ,
    WarehouseColumn,
    removed,
    retypes,
    warehouse_columns,
)
from sinks.warehouse.warehouse_merges import LOOKUP, READ_ROWS, SIDE_BY_SIDE, UNPACKED, Expiry, counted, lots, odd_rows
from sinks.warehouse.warehouse_rows import EXACT_TYPE, WarehouseRows

declare("delta_emptied")

_OWN_FIELDS: list[tuple[str, pa.DataType]] = [
    (KEY, pa.string()),
    (POS, pa.string()),
    (DELETED, pa.bool_()),
    (DELETED_AT, TIMESTAMPTZ),
    (EXACT, EXACT_TYPE),
]


def open_delta(spec: SinkSpec, clock: Clock) -> OpenSink:
    """Open a warehouse. The folder is made when the first table is."""
    storage = Storage.of(spec)
    notes = DeltaNotes(storage, clock)
    engine = DeltaEngine(storage, notes, clock)
    tables = _DeltaTables(storage, notes, engine, spec.replay_window_s, clock)
    sink = StoreSink(
        tables, notes, _DeltaSession(), shared=spec.parallel, missing=tables.missing, side_by_side=SIDE_BY_SIDE
    )
    place = OpenGeneration(notes, None, shared=False)
    reader = _DeltaReader(storage, clock)
    return OpenSink(
        sink=sink,
        watermarks=DeltaWatermarks(notes, tables, engine.unnoted),
        reader=reader,
        current=place.current,
        discards=tables,
        sweep_late=sink.sweep_late,
    )


def table_path(schema: TableSchema) -> str:
    """A table's folder below the warehouse's root."""
    return f"{folder(schema.table.schema)}/{folder(schema.table.table)}"


class _DeltaTables:
    def __init__(
        self, storage: Storage, notes: Notes, engine: DeltaEngine, replay_window_s: float, clock: Clock
    ) -> None:
        self._storage = storage
        self._notes = notes
        self._kept = KeptColumns(notes)
        self._marks = NotedWatermarks(notes)
        self._ids = TableIds(notes)
        self._noted: NotedVersions | None = None
        self._sound: set[str] = set()
        self._clock = clock
        self._expiry = Expiry(replay_window_s, clock)
        self._tables: dict[str, Delta] = {}
        self.engine = engine

    def missing(self, schema: TableSchema) -> bool:
        """Whether there is no such table."""
        with _faults(schema):
            return not self._table(schema).exists()

    def prepare(self, schema: TableSchema, *, older: bool) -> bool:
        with _faults(schema):
            made = self._prepare(schema, older=older)
        if not older:
            self._kept.keep(schema)
        return made

    def _prepare(self, schema: TableSchema, *, older: bool) -> bool:
        table = self._table(schema)
        wanted = warehouse_columns(schema)
        self.engine.require()
        by = partition_of(self._storage.partition_by, schema, wanted)
        there = table.exists()
        self.engine.require_columns(schema, lambda: table.types() if there else (), wanted)
        if not there:
            fields = [*((c.name, c.type) for c in wanted), *_OWN_FIELDS, *([by] if by else [])]
            table.create(pa.schema(fields), [by.column] if by else ())
            self.engine.make_ready(table, schema)
            self._is_sound(schema)
            return True
        self.engine.make_ready(table, schema)
        require_same(schema, by, table.partitions)
        lost_rows = self._is_older_copy(schema)
        if lost_rows:
            # The log has every row that the table lacks, but perhaps no delete of a row too many: start from empty.
            # Until nothing is claimed any more it stays noted, whatever its version becomes.
            self._ids.unknown(schema.table)
            table.begin_anew()
            crash_point("delta_emptied")
            self._marks.forget_table(schema.topic)
        elif table_path(schema) not in self._sound and table.version > self._noted_version(schema):
            self._enforce(schema)
        self._is_sound(schema)
        existing = table.types()
        lost = removed(existing, wanted, () if lost_rows else self._kept.of(schema.table))
        if lost:
            raise CannotCarry.because(schema.table, lost)
        retyped = {} if older else retypes(schema.table, existing, wanted)
        table.add_columns([(c.name, c.type) for c in wanted if c.name not in existing])
        table.leave_out_bounds()
        table.retype(retyped)
        return lost_rows

    def _is_older_copy(self, schema: TableSchema) -> bool:
        """Whether the table is older than the one that was noted with the last watermark."""
        if table_path(schema) in self._sound:
            return False  # what it is from there on is known by itself
        return is_older_copy(self._table(schema), schema, self._noted_versions(), self._ids, table_path(schema))

    def _noted_version(self, schema: TableSchema) -> int:
        return self._noted_versions().of(table_path(schema))

    def _noted_versions(self) -> NotedVersions:
        if self._noted is None:
            self._noted = NotedVersions(self._notes)
        return self._noted

    def _enforce(self, schema: TableSchema) -> None:
        """Remove what a killed writer put below a floor that it did not know of, before it came to its watermark:
        a rebuild, or another process, had raised it meanwhile."""
        floor = Floors(self._notes).of(schema.table)
        if floor:
            self._table(schema).delete(f"{POS} < '{floor}'")

    def _is_sound(self, schema: TableSchema) -> None:
        """The table holds what the watermark claims, and may be spoken of with it."""
        self._ids.keep(schema.table, self._table(schema).identity())
        self._sound.add(table_path(schema))

    def versions(self) -> dict[str, int]:
        """Path -> version of the tables that were used, and are not older than what was noted of them."""
        known = {path: self._tables[path].version for path in self._sound}
        return {path: version for path, version in known.items() if version >= 0}

    def commits(self) -> dict[str, tuple[int, str]]:
        """Path -> that version, and its commit where that is known."""
        known = {path: (version, self._tables[path].commit(version)) for path, version in self.versions().items()}
        return {path: one for path, one in known.items() if one[1]}

    def check(self) -> None:
        """PlaceMissing when a table that was used is gone, or an older copy of it is in its place."""
        for table in self._tables.values():
            if table.local:
                table.check()

    def write(self, batch: TableBatch) -> Applied:
        with _faults(batch.schema):
            return self._write(batch)

    def _write(self, batch: TableBatch) -> Applied:
        table = self._table(batch.schema)
        types = table.types()
        wanted = warehouse_columns(batch.schema)
        lost = removed(types, wanted, [column.source.name for column in wanted])
        if lost:
            raise CannotCarry.because(batch.schema.table, lost)
        columns = [WarehouseColumn(source=c.source, name=c.name, type=types[c.name]) for c in wanted]
        rows = WarehouseRows(batch.schema, columns)
        done = Applied()
        pieces = rows.tables(batch, self._clock.now_ns() // 1000)
        for tables, kept, refused in lots(pieces):
            done += Applied(refused=refused)
            if kept:
                done += counted(table.put(tables, KEY, POS), kept)
        self._maintain(table)
        return done

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        with _faults(schema):
            table = self._table(schema)
            table.check()
            return _look_up(table, schema, keys)

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        with _faults(schema):
            table = self._table(schema)
            table.check()
            table.delete(f"{POS} < '{floor}'")

    def remove(self, schema: TableSchema, versions: Mapping[str, str]) -> None:
        """:meth:`sinks.port.Discards.remove`."""
        some = list(versions.items())
        with _faults(schema):
            table = self._table(schema)
            for start in range(0, len(some), LOOKUP):
                lot = dict(some[start : start + LOOKUP])
                # An empty position stands for several rows under one key, too: none of them is ours.
                several = _several(table, [key for key, pos in lot.items() if not pos])
                ended = [f"{KEY} = {quote_literal(key)}" for key in several]
                table.delete(" or ".join([*ended, *(_is_version(key, pos) for key, pos in lot.items())]))

    def _maintain(self, table: Delta) -> None:
        before = self._expiry.due(table.path)
        if before is not None:
            table.delete(f"{DELETED} and {DELETED_AT} < '{before:%Y-%m-%dT%H:%M:%S.%fZ}'")
        table.tidy()

    def _table(self, schema: TableSchema) -> Delta:
        path = table_path(schema)
        if path not in self._tables:
            self._tables[path] = self.engine.table(path)
        return self._tables[path]


class _DeltaSession:
    def show(self) -> None:
        """A commit shows at once."""

    def close(self) -> None:
        """Nothing is open between commits."""


@contextmanager
def _faults(schema: TableSchema) -> Iterator[None]:
    """The fault of a captured table, from the error of its Delta table."""
    try:
        yield
    except Removed as error:
        raise PlaceMissing.of(schema.table, "its Delta table") from error
    except Unfit as error:
        raise CannotCarry.because(schema.table, error.why) from None
    except OSError as error:
        why = f"a file of the Delta table of {schema.table} went away while it was read: {type(error).__name__}"
        raise StoreAway(why, hint="was it vacuumed meanwhile? Read it again") from None


class _DeltaReader:
    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        table = Delta(self._storage, table_path(schema), self._clock)
        if not table.exists():
            return
        rows = WarehouseRows(schema, warehouse_columns(schema))
        with _faults(schema):
            most = rows_at_once(UNPACKED * table.row_bytes(), READ_ROWS)
            for batch in table.batches(most):
                if batch.num_rows:
                    yield _stored(rows, batch, schema)

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        return self.get_many(schema, [key]).get(key)

    def get_many(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        """:meth:`get` for many keys. Those that hold nothing are left out."""
        table = Delta(self._storage, table_path(schema), self._clock)
        if not keys or not table.exists():
            return {}
        with _faults(schema):
            found = table.where(f"{KEY} in ({', '.join(map(quote_literal, keys))})")
            return _rows_of(found, schema) | odd_rows(found, KEY, DELETED)

    def close(self) -> None:
        """Nothing is open between scans."""


def _several(table: Delta, keys: Sequence[str]) -> list[str]:
    """Of some keys those with more than one row: nothing but another writer makes them."""
    if not keys:
        return []
    wanted = ", ".join(quote_literal(key) for key in keys)
    counted = Counter(table.where(f"{KEY} in ({wanted})")[KEY].to_pylist())
    return [key for key, count in counted.items() if key is not None and count > 1]


def _is_version(key: str, pos: str) -> str:
    return f"(coalesce({KEY}, '') = {quote_literal(key)} and coalesce({POS}, '') = {quote_literal(pos)})"


def _look_up(table: Delta, schema: TableSchema, keys: Sequence[str]) -> dict[str, StoredRow]:
    found: dict[str, StoredRow] = {}
    for start in range(0, len(keys), LOOKUP):
        wanted = ", ".join(quote_literal(key) for key in keys[start : start + LOOKUP])
        found |= _rows_of(table.where(f"{KEY} in ({wanted})"), schema)
    return found


def _rows_of(found: pa.Table, schema: TableSchema) -> dict[str, StoredRow]:
    """Rows of the table by their keys."""
    rows = _stored(WarehouseRows(schema, warehouse_columns(schema)), found, schema).to_pylist()
    return {row["key"]: StoredRow(key=row["key"], pos=row[wire.POS], row=row["row"]) for row in rows}


def _stored(rows: WarehouseRows, found: pa.Table | pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Columns as stored rows. CannotCarry when somebody removed one of ours."""
    lost = [name for name in (KEY, POS, DELETED, EXACT) if name not in found.schema.names]
    if lost:
        raise CannotCarry.because(schema.table, f"column {lost[0]} was removed from the table in the store")
    return rows.stored(found)
