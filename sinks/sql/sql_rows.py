"""Rows of a SQL store, read back, also where another program wrote into them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc

from sinks.contract.port import STRANGE_ROW, StoredRow, rows_at_once, stored_batch
from sinks.sql.sql_client import state_of
from sinks.sql.sql_natives import SqlColumn, chosen, plain_of
from sinks.warehouse.warehouse_columns import DELETED, EXACT, KEY, POS
from sinks.warehouse.warehouse_rows import EXACT_TYPE, WarehouseRows

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
