"""The warehouse in any database that SQLAlchemy speaks: staged rows, put in where newer, with the watermark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc

from cdc.process.clock import Clock
from cdc.record.schema import TableSchema
from cdc.wire import format as wire
from sinks.contract.batch_plan import TableBatch
from sinks.contract.generations import OpenGeneration
from sinks.contract.port import Applied, CannotCarry, OpenSink, PlaceMissing, StoredRow
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store import StoreSink
from sinks.contract.store_notes import WATERMARK, KeptColumns, NotedWatermarks
from sinks.contract.table_places import NEWEST, PLACE, Places, PlaceStep
from sinks.sql.sql_client import Fault, Rejected, SqlClient, fault_of, kind_of
from sinks.sql.sql_natives import SqlColumn, StoredColumns
from sinks.sql.sql_rows import Put, StoredTable, for_sql, key_name, looked_up, scanned, writer
from sinks.sql.sql_tables import SqlTables, make_schema, place_text, tables_of, unless_done
from sinks.sql.sql_views import look_at_labels, widen_labels
from sinks.warehouse.warehouse_columns import DELETED, DELETED_AT, EXACT, KEY, POS
from sinks.warehouse.warehouse_rows import WarehouseRows

_LOOKUP = 500
Shape = tuple[list[SqlColumn], sa.Table]
_PROBES = 8


def open_sql(spec: SinkSpec, clock: Clock) -> OpenSink:
    """Connect. SinkError when the database does not answer or refuses the login."""
    client = SqlClient(spec.text("url"), spec.secrets.get("password"), clock)
    tables = tables_of(client.engine, spec)
    notes = SqlNotes(client, spec.prefix, spec.optional("db_schema"))
    store = _SqlStore(client, tables, KeptColumns(notes), clock, generic=bool(spec.options.get("generic")))
    session = _SqlSession(client, store, spec.replay_window_s, clock)
    places = Places(store)
    # A floor may be rolled back with the rows that came with it: its note is read again, not remembered.
    sink = StoreSink(store, notes, session, places=places, shared=True)
    return OpenSink(
        sink=sink,
        watermarks=NotedWatermarks(notes),
        reader=_SqlReader(client, tables),
        places=places,
        transactional=True,
        current=OpenGeneration(notes, None, shared=False).current,
        discards=store,
    )


class _SqlStore:
    def __init__(
        self,
        client: SqlClient,
        tables: SqlTables,
        kept: KeptColumns,
        clock: Clock,
        *,
        generic: bool,
    ) -> None:
        self._client = client
        self._kept = kept
        self._tables = tables
        self._clock = clock
        self._put = writer(tables, client.engine.dialect.driver, generic=generic)
        self._shapes: dict[tuple[str, int], Shape] = {}

    @property
    def tables(self) -> Mapping[str, sa.Table]:
        """The tables that were written to, by name."""
        return {table.fullname: table for _, table in self._shapes.values()}

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        self._shapes.clear()
        kept = self._kept.of(schema.table)

        def prepare(connection: sa.Connection) -> CannotCarry | None:
            try:
                self._tables.prepare(connection, schema, kept, older=older)
            except CannotCarry as refusal:
                # Not raised here: the client would give up the connection, and what it had not committed.
                return refusal
            return None

        with _faults(schema):
            refused = self._client.write(prepare)
            self._client.commit()
        if refused is not None:
            raise refused
        if not older:
            self._kept.keep(schema)
            self._client.commit()

    def write(self, batch: TableBatch) -> Applied:
        with _faults(batch.schema):
            return self._write(batch)

    def _write(self, batch: TableBatch) -> Applied:
        columns, table = self._shape(batch.schema)
        done = Applied()
        now_us = self._clock.now_ns() // 1000
        made = WarehouseRows(batch.schema, columns, finite=self._tables.dialect != "postgresql")
        for rows, kept, refused in made.tables(batch, now_us):
            done += Applied(refused=refused)
            if len(kept):
                done += self._insert(table, for_sql(rows, table), kept)
        return done

    def _shape(self, schema: TableSchema) -> Shape:
        shape = (schema.topic, schema.version)
        if shape not in self._shapes:
            self._shapes[shape] = self._client.read(lambda connection: _shape(self._tables, connection, schema))
        return self._shapes[shape]

    def _try(self, table: sa.Table, rows: pa.Table) -> int | str:
        return self._client.write(lambda connection: _in_savepoint(connection, self._put, table, rows))

    def _probe(self, schema: TableSchema, table: sa.Table, rows: pa.Table) -> None:
        """Try some rows of a batch that was refused. CannotCarry when none is taken: the fault is the table's."""
        step = rows.num_rows // _PROBES
        for number in range(_PROBES):
            answer = self._try(table, rows.slice(number * step, 1))
            if not isinstance(answer, str):
                return
        raise CannotCarry.because(schema.table, f"the database takes none of its rows: {answer}")

    def _insert(self, table: sa.Table, rows: pa.Table, batch: TableBatch, *, whole: bool = True) -> Applied:
        """Put rows in. Where the database refuses them, halve until it is one row that is refused."""
        written = self._try(table, rows)
        if isinstance(written, str):
            if len(batch) == 1:
                return Applied(refused=batch.refused({0: written}))
            if whole and len(batch) >= 2 * _PROBES:
                self._probe(batch.schema, table, rows)
            half = len(batch) // 2
            first = self._insert(table, rows.slice(0, half), batch.piece(0, half), whole=False)
            return first + self._insert(table, rows.slice(half), batch.piece(half, len(batch)), whole=False)
        stale = len(batch) - written
        # The database does not report which stale ones were deletes, so they are subtracted from the deletes first.
        deleted = max(0, batch.rows.count(None) - stale)
        return Applied(applied=written - deleted, deleted=deleted, stale=stale)

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        with _faults(schema):
            return _look_up(self._client, self._tables, schema, keys)

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        def remove(connection: sa.Connection) -> None:
            table = self._tables.table(schema, self._tables.columns(schema))
            connection.execute(sa.delete(table).where(table.c[POS] < floor))

        with _faults(schema):
            self._client.write(remove)

    def place(self, schema: TableSchema) -> bytes | None:
        with _faults(schema):
            return self._client.read(lambda connection: self._tables.place(connection, schema))

    def put_places(self, steps: Sequence[PlaceStep]) -> None:
        """In the transaction that has the rows: whoever takes the table away waits for its end, or came before."""
        for step in steps:
            with _faults(step.schema):
                self._client.write(partial(self._put_place, step))

    def _put_place(self, step: PlaceStep, connection: sa.Connection) -> None:
        table = self._tables.table(step.schema, ())
        there = sa.update(table).where(table.c[KEY] == PLACE, table.c[EXACT].in_(map(place_text, step.fit)))
        if connection.execute(there.values({EXACT: place_text(step.after)})).rowcount:
            return
        if None not in step.upon or self._tables.place(connection, step.schema) is not None:
            raise PlaceMissing.moved(step.schema.table)
        own = {KEY: PLACE, POS: NEWEST, DELETED: True, EXACT: place_text(step.after)}
        connection.execute(sa.insert(table).values(own))

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        def remove(connection: sa.Connection) -> None:
            if self._tables.is_there(connection, schema):
                connection.execute(sa.delete(self._tables.table(schema, ())))

        self._kept.drop(schema.table)
        with _faults(schema):
            if empty:
                self._client.write(remove)
            self._client.commit()

    def remove(self, schema: TableSchema, versions: Mapping[str, str]) -> None:

        def remove(connection: sa.Connection) -> None:
            table = self._tables.table(schema, self._tables.columns(schema))
            named = sa.func.coalesce(key_name(connection, table.c[KEY]), "")
            for key, pos in versions.items():
                at = sa.func.coalesce(sa.cast(table.c[POS], sa.Text), "") == pos
                connection.execute(sa.delete(table).where(named == key, at))

        with _faults(schema):
            self._client.write(remove)
            self._client.commit()


class _SqlSession:
    """Commits, and forgets deletes that are old enough."""

    def __init__(self, client: SqlClient, store: _SqlStore, replay_window_s: float, clock: Clock) -> None:
        self._client = client
        self._store = store
        self._clock = clock
        self._remember_us = int(replay_window_s * 1e6)
        self._every_s = min(3600.0, replay_window_s)
        self._purged = clock.monotonic()

    def show(self) -> None:
        self._client.commit()
        if self._clock.monotonic() - self._purged < self._every_s:
            return
        self._purged = self._clock.monotonic()
        before = self._clock.now_ns() // 1000 - self._remember_us
        self._client.write(lambda connection: _forget(connection, self._store.tables.values(), before))
        self._client.commit()

    def close(self) -> None:
        self._client.close()


class SqlNotes:
    """The table ``_cdc_watermark``: a name (with the sink's prefix) and a JSON text each. Implements
    :class:`sinks.contract.store_notes.Notes`."""

    def __init__(self, client: SqlClient, prefix: str, db_schema: str | None) -> None:
        self._client = client
        self._prefix = f"{prefix}:"
        name = sa.String(300).with_variant(sa.Text(), "postgresql")
        columns = [sa.Column("name", name, primary_key=True), sa.Column("value", sa.Text(), nullable=False)]
        self._table = sa.Table("_cdc_watermark", sa.MetaData(schema=db_schema), *columns)

    def read(self) -> Mapping[str, bytes]:
        return self._client.read(self.stored)

    def write(self, name: str, text: bytes) -> None:
        self._client.write(lambda connection: self.put(connection, name, text))
        if name == WATERMARK:
            # With it commits what was applied: the offsets stand with their data.
            self._client.commit()

    def stored(self, connection: sa.Connection) -> dict[str, bytes]:
        """:meth:`read`, in a transaction that is open."""
        # Asked each time: a table that was made goes too when the transaction is rolled back.
        if not sa.inspect(connection).has_table(self._table.name, schema=self._table.schema):
            return {}
        mine = self._table.c.name.startswith(self._prefix, autoescape=True)
        rows = connection.execute(sa.select(self._table).where(mine))
        return {row.name.removeprefix(self._prefix): row.value.encode() for row in rows}

    def put(self, connection: sa.Connection, note: str, text: bytes) -> None:
        """:meth:`write`, in a transaction that is open."""
        name = f"{self._prefix}{note}"
        if not self._is_there(connection):
            # Another sink of the database may begin at the same time, and have made it meanwhile.
            unless_done(connection, self._make, self._is_there)
        if not self._update(connection, name, text):
            row = sa.insert(self._table).values(name=name, value=text.decode())
            unless_done(connection, lambda c: c.execute(row), lambda c: self._update(c, name, text))

    def _make(self, connection: sa.Connection) -> None:
        make_schema(connection, self._table.schema)
        self._table.create(connection, checkfirst=True)

    def _is_there(self, connection: sa.Connection) -> bool:
        return sa.inspect(connection).has_table(self._table.name, schema=self._table.schema)

    def _update(self, connection: sa.Connection, name: str, text: bytes) -> bool:
        there = sa.update(self._table).where(self._table.c.name == name).values(value=text.decode())
        return connection.execute(there).rowcount > 0

    def remove(self, connection: sa.Connection, note: str) -> None:
        """Remove a note, in a transaction that is open."""
        connection.execute(sa.delete(self._table).where(self._table.c.name == f"{self._prefix}{note}"))


class _SqlReader:
    def __init__(self, client: SqlClient, tables: SqlTables) -> None:
        self._client = client
        self._tables = tables

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        with _faults(schema), self._client.reading(), self._client.engine.connect() as connection:
            # On a connection of its own: it may take long, and the sink may write meanwhile.
            existing = self._tables.stored_types(connection, schema)
            if existing is None:
                return
            columns, table = _stored_shape(self._tables, schema, existing)
            yield from scanned(connection, StoredTable(table, columns, WarehouseRows(schema, columns)))

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        return self.get_many(schema, [key]).get(key)

    def get_many(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        with _faults(schema):
            there = self._client.read(lambda connection: self._tables.stored_types(connection, schema)) is not None
            return _look_up(self._client, self._tables, schema, keys) if there else {}

    def close(self) -> None:
        """The sink closes what both use."""


def _in_savepoint(connection: sa.Connection, put: Put, table: sa.Table, rows: pa.Table) -> int | str:
    """How many rows were written, or why the database refuses some of them: then none was."""
    try:
        with connection.begin_nested():
            widen_labels(connection, table, rows)
            return put(connection, table, rows)
    except exc.StatementError as error:
        if fault_of(error) is not Fault.RECORD:
            raise
        return f"the database refuses it: {kind_of(error)}"


@contextmanager
def _faults(schema: TableSchema) -> Iterator[None]:
    """The fault of a table, from the database's error."""
    try:
        yield
    except Rejected as error:
        if error.fault is Fault.MISSING:
            raise PlaceMissing.of(schema.table, "its table") from None
        why = f"the database does not take its rows: {error.kind}"
        raise CannotCarry.because(schema.table, why, hint=error.hint) from None


def _shape(tables: SqlTables, connection: sa.Connection, schema: TableSchema) -> Shape:
    """A shape's columns, typed as the table holds them, and the table with the columns of other shapes."""
    existing = tables.stored_types(connection, schema)
    columns = tables.columns(schema, existing)
    return columns, look_at_labels(connection, tables.table(schema, columns, existing))


def _stored_shape(tables: SqlTables, schema: TableSchema, existing: StoredColumns) -> Shape:
    """For reading: the columns that the table has, of those of a shape."""
    columns = [column for column in tables.columns(schema, existing) if column.name in existing]
    return columns, tables.table(schema, columns, existing)


def _look_up(client: SqlClient, tables: SqlTables, schema: TableSchema, keys: Sequence[str]) -> dict[str, StoredRow]:
    def look(connection: sa.Connection) -> dict[str, StoredRow]:
        columns, table = _stored_shape(tables, schema, tables.stored_types(connection, schema) or StoredColumns())
        stored = StoredTable(table, columns, WarehouseRows(schema, columns))
        found: dict[str, StoredRow] = {}
        for start in range(0, len(keys), _LOOKUP):
            for batch in looked_up(connection, stored, keys[start : start + _LOOKUP]):
                for row in batch.to_pylist():
                    found[row["key"]] = StoredRow(key=row["key"], pos=row[wire.POS], row=row["row"])
        return found

    return client.read(look)


def _forget(connection: sa.Connection, tables: Iterable[sa.Table], before_us: int) -> None:
    """Forget deletes that were written before a moment."""
    moment = datetime.fromtimestamp(before_us / 1e6, UTC)
    for table in tables:
        column = table.c[DELETED_AT]
        limit: Any = f"{moment:%Y-%m-%d %H:%M:%S.%f}Z" if isinstance(column.type, sa.Text) else moment
        connection.execute(sa.delete(table).where(table.c[DELETED], column < limit))
