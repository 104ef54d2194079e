"""Generations of a SQL warehouse: filled in tables beside, then put in the place of what the tables hold, in one
transaction: grants, indexes and views stay."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from cdc.process.clock import Clock
from cdc.process.errors import SinkError
from cdc.process.sql_files import load
from cdc.record.schema import TableSchema
from sinks.contract.generations import GENERATION, Generations, is_said, number_in_use
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_notes import WATERMARK
from sinks.sql.sql_client import SqlClient
from sinks.sql.sql_kind import generation_tables
from sinks.sql.sql_natives import StoredColumns
from sinks.sql.sql_store import SqlNotes
from sinks.sql.sql_tables import SqlTables, tables_of
from sinks.sql.sql_views import copy_labels


def open_generations(spec: SinkSpec, clock: Clock) -> Generations:
    """Connect. SinkError when the database does not answer."""
    return _SqlGenerations(SqlClient(spec.text("url"), spec.secrets.get("password"), clock), spec)


class _SqlGenerations:
    def __init__(self, client: SqlClient, spec: SinkSpec) -> None:
        self._client = client
        self._spec = spec
        self._tables, self._notes = self._place(spec)

    def in_use(self) -> int:
        return number_in_use(self._notes)

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        tables, notes = self._place(generation_tables(self._spec, number))
        self._client.write(
            lambda connection: self._copy(connection, (self._tables, self._notes), (tables, notes), shapes)
        )
        self._client.commit()

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        tables, notes = self._place(generation_tables(self._spec, number))

        def switch(connection: sa.Connection) -> None:
            if WATERMARK not in notes.stored(connection):
                raise SinkError(
                    f"there is no generation {number} of {self._client.store}", hint="cdc rebuild makes one"
                )
            if is_said(self._notes.stored(connection), number):
                return
            self._copy(connection, (tables, notes), (self._tables, self._notes), shapes)
            self._notes.put(connection, GENERATION, b"%d" % number)

        self._client.write(switch)
        self._client.commit()

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        tables, notes = self._place(generation_tables(self._spec, number))

        def discard(connection: sa.Connection) -> None:
            for shape in _latest(shapes):
                if tables.stored_types(connection, shape) is not None:
                    tables.table(shape, tables.columns(shape)).drop(connection)
            for name in notes.stored(connection):
                notes.remove(connection, name)

        self._client.write(discard)
        self._client.commit()

    def close(self) -> None:
        self._client.close()

    def _place(self, spec: SinkSpec) -> tuple[SqlTables, SqlNotes]:
        db_schema = spec.optional("db_schema")
        tables = tables_of(self._client.engine, spec)
        return tables, SqlNotes(self._client, spec.prefix, db_schema)

    def _copy(
        self,
        connection: sa.Connection,
        source: tuple[SqlTables, SqlNotes],
        target: tuple[SqlTables, SqlNotes],
        shapes: Sequence[TableSchema],
    ) -> None:
        # The notes first: what they claim must not be more than the tables hold, which a sink may write.
        notes = source[1].stored(connection)
        for shape in _latest(shapes):
            self._copy_table(connection, source[0], target[0], shape)
        for name, text in notes.items():
            if name != GENERATION:
                target[1].put(connection, name, text)

    def _copy_table(self, connection: sa.Connection, source: SqlTables, target: SqlTables, shape: TableSchema) -> None:
        there, here = source.stored_types(connection, shape), target.stored_types(connection, shape)
        if there is None:
            return
        other = here is None or not _has_all(here, there)
        if other or target.unfit(connection, shape):
            # Of another shape: made as the other one is, which is what a table that could not be carried waits for.
            rights: list[tuple[str, str]] = []
            if here is not None:
                rights = target.hide(connection, shape)
                target.table(shape, target.columns(shape, here), here).drop(connection)
            target.table(shape, source.columns(shape, there), there).create(connection)
            target.show(connection, shape, rights)
            here = there
        old = source.table(shape, source.columns(shape, there), there)
        new = target.table(shape, target.columns(shape, here), here)
        if target.dialect == "postgresql":
            # The sink that runs waits, instead of writing a key that is just being put in.
            name = connection.dialect.identifier_preparer.format_table(new)
            connection.exec_driver_sql(load("sinks.sql", "tables.sql")["lock_postgresql"].format(table=name))
        names = [column.name for column in old.columns if column.name in new.columns]
        connection.execute(sa.delete(new))
        copy_labels(connection, old, new)
        connection.execute(sa.insert(new).from_select(names, sa.select(*[old.c[name] for name in names])))


def _has_all(here: StoredColumns, there: StoredColumns) -> bool:
    """Whether one table has every column of another, of the same type."""
    return all(
        here.types.get(name) == kind and here.natives.get(name) == there.natives.get(name)
        for name, kind in there.types.items()
    )


def _latest(shapes: Sequence[TableSchema]) -> list[TableSchema]:
    """The newest shape of each table."""
    newest: dict[str, TableSchema] = {}
    for shape in shapes:
        if shape.topic not in newest or newest[shape.topic].version < shape.version:
            newest[shape.topic] = shape
    return [newest[topic] for topic in sorted(newest)]
