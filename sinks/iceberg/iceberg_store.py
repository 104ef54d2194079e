"""The warehouse as Iceberg tables: one table per captured table, merged by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc.process.clock import Clock
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire import format as wire
from sinks.contract.batch_plan import TableBatch
from sinks.contract.generations import OpenGeneration
from sinks.contract.port import Applied, CannotCarry, OpenSink, PlaceMissing, StoredRow, rows_at_once
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store import StoreSink
from sinks.contract.store_notes import WATERMARK, Floors, KeptColumns, NotedWatermarks
from sinks.contract.table_places import Places, PlaceStep
from sinks.iceberg.iceberg_catalog import LakeCatalog, LakePlace, table_name
from sinks.iceberg.iceberg_columns import (
    CDC_DELETED,
    CDC_DELETED_AT,
    CDC_KEY,
    CDC_POS,
    OWN_FIELDS,
    iceberg_columns,
    inward,
    lost_column,
    outward,
)
from sinks.iceberg.iceberg_faults import LakeExchanged, LakeRemoved, LakeUnfit
from sinks.iceberg.iceberg_generations import IcebergNotes
from sinks.iceberg.iceberg_table import IcebergTable
from sinks.warehouse.warehouse_columns import WarehouseColumn, one_to_spark, retypes
from sinks.warehouse.warehouse_rows import (
    LOOKUP,
    READ_ROWS,
    SIDE_BY_SIDE,
    UNPACKED,
    Expiry,
    WarehouseRows,
    counted,
    lots,
    odd_rows,
    place_row,
)

if TYPE_CHECKING:
    from sinks.iceberg.iceberg_spark import IcebergSpark


def open_iceberg(spec: SinkSpec, clock: Clock) -> OpenSink:
    """Open a warehouse. Nothing is made before the first table is."""
    place = LakePlace.of(spec)
    catalog = LakeCatalog(place, clock)
    notes = IcebergNotes(catalog)
    tables = _IcebergTables(catalog, notes, spec.replay_window_s, clock)
    session, places = _IcebergSession(catalog), Places(tables, with_rows=True)
    sink = StoreSink(tables, notes, session, places=places, shared=spec.parallel, side_by_side=SIDE_BY_SIDE)
    generation = OpenGeneration(notes, spec.options.get("generation"), shared=False)
    return OpenSink(
        sink=sink,
        watermarks=_IcebergWatermarks(notes),
        reader=_IcebergReader(catalog, clock),
        places=places,
        current=generation.current,
        discards=tables,
        sweep_late=sink.sweep_late,
    )


def lake_table(catalog: LakeCatalog, name: str, clock: Clock) -> IcebergTable:
    """A table of the warehouse, with Spark beside it where it is needed."""

    def spark() -> IcebergSpark:
        from sinks.iceberg.iceberg_spark import iceberg_spark  # noqa: PLC0415 - Spark's client, of use here alone

        return iceberg_spark(catalog.place)

    return IcebergTable(catalog, name, clock, spark)


class _IcebergTables:
    def __init__(self, catalog: LakeCatalog, notes: IcebergNotes, replay_window_s: float, clock: Clock) -> None:
        self._catalog = catalog
        self._notes = notes
        self._kept = KeptColumns(notes)
        self._clock = clock
        self._expiry = Expiry(replay_window_s, clock)
        self._tables: dict[str, IcebergTable] = {}
        self._owners: dict[str, TableName] = {}

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        with _faults(schema):
            self._prepare(schema, older=older)
        if not older:
            self._kept.keep(schema)

    def _prepare(self, schema: TableSchema, *, older: bool) -> None:
        table = self._table(schema)
        wanted = iceberg_columns(schema)
        own = [name for name, _ in OWN_FIELDS]
        _require_no_twins(schema, own, wanted)
        if not table.exists():
            table.create(pa.schema([*((c.name, c.type) for c in wanted), *OWN_FIELDS]))
            return
        table.check()
        self._enforce(schema, table)
        existing = table.types()
        lost = lost_column(existing, wanted, self._kept.of(schema.table))
        if lost:
            raise CannotCarry.because(schema.table, lost)
        _require_no_twins(schema, existing, wanted)
        retyped = {} if older else retypes(schema.table, existing, wanted)
        table.add_columns([(c.name, c.type) for c in wanted if c.name not in existing])
        table.retype(retyped)

    def _enforce(self, schema: TableSchema, table: IcebergTable) -> None:
        """Remove what a killed writer put below a floor that it did not know of: a rebuild, or another process, had
        raised it meanwhile."""
        floor = Floors(self._notes).of(schema.table)
        if floor:
            table.remove_below(floor, looked=True)

    def place(self, schema: TableSchema) -> bytes | None:
        table = self._table(schema)
        with _faults(schema):
            try:
                table.check()
            except LakeRemoved:
                return None
            return table.place()

    def put_places(self, steps: Sequence[PlaceStep]) -> None:
        for step in steps:
            with _faults(step.schema):
                table = self._table(step.schema)
                table.check()
                table.put(outward(place_row(step.after)), step)

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        self._kept.drop(schema.table)
        with _faults(schema):
            table = self._table(schema)
            if empty and table.exists():
                table.empty()

    def write(self, batch: TableBatch) -> Applied:
        with _faults(batch.schema):
            return self._write(batch)

    def _write(self, batch: TableBatch) -> Applied:
        table = self._table(batch.schema)
        table.check()
        types = table.types()
        wanted = iceberg_columns(batch.schema)
        lost = lost_column(types, wanted, [column.source.name for column in wanted])
        if lost:
            raise CannotCarry.because(batch.schema.table, lost)
        columns = [WarehouseColumn(source=c.source, name=c.name, type=types[c.name]) for c in wanted]
        rows = WarehouseRows(batch.schema, columns)
        done, left = Applied(), len(batch)
        for tables, kept, refused in lots(rows.tables(batch, self._clock.now_ns() // 1000)):
            done, left = done + Applied(refused=refused), left - len(kept) - len(refused)
            if kept:
                place = batch.place if not left and not done.refused else None
                some = [tables, *([place_row(place.after)] if place is not None else [])]
                written = table.put(outward(pa.concat_tables(some, promote_options="default")), place)
                done += counted(written - len(some) + 1, kept)
        self._maintain(table)
        return done

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        with _faults(schema):
            table = self._table(schema)
            table.check()
            found: dict[str, StoredRow] = {}
            for start in range(0, len(keys), LOOKUP):
                found |= _rows_of(table.where_keys(keys[start : start + LOOKUP]), schema)
            return found

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        with _faults(schema):
            table = self._table(schema)
            table.check()
            table.remove_below(floor)

    def remove(self, schema: TableSchema, versions: Mapping[str, str]) -> None:
        some = list(versions.items())
        with _faults(schema):
            table = self._table(schema)
            table.check()
            for start in range(0, len(some), LOOKUP):
                lot = dict(some[start : start + LOOKUP])
                table.keep_rows(list(lot), partial(_others, lot))

    def _maintain(self, table: IcebergTable) -> None:
        before = self._expiry.due(table.name)
        if before is not None:
            table.delete_where(f"{CDC_DELETED} and {CDC_DELETED_AT} < timestamp '{before:%Y-%m-%d %H:%M:%S.%f}'")
        table.tidy()

    def _table(self, schema: TableSchema) -> IcebergTable:
        name = table_name(schema.table)
        owner = self._owners.setdefault(name, schema.table)
        if owner != schema.table:
            raise CannotCarry.because(schema.table, f"its Iceberg table {name} is that of {owner}")
        if name not in self._tables:
            self._tables[name] = lake_table(self._catalog, name, self._clock)
        return self._tables[name]


def _require_no_twins(schema: TableSchema, existing: Collection[str], wanted: Sequence[WarehouseColumn]) -> None:
    twins = one_to_spark(existing, wanted)
    if twins:
        raise CannotCarry.because(schema.table, twins)


def _others(versions: Mapping[str, str], found: pa.Table) -> list[bool]:
    """Whether each row is of none of these versions. An empty position stands for several rows under one key, too."""
    keys = [key or "" for key in found[CDC_KEY].to_pylist()]
    pos = [pos or "" for pos in found[CDC_POS].to_pylist()]
    counted = Counter(keys)

    def goes(key: str, at: str) -> bool:
        return key in versions and (versions[key] == at or (not versions[key] and counted[key] > 1))

    return [not goes(key, at) for key, at in zip(keys, pos, strict=True)]


class _IcebergSession:
    def __init__(self, catalog: LakeCatalog) -> None:
        self._catalog = catalog

    def show(self) -> None:
        """A commit shows at once."""

    def close(self) -> None:
        self._catalog.close()


class _IcebergWatermarks(NotedWatermarks):
    """The watermark, written upon the notes that were read."""

    def __init__(self, notes: IcebergNotes) -> None:
        super().__init__(notes)
        self._own = notes

    def write(self, watermark: Watermark) -> None:
        # On what was found when the store's place was checked: cdc rebuild may have written since.
        self._own.write_upon({WATERMARK: watermark.to_json()})


@contextmanager
def _faults(schema: TableSchema) -> Iterator[None]:
    """The fault of a captured table, from the error of its Iceberg table."""
    try:
        yield
    except LakeExchanged as error:
        raise PlaceMissing.moved(schema.table) from error
    except LakeRemoved as error:
        raise PlaceMissing.of(schema.table, "its Iceberg table") from error
    except LakeUnfit as error:
        raise CannotCarry.because(schema.table, error.why) from None


class _IcebergReader:
    def __init__(self, catalog: LakeCatalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        table = lake_table(self._catalog, table_name(schema.table), self._clock)
        if not table.exists():
            return
        rows = WarehouseRows(schema, iceberg_columns(schema))
        with _faults(schema):
            most = rows_at_once(UNPACKED * table.row_bytes(), READ_ROWS)
            for batch in table.batches(most):
                if batch.num_rows:
                    yield _stored(rows, pa.Table.from_batches([batch]), schema)

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        return self.get_many(schema, [key]).get(key)

    def get_many(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        table = lake_table(self._catalog, table_name(schema.table), self._clock)
        if not keys or not table.exists():
            return {}
        with _faults(schema):
            found = table.where_keys(keys)
            return _rows_of(found, schema) | odd_rows(found, CDC_KEY, CDC_DELETED)

    def close(self) -> None:
        self._catalog.close()


def _rows_of(found: pa.Table, schema: TableSchema) -> dict[str, StoredRow]:
    """Rows of the table by their keys."""
    rows = _stored(WarehouseRows(schema, iceberg_columns(schema)), found, schema).to_pylist()
    return {row["key"]: StoredRow(key=row["key"], pos=row[wire.POS], row=row["row"]) for row in rows}


def _stored(rows: WarehouseRows, found: pa.Table, schema: TableSchema) -> pa.RecordBatch:
    """Columns as stored rows. CannotCarry when somebody removed one of ours."""
    lost = lost_column(found.schema.names, (), ())
    if lost:
        raise CannotCarry.because(schema.table, lost)
    return rows.stored(inward(found))
