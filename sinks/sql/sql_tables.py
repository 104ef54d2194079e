"""Tables of a SQL warehouse: types by dialect, made and evolved through SQLAlchemy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import orjson
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import mysql, postgresql

from cdc.process.errors import ConfigError
from cdc.process.sql_files import load
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.types import ENUM
from sinks.contract.history_rows import ENDING
from sinks.contract.port import CannotCarry
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.table_places import PLACE
from sinks.sql.sql_kind import LIVE
from sinks.sql.sql_natives import (
    SqlColumn,
    StoredColumns,
    as_text,
    fits_native,
    keeps_natives,
    native_arrow,
    native_of,
    native_sql,
    native_stored,
    retyped_natives,
)
from sinks.sql.sql_views import LiveViews, begin_labels, drop_labels, taken
from sinks.warehouse.warehouse_columns import (
    DELETED,
    DELETED_AT,
    EXACT,
    KEY,
    OWN,
    POS,
    TIMESTAMP,
    TIMESTAMPTZ,
    removed,
    retypes,
    warehouse_columns,
)

VERSIONS = "__scd2"
"""The ending of the view of a history's versions."""
_KEY_CHARACTERS = 700
"""MySQL's longest key, in characters of four bytes."""


class SqlTables:
    """Where each captured table is kept, and with which types."""

    def __init__(self, engine: sa.Engine, db_schema: str | None, suffix: str = "", live_views: str = "") -> None:
        self._engine = engine
        # A generation that is being filled gets no view: nobody reads it yet.
        self._views = LiveViews(engine, db_schema, "" if suffix else live_views)
        self._suffix = suffix
        self._db_schema = db_schema
        self._native = keeps_natives(engine)
        self._places: dict[bytes, TableName] = {}
        self._shown: dict[bytes, TableName] = {}

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the database, as ``postgresql``."""
        return self._engine.dialect.name

    def name(self, table: TableName) -> str:
        """A table's name: its own in a schema given by the settings, else ``schema_table``.

        ConfigError when two captured tables would share one.
        """
        whole = table.table if self._db_schema is not None else f"{table.schema}_{table.table}"
        name = self._short(whole + self._suffix)
        if (owner := self._places.setdefault(self._compared(name), table)) != table:
            raise ConfigError(
                f"{table} and {owner} would share the table {name} of the warehouse",
                hint="give one of them a sink of its own with another database or db_schema",
            )
        if self._views.ending:
            view = self._short(whole + self._views.ending)
            for one, owners in ((name, self._shown), (view, self._places)):
                if (other := owners.get(self._compared(one))) is not None:
                    raise taken(one, f"{table} and {other} would share that name")
            self._shown[self._compared(view)] = table
        return name

    def view(self, schema: TableSchema) -> str:
        """The name of a table's view of live rows, or of the versions of a history."""
        table = schema.table
        own = table.table.removesuffix(ENDING) + VERSIONS if schema.history else table.table + self._views.ending
        return self._short(own if self._db_schema is not None else f"{table.schema}_{own}")

    def show(self, connection: sa.Connection, schema: TableSchema, rights: Sequence[tuple[str, str]] = ()) -> None:
        """Make or repair a table's view, with rights that one before it had."""
        self._views.keep(connection, self.name(schema.table), self.view(schema), history=schema.history)
        if rights:
            self._views.grant(connection, self.view(schema), rights)

    def hide(self, connection: sa.Connection, schema: TableSchema) -> list[tuple[str, str]]:
        """Take a table's view away, for :meth:`show` to make it again. The rights on it."""
        return self._views.drop(connection, self.view(schema))

    def columns(self, schema: TableSchema, existing: StoredColumns | None = None) -> list[SqlColumn]:
        """A shape's columns with the types this dialect has for them, or those that the table ``existing`` has."""
        columns = []
        for column in warehouse_columns(schema):
            name = self._short(column.name)
            if existing is not None and name in existing:
                kind, native = existing.types[name], existing.natives.get(name, "")
            else:
                kind, native = self._type(column.type), native_of(column.source) if self._native else ""
            fits = fits_native(native, column.source.kind)
            columns.append(SqlColumn(source=column.source, name=name, type=kind, native=native, fits=fits))
        return columns

    def table(
        self,
        schema: TableSchema,
        columns: Sequence[SqlColumn],
        existing: StoredColumns | None = None,
    ) -> sa.Table:
        """The table as SQLAlchemy has it, without asking the database. ``existing`` adds columns of other shapes."""
        own = [
            sa.Column(KEY, self._key_type(), primary_key=True),
            sa.Column(POS, sa.String(32).with_variant(sa.String(32, collation="C"), "postgresql"), nullable=False),
            sa.Column(DELETED, sa.Boolean(), nullable=False),
            sa.Column(DELETED_AT, self.sql_type(self._type(TIMESTAMPTZ))),
            sa.Column(EXACT, sa.Text()),
        ]
        types = {c.name: (c.type, c.native) for c in columns}
        others = existing or StoredColumns()
        for name, kind in others.types.items():
            if name not in types and name not in OWN:
                types[name] = (kind, others.natives.get(name, ""))
        typed: list[sa.Column[Any]] = [sa.Column(name, self.sql_type(*kind)) for name, kind in types.items()]
        return sa.Table(self.name(schema.table), sa.MetaData(schema=self._db_schema), *typed, *own)

    def stored_types(self, connection: sa.Connection, schema: TableSchema) -> StoredColumns | None:
        """Column -> type, of the table as it is in the database, less those that it computes itself. None when there
        is none."""
        inspector = sa.inspect(connection)
        name = self.name(schema.table)
        if not inspector.has_table(name, schema=self._db_schema):
            return None
        found = [one for one in inspector.get_columns(name, schema=self._db_schema) if "computed" not in one]
        natives = {one["name"]: native_stored(one["type"]) if self._native else "" for one in found}
        types = {
            one["name"]: native_arrow(natives[one["name"]])
            if natives[one["name"]]
            else self._type(arrow_of(one["type"]))
            for one in found
        }
        return StoredColumns(types, {name: native for name, native in natives.items() if native})

    def is_there(self, connection: sa.Connection, schema: TableSchema) -> bool:
        """Whether the database has the table."""
        return sa.inspect(connection).has_table(self.name(schema.table), schema=self._db_schema)

    def place(self, connection: sa.Connection, schema: TableSchema) -> bytes | None:
        """As :meth:`sinks.contract.table_places.PlaceStore.place`."""
        if not self.is_there(connection, schema):
            return None
        table = self.table(schema, ())
        found = connection.execute(sa.select(table.c[EXACT]).where(table.c[KEY] == PLACE)).scalar()
        return read_place(found) if found is not None else None

    def prepare(self, connection: sa.Connection, schema: TableSchema, kept: Collection[str], *, older: bool) -> None:
        """Make the table, or add and, unless the shape is an older one, widen its columns.

        ``kept``: columns of the source that it is known to have had. CannotCarry when it cannot take the shape.
        """
        existing = self.stored_types(connection, schema)
        if existing is None:
            make_schema(connection, self._db_schema)
            made = self.table(schema, self.columns(schema))
            made.create(connection, checkfirst=True)
            begin_labels(connection, made, self._enums(self.columns(schema)))
            self.show(connection, schema)
            return
        wanted = self.columns(schema)
        unfit = self.unfit(connection, schema) or removed(existing.types, wanted, kept)
        if unfit:
            raise CannotCarry.because(schema.table, unfit)
        retyped = {} if older else self._retyped(schema, existing, wanted)
        table = self.table(schema, wanted)
        # No column of a view changes its type.
        rights = self.hide(connection, schema) if retyped else []
        for column in wanted:
            if column.name not in existing:
                self._alter(connection, "add_column", table, column.name, self.sql_type(column.type, column.native))
                begin_labels(connection, table, self._enums([column]))
        if self._native and not older:
            drop_labels(connection, table, self._enums(wanted))
        for name, (kind, native) in retyped.items():
            have = existing.natives.get(name, "")
            using = self._using(name, have, kind) if not native else f"{self.quoted(name)}::{native}"
            self._alter(connection, "retype_postgresql", table, name, self.sql_type(kind, native), using)
        if not older:
            self.show(connection, schema, rights)

    def _enums(self, columns: Sequence[SqlColumn]) -> list[str]:
        """Those whose labels are checked."""
        return [one.name for one in columns if self._native and one.source.kind == ENUM and not one.source.array]

    def _retyped(
        self, schema: TableSchema, existing: StoredColumns, wanted: Sequence[SqlColumn]
    ) -> dict[str, tuple[pa.DataType, str]]:
        """The columns to change and what to. CannotCarry for one that has no such type."""
        if self._native:
            return retyped_natives(schema.table, existing, wanted)
        after = retypes(schema.table, existing.types, wanted, may=self.dialect == "postgresql")
        return {name: (kind, "") for name, kind in after.items()}

    def _using(self, name: str, have: str, kind: pa.DataType) -> str:
        """The SQL that makes a column's values those of another type."""
        quoted = self.quoted(name)
        if have:
            return as_text(quoted, have, is_list=pa.types.is_list(kind))
        # A list that becomes text becomes JSON, as all lists that are text are.
        is_text = pa.types.is_string(kind)
        return f"case when {quoted} is not null then to_jsonb({quoted}) #>> '{{}}' end" if is_text else quoted

    def unfit(self, connection: sa.Connection, schema: TableSchema) -> str:
        """Why no row of ours can be put into the table as somebody has altered it. Empty where it can."""
        found = {
            one["name"]: one for one in sa.inspect(connection).get_columns(self.name(schema.table), self._db_schema)
        }
        ours = {column.name for column in self.columns(schema)}
        for name, column in found.items():
            if column["nullable"] or name in (KEY, POS, DELETED):
                continue
            if name in ours or name in OWN:
                return f"column {name} may not be null in the store, and a deleted row is kept there without its values"
            fills_itself = column.get("default") is not None or "computed" in column or "identity" in column
            if not fills_itself and column.get("autoincrement") is not True:
                return f"column {name}, which is none of the source's, may not be null in the store and has no default"
        return ""

    def _alter(
        self,
        connection: sa.Connection,
        block: str,
        table: sa.Table,
        column: str,
        kind: sa.types.TypeEngine[Any],
        using: str = "",
    ) -> None:
        statement = load("sinks.sql", "tables.sql")[block].format(
            table=self._engine.dialect.identifier_preparer.format_table(table),
            column=self.quoted(column),
            type=kind.compile(self._engine.dialect),
            expression=using,
        )
        connection.exec_driver_sql(statement)

    def quoted(self, name: str) -> str:
        """A name, quoted where the database needs it."""
        return self._engine.dialect.identifier_preparer.quote_identifier(name)

    def sql_type(self, kind: pa.DataType, native: str = "") -> sa.types.TypeEngine[Any]:
        """The SQL type of a column."""
        if native:
            return native_sql(native)
        if pa.types.is_list(kind):
            element: Any = kind
            return postgresql.ARRAY(self.sql_type(element.value_type))
        if pa.types.is_decimal(kind):
            decimal: Any = kind
            return sa.Numeric(decimal.precision, decimal.scale)
        return _SQL.get(kind, sa.Text())

    def _key_type(self) -> sa.types.TypeEngine[Any]:
        bounded = mysql.VARCHAR(_KEY_CHARACTERS, charset="utf8mb4", collation="utf8mb4_bin")
        return sa.Text().with_variant(bounded, "mysql", "mariadb").with_variant(sa.Text(collation="C"), "postgresql")

    def _type(self, kind: pa.DataType) -> pa.DataType:
        """A type that this dialect has and that holds the same. Text where there is none."""
        if pa.types.is_list(kind) and self.dialect != "postgresql":
            return pa.string()
        if self.dialect == "sqlite":
            kind = _SQLITE_WHOLE.get(kind, kind)
        inexact = pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        return pa.string() if inexact and self.dialect == "sqlite" else kind

    def _compared(self, name: str) -> bytes:
        """A name as the database compares it: SQLite passes over the case of ASCII letters."""
        raw = name.encode()
        return raw.lower() if self.dialect == "sqlite" else raw

    def _short(self, name: str) -> str:
        """A name as long as the database takes."""
        most = self._engine.dialect.max_identifier_length
        raw = name.encode()
        if len(raw) <= most:
            return name
        return f"{raw[: most - 17].decode(errors='ignore')}_{hashlib.sha256(raw).hexdigest()[:16]}"


def place_text(text: bytes) -> str:
    """A place as ``_exact`` has it."""
    return orjson.dumps({PLACE: text.decode()}).decode()


def read_place(exact: str) -> bytes:
    """The place in an ``_exact``: nothing where somebody else wrote that."""
    try:
        return str(orjson.loads(exact)[PLACE]).encode()
    except (ValueError, TypeError, KeyError):
        return b""


def tables_of(engine: sa.Engine, spec: SinkSpec) -> SqlTables:
    """The tables of a warehouse as its spec describes them."""
    views = str(spec.options.get("live_views", LIVE) or "")
    return SqlTables(engine, spec.optional("db_schema"), spec.optional("table_suffix") or "", views)


def make_schema(connection: sa.Connection, name: str | None) -> None:
    """Make a schema that is missing, in a transaction that is open. Nothing for None, nor in a database where a table
    needs none."""
    if name is None or connection.dialect.name != "postgresql" or sa.inspect(connection).has_schema(name):
        return  # IF NOT EXISTS asks for the right to make one before it looks
    making = sa.schema.CreateSchema(name, if_not_exists=True)
    # Two that begin at once get a unique violation of the catalog, in spite of IF NOT EXISTS.
    unless_done(connection, lambda c: c.execute(making), lambda c: sa.inspect(c).has_schema(name))


def unless_done(
    connection: sa.Connection, act: Callable[[sa.Connection], object], done: Callable[[sa.Connection], bool]
) -> None:
    """Act, unless somebody else has done it meanwhile."""
    try:
        with connection.begin_nested():
            act(connection)
    except exc.DBAPIError:
        if not done(connection):
            raise


def arrow_of(kind: sa.types.TypeEngine[Any]) -> pa.DataType:
    """The type of a column that is there, as Arrow has it. Text for any other."""
    if isinstance(kind, sa.ARRAY | postgresql.ARRAY):
        return pa.list_(arrow_of(kind.item_type))
    if isinstance(kind, sa.DateTime | postgresql.TIMESTAMP):
        return TIMESTAMPTZ if kind.timezone else TIMESTAMP
    if isinstance(kind, sa.Float):
        return pa.float32() if isinstance(kind, sa.REAL) else pa.float64()
    if isinstance(kind, sa.Numeric):
        return pa.decimal128(kind.precision or 38, kind.scale or 0)
    for cls, arrow in _ARROW:
        if isinstance(kind, cls):
            return arrow
    return pa.string()


_SQLITE_WHOLE: dict[pa.DataType, pa.DataType] = {
    pa.int16(): pa.int64(),
    pa.int32(): pa.int64(),
    pa.float32(): pa.float64(),
}
"""SQLite has one size of integers and one of floats: a column that grows stays as it is."""
_TIMESTAMPTZ_SQL = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
_SQL: dict[pa.DataType, sa.types.TypeEngine[Any]] = {
    pa.bool_(): sa.Boolean(),
    pa.int16(): sa.SmallInteger(),
    pa.int32(): sa.Integer(),
    pa.int64(): sa.BigInteger(),
    pa.float32(): sa.REAL(),
    pa.float64(): sa.Double(),
    pa.binary(): sa.LargeBinary(),
    pa.date32(): sa.Date(),
    TIMESTAMP: sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb"),
    TIMESTAMPTZ: _TIMESTAMPTZ_SQL,
}
_ARROW: tuple[tuple[type[sa.types.TypeEngine[Any]], pa.DataType], ...] = (
    (sa.Boolean, pa.bool_()),
    (sa.SmallInteger, pa.int16()),
    (sa.BigInteger, pa.int64()),
    (sa.Integer, pa.int32()),
    (sa.LargeBinary, pa.binary()),
    (sa.Date, pa.date32()),
)
