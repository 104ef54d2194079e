"""Rows of a SQL store: put in, in one of three ways, so that the newer of each key stays, and read back, also where
another program wrote into them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.csv
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite

from cdc.process.sql_files import load, quote_identifier
from sinks.contract.batch import pc
from sinks.contract.port import STRANGE_ROW, StoredRow, rows_at_once, stored_batch
from sinks.sql.sql_client import state_of
from sinks.sql.sql_natives import SqlColumn, chosen, plain_of
from sinks.sql.sql_tables import SqlTables
from sinks.warehouse.warehouse_columns import DELETED, DELETED_AT, EXACT, KEY, POS
from sinks.warehouse.warehouse_rows import EXACT_TYPE, WarehouseRows

Put = Callable[[sa.Connection, sa.Table, pa.Table], int]
"""Put rows in. Returns how many were written. All of the columns are the table's."""

_STATEMENT_ROWS = 5_000
_COUNTED = {"preserve_rowcount": True}
_CSV = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")


def writer(tables: SqlTables, driver: str, *, generic: bool = False) -> Put:
    """The fastest way that a dialect and its driver have."""
    if generic:
        return _staged
    if tables.dialect == "postgresql" and driver == "psycopg":
        return lambda connection, table, rows: _copied(tables, connection, table, rows)
    if tables.dialect == "sqlite":
        return _upserted
    return _staged


def _copied(tables: SqlTables, connection: sa.Connection, table: sa.Table, rows: pa.Table) -> int:
    """COPY into a temporary table, then one INSERT of what is newer."""
    blocks = load("sinks.sql", "tables.sql")
    # By the dialect's words: str() says ARRAY of every array.
    kinds = ((c.name, c.type.compile(connection.dialect)) for c in table.columns)
    shape = hash((table.fullname, *kinds))
    stage = sa.table(f"cdc_stage_{shape & 0xFFFFFFFFFFFF:x}", *[sa.column(c.name) for c in table.columns])
    whole = connection.dialect.identifier_preparer.format_table(table)
    quoted = tables.quoted(stage.name)
    connection.exec_driver_sql(blocks["stage_postgresql"].format(table=whole, stage=quoted))
    # Straight to the driver: here a % stands for itself.
    columns = ", ".join(quote_identifier(name) for name in rows.column_names)
    _copy(connection, blocks["copy_postgresql"].format(table=quoted, columns=columns), csv(rows))
    chosen = sa.select(*[stage.c[name] for name in rows.column_names])
    insert = postgresql.insert(table).from_select(rows.column_names, chosen)
    done = connection.execute(_where_newer(insert, table, rows), execution_options=_COUNTED)
    connection.exec_driver_sql(blocks["clear_stage_postgresql"].format(stage=quoted))
    return done.rowcount


def _copy(connection: sa.Connection, statement: str, data: bytes) -> None:
    """COPY is the driver's own. Its errors become SQLAlchemy's."""
    driver: Any = connection.dialect.dbapi
    cursor: Any = connection.connection.cursor()
    try:
        with cursor, cursor.copy(statement) as copying:
            copying.write(data)
    except driver.OperationalError as error:
        raise exc.OperationalError(statement, None, error) from None
    except driver.Error as error:
        raise exc.DataError(statement, None, error) from None


def _upserted(connection: sa.Connection, table: sa.Table, rows: pa.Table) -> int:
    """One INSERT per row that replaces an older one."""
    insert = _where_newer(sqlite.insert(table), table, rows)
    return sum(connection.execute(insert, values, execution_options=_COUNTED).rowcount for values in _values(rows))


def _where_newer(insert: Any, table: sa.Table, rows: pa.Table) -> Any:
    return insert.on_conflict_do_update(
        index_elements=[KEY],
        set_={name: insert.excluded[name] for name in rows.column_names if name != KEY},
        # A row of somebody else's hand may have no position: any change of ours is newer.
        where=sa.or_(insert.excluded[POS] >= table.c[POS], table.c[POS].is_(None)),
    )


def _staged(connection: sa.Connection, table: sa.Table, rows: pa.Table) -> int:
    """With nothing but standard SQL: into a temporary table, out of it what is stale, and then in its place."""
    names = [name for name in table.columns.keys() if not pa.types.is_null(rows.schema.field(name).type)]  # noqa: SIM118
    stage = sa.Table(
        f"cdc_stage_{table.name}"[: connection.dialect.max_identifier_length],
        sa.MetaData(),
        *[sa.Column(name, table.c[name].type, primary_key=name == KEY) for name in names],
        prefixes=["TEMPORARY"],
    )
    stage.create(connection)
    for values in _values(rows.select(names)):
        connection.execute(sa.insert(stage), values)
    newer = sa.exists().where(table.c[KEY] == stage.c[KEY], table.c[POS] > stage.c[POS])
    connection.execute(sa.delete(stage).where(newer))
    connection.execute(sa.delete(table).where(table.c[KEY].in_(sa.select(stage.c[KEY]))))
    done = connection.execute(sa.insert(table).from_select(names, sa.select(stage)), execution_options=_COUNTED)
    stage.drop(connection)
    return done.rowcount


def _values(rows: pa.Table) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, rows.num_rows, _STATEMENT_ROWS):
        yield rows.slice(start, _STATEMENT_ROWS).to_pylist()


def csv(rows: pa.Table) -> bytes:
    """Rows as COPY reads CSV: an unquoted nothing is null, a quoted one an empty text."""
    columns = [_csv_column(rows[name]) for name in rows.column_names]
    out = io.BytesIO()
    write: Any = pyarrow.csv.write_csv
    write(pa.Table.from_arrays(columns, names=rows.column_names), out, _CSV)
    return out.getvalue()


def _csv_column(column: Any) -> Any:
    array: Any = pa.array
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    if pa.types.is_binary(column.type):
        return array([None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()], pa.string())
    if pa.types.is_list(column.type):
        return array([None if v is None else _literal(v) for v in column.to_pylist()], pa.string())
    return column


def _literal(elements: list[Any]) -> str:
    """An array as Postgres reads it.

    >>> _literal(["a", None, 'q"x', True])
    '{"a",NULL,"q\\\\"x",true}'
    """
    return "{" + ",".join(map(_element, elements)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    text = str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def for_sql(rows: pa.Table, table: sa.Table) -> pa.Table:
    """Rows as a SQL table takes them: every column of it, of type null where the rows' shape lacks one, ``_exact`` as
    JSON text, moments as text where there are none."""
    types = {column.name: column.type for column in table.columns}
    exact = [None if v is None else orjson.dumps(dict(v)).decode() for v in rows[EXACT].to_pylist()]
    made = rows.set_column(rows.schema.get_field_index(EXACT), EXACT, pa.array(exact, pa.string()))
    if isinstance(types[DELETED_AT], sa.Text):
        moments = pc.cast(rows[DELETED_AT], pa.string())
        made = made.set_column(made.schema.get_field_index(DELETED_AT), DELETED_AT, moments)
    for name in types.keys() - set(rows.column_names):
        made = made.append_column(name, pa.nulls(rows.num_rows))
    return made


_FIRST_ROWS, _SCAN_ROWS = 64, 8_192
"""How many rows a scan reads first, and at most: those before them say how large they are."""
_KEYS_AT_ONCE = 500


class StoredTable(NamedTuple):
    """A table of the store. ``rows``: what makes plain values of its columns."""

    table: sa.Table
    columns: Sequence[SqlColumn]
    rows: WarehouseRows


def scanned(connection: sa.Connection, stored: StoredTable) -> Iterator[pa.RecordBatch]:
    """Every row (:data:`sinks.contract.port.STORED_SCHEMA`). Some come twice where one could not be read at first."""
    try:
        yield from _streamed(connection, stored)
        return
    except (ValueError, TypeError, exc.DBAPIError) as error:
        _require_value_fault(error)
    # Its driver, or Arrow, refuses a whole part for one value. Key by key, only its own row is refused.
    for keys in _keys(connection, stored.table.c[KEY]):
        yield from looked_up(connection, stored, keys)


def looked_up(connection: sa.Connection, stored: StoredTable, keys: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    """The rows under some keys."""
    wanted = _chosen(connection, stored).where(stored.table.c[KEY].in_(keys))
    try:
        part = [tuple(row) for row in connection.execute(wanted)]
        found = stored.rows.stored(_arrow(stored.columns, part)) if part else None
    except (ValueError, TypeError, exc.DBAPIError) as error:
        _require_value_fault(error)
        if len(keys) == 1:
            yield _strange(connection, stored, keys[0])
            return
        half = len(keys) // 2
        yield from looked_up(connection, stored, keys[:half])
        yield from looked_up(connection, stored, keys[half:])
        return
    if found is not None:
        yield found


def _streamed(connection: sa.Connection, stored: StoredTable) -> Iterator[pa.RecordBatch]:
    result = connection.execute(_chosen(connection, stored), execution_options={"stream_results": True})
    most = _FIRST_ROWS
    with closing(result):
        while part := result.fetchmany(most):
            batch = stored.rows.stored(_arrow(stored.columns, [tuple(row) for row in part]))
            yield batch
            most = min(4 * most, rows_at_once(batch.nbytes / len(part), _SCAN_ROWS))


def _keys(connection: sa.Connection, column: sa.Column[Any]) -> Iterator[list[Any]]:
    """All keys in their order, some at a time."""
    some = sa.select(column).order_by(column).limit(_KEYS_AT_ONCE)
    keys = [row[0] for row in connection.execute(some)]
    while keys:
        yield keys
        keys = [row[0] for row in connection.execute(some.where(column > keys[-1]))]


def _require_value_fault(error: Exception) -> None:
    """Raise what is none: an error of the server's, or of the connection. A refusal of the driver has no SQLSTATE."""
    if isinstance(error, exc.DBAPIError) and (state_of(error) or not isinstance(error, exc.DataError)):
        raise error


def _strange(connection: sa.Connection, stored: StoredTable, key: Any) -> pa.RecordBatch:
    columns = stored.table.c
    own = sa.select(columns[POS], columns[DELETED]).where(columns[KEY] == key)
    found = [
        StoredRow(key=_named(key), pos=_text(pos), row=None if deleted is True else STRANGE_ROW)
        for pos, deleted in connection.execute(own)
    ]
    return stored_batch(found)


def _named(key: Any) -> str:
    return f"%X'{key.hex().upper()}'" if isinstance(key, bytes) else _text(key)


def _text(value: Any) -> str:
    """A column of ours, with any value."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)


def _chosen(connection: sa.Connection, stored: StoredTable) -> sa.Select[Any]:
    columns = stored.table.c
    own = [chosen(columns[c.name], c.native) for c in stored.columns]
    key = key_name(connection, columns[KEY])
    return sa.select(*own, key, *[columns[n] for n in (POS, DELETED, EXACT)])


def key_name(connection: sa.Connection, key: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """A key as readers hear of it: SQLite keeps bytes in a column of texts, beside the text that reads the same. As no
    key of ours is written, because a percent sign stands before two digits there: ``%X'39'``."""
    if connection.dialect.name != "sqlite":
        return key
    quoted = sa.literal("%").concat(sa.func.quote(key))
    return sa.case((sa.func.typeof(key) == "blob", quoted), else_=key)


def _arrow(columns: Sequence[SqlColumn], rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows of a result as columns. ValueError or TypeError for a value that its column has not."""
    kinds = [*(c.type for c in columns), pa.string(), pa.string(), pa.bool_()]
    array: Any = pa.array
    turned = list(zip(*rows, strict=True))
    for number, column in enumerate(columns):
        convert = plain_of(column.native)
        if convert is not None:
            turned[number] = tuple(None if value is None else convert(value) for value in turned[number])
    arrays = [array(list(values), kind) for values, kind in zip(turned[:-1], kinds, strict=True)]
    names = [*(c.name for c in columns), KEY, POS, DELETED, EXACT]
    return pa.RecordBatch.from_arrays([*arrays, array([_exact(text) for text in turned[-1]], EXACT_TYPE)], names=names)


def _exact(text: Any) -> list[tuple[str, Any]] | None:
    if text is None:
        return None
    members = orjson.loads(text)
    if not isinstance(members, dict):
        raise ValueError("_exact is no JSON object")
    return list(members.items())
