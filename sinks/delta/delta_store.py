"""The warehouse as Delta tables, written by delta-rs without a JVM: one table per captured table, merged by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError
from cdc.process.sql_files import quote_literal
from cdc.record.documents import dumped, reading
from cdc.record.schema import TableSchema
from cdc.wire import format as wire
from sinks.contract.batch_plan import TableBatch
from sinks.contract.generations import OpenGeneration
from sinks.contract.port import Applied, CannotCarry, OpenSink, PlaceMissing, StoreAway, StoredRow, rows_at_once
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store import StoreSink
from sinks.contract.store_notes import Floors, KeptColumns, Notes
from sinks.contract.table_places import Places, PlaceStep
from sinks.delta.delta_generations import DeltaNotes, DeltaWatermarks
from sinks.delta.delta_kind import EMBEDDED, ENGINE, SPARK
from sinks.delta.delta_partitions import partition_of, require_same
from sinks.delta.delta_storage import Exchanged, Removed, Storage, Unfit, table_path
from sinks.delta.delta_table import FILE_BYTES, Delta
from sinks.warehouse.warehouse_columns import (
    DELETED,
    DELETED_AT,
    EXACT,
    KEY,
    POS,
    TIMESTAMPTZ,
    WarehouseColumn,
    one_to_spark,
    removed,
    retypes,
    warehouse_columns,
)
from sinks.warehouse.warehouse_rows import (
    EXACT_TYPE,
    LOOKUP,
    READ_ROWS,
    SIDE_BY_SIDE,
    UNPACKED,
    Expiry,
    WarehouseRows,
    counted,
    lots,
    odd_rows,
)

if TYPE_CHECKING:
    from sinks.warehouse.warehouse_spark import WarehouseSpark


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
    places = Places(tables, with_rows=True)
    sink = StoreSink(tables, notes, _DeltaSession(), places=places, shared=spec.parallel, side_by_side=SIDE_BY_SIDE)
    return OpenSink(
        sink=sink,
        watermarks=DeltaWatermarks(notes, engine.unnoted),
        reader=_DeltaReader(storage, clock),
        places=places,
        current=OpenGeneration(notes, None, shared=False).current,
        discards=tables,
        sweep_late=sink.sweep_late,
    )


class _DeltaTables:
    def __init__(
        self, storage: Storage, notes: Notes, engine: DeltaEngine, replay_window_s: float, clock: Clock
    ) -> None:
        self._storage = storage
        self._notes = notes
        self._kept = KeptColumns(notes)
        self._clock = clock
        self._expiry = Expiry(replay_window_s, clock)
        self._tables: dict[str, Delta] = {}
        self.engine = engine

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        with _faults(schema):
            self._prepare(schema, older=older)
        if not older:
            self._kept.keep(schema)

    def _prepare(self, schema: TableSchema, *, older: bool) -> None:
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
            return
        self.engine.make_ready(table, schema)
        require_same(schema, by, table.partitions)
        self._enforce(schema, table)
        existing = table.types()
        lost = removed(existing, wanted, self._kept.of(schema.table))
        if lost:
            raise CannotCarry.because(schema.table, lost)
        retyped = {} if older else retypes(schema.table, existing, wanted)
        table.add_columns([(c.name, c.type) for c in wanted if c.name not in existing])
        table.leave_out_bounds()
        table.retype(retyped)

    def _enforce(self, schema: TableSchema, table: Delta) -> None:
        """Remove what a killed writer put below a floor that it did not know of: a rebuild, or another process, had
        raised it meanwhile."""
        floor = Floors(self._notes).of(schema.table)
        if floor:
            table.delete(f"{POS} < '{floor}'")

    def place(self, schema: TableSchema) -> bytes | None:
        with _faults(schema):
            table = self._table(schema)
            try:
                table.check()
            except Removed:
                return None
            return table.place() if table.exists() else None

    def put_places(self, steps: Sequence[PlaceStep]) -> None:
        for step in steps:
            with _faults(step.schema):
                self._table(step.schema).put(None, KEY, POS, step)

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        self._kept.drop(schema.table)
        with _faults(schema):
            table = self._table(schema)
            if empty and table.exists():
                table.delete()

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
        done, left = Applied(), len(batch)
        pieces = rows.tables(batch, self._clock.now_ns() // 1000)
        for tables, kept, refused in lots(pieces):
            done, left = done + Applied(refused=refused), left - len(kept) - len(refused)
            if kept:
                place = batch.place if not left and not done.refused else None
                done += counted(table.put(tables, KEY, POS, place), kept)
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
            self._tables[path].least_bytes = FILE_BYTES // 2 if schema.history else 0
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
    except Exchanged as error:
        raise PlaceMissing.moved(schema.table) from error
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


class DeltaEngine:
    """The engine of one warehouse, by its settings and by its notes."""

    def __init__(self, storage: Storage, notes: DeltaNotes, clock: Clock) -> None:
        self._storage = storage
        self._notes = notes
        self._clock = clock
        self._agreed = False

    def table(self, path: str) -> Delta:
        """A table of the warehouse, as this engine writes it."""
        if self._storage.engine != SPARK:
            return Delta(self._storage, path, self._clock)
        from sinks.delta.spark_delta import SparkDelta  # noqa: PLC0415 - Spark's client, of use here alone

        return SparkDelta(self._storage, path, self._clock, self._spark)

    @cached_property
    def _spark(self) -> WarehouseSpark:
        from sinks.delta.spark_delta import delta_spark  # noqa: PLC0415 - as above

        return delta_spark()

    def require(self) -> None:
        """ConfigError where another engine began the warehouse. An empty one is this engine's from here on."""
        if not self._agreed:
            unnoted = self.unnoted(self._notes.read())
            if unnoted:
                self._notes.write_all(unnoted)
            self._agreed = True

    def unnoted(self, notes: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """The note of the engine that these notes lack: nothing where they name it. ConfigError as
        :meth:`require`.

        A watermark may be committed before a table has a row. Without the engine beside it the warehouse would be the
        embedded engine's.
        """
        # A floor is noted before its table has a place.
        used = any(not name.startswith("floor:") for name in notes)
        began = engine_in(notes[ENGINE]) if ENGINE in notes else EMBEDDED if used else self._storage.engine
        if began != self._storage.engine:
            raise ConfigError(
                f'the warehouse {self._storage.root} is written by engine = "{began}", and the settings name '
                f'"{self._storage.engine}"',
                hint=f'cdc rebuild makes it anew by the other engine; or set engine = "{began}" again',
            )
        return {ENGINE: dumped(began)} if ENGINE not in notes and began == SPARK else {}

    def require_columns(
        self, schema: TableSchema, existing: Callable[[], Collection[str]], wanted: Sequence[WarehouseColumn]
    ) -> None:
        """CannotCarry for a table of which Spark would write one column into another: it reads names that differ in
        case alone as one."""
        twins = one_to_spark(existing(), wanted) if self._storage.engine == SPARK else ""
        if twins:
            raise CannotCarry.because(schema.table, twins)

    def make_ready(self, table: Delta, schema: TableSchema) -> None:
        """Let Spark make deletion vectors in a table of its own. CannotCarry for another one that asks for them."""
        if self._storage.engine == SPARK:
            table.set_vectors(wanted=True)
        elif table.vectored and table.writes_vectors:
            why = 'its Delta table has deletion vectors, which a warehouse of engine = "spark" alone has'
            raise CannotCarry.because(schema.table, why)


def engine_in(note: bytes) -> str:
    """The engine that a note names."""
    with reading("the engine that the warehouse has noted"):
        return str(orjson.loads(note))
