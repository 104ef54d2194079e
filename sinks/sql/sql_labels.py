"""The labels of an enum in a warehouse that is Postgres: text, with a check of the labels that its rows have had.

The log does not announce labels, so the check is made of the rows: one that comes with a new label widens it first, in
the transaction that writes the row. No label is ever refused. The comment on a check says which labels it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import orjson
import pyarrow as pa
import sqlalchemy as sa

from cdc.sql import load, quote_literal
from cdc.stored import reading
from sinks.arrow import pc

_CHECKED = "checked"
_LONGEST = 56
"""Bytes of a name that leave room for its ending."""
_MARK = "labels of Headrace's: "


def begin_labels(connection: sa.Connection, table: sa.Table, columns: Iterable[str]) -> None:
    """Give columns of a table a check without any label yet."""
    for column in columns:
        _say(connection, table, column, ())


def look_at_labels(connection: sa.Connection, table: sa.Table) -> sa.Table:
    """The same table, which knows from now on which of its columns have a check."""
    table.info[_CHECKED] = tuple(_found(connection, table)) if connection.dialect.name == "postgresql" else ()
    return table


def widen_labels(connection: sa.Connection, table: sa.Table, rows: pa.Table) -> None:
    """Let the checks of a table that was looked at have the labels of some rows."""
    came = {name: _labels_in(rows[name]) for name in table.info.get(_CHECKED, ())}
    # Asked each time: who else writes has widened it, and what is rolled back has not.
    if any(came.values()):
        _widen(connection, table, came)


def drop_labels(connection: sa.Connection, table: sa.Table, enums: Iterable[str]) -> None:
    """Take the checks away from columns that are no enums any more."""
    for column in _found(connection, table).keys() - set(enums):
        _carry_out(connection, "drop_labels", table, column)


def copy_labels(connection: sa.Connection, source: sa.Table, target: sa.Table) -> None:
    """Let a table have the checks of another one, for rows of that one."""
    if connection.dialect.name != "postgresql":
        return
    there, here = _found(connection, source), _found(connection, target)
    for column in sorted(there.keys() | here.keys()):
        if column in source.columns and column in target.columns:
            values = connection.execute(sa.select(source.c[column]).distinct()).scalars()
            came = {one for one in values if one is not None}
            _say(connection, target, column, {*there.get(column, ()), *here.get(column, ()), *came})


def _widen(connection: sa.Connection, table: sa.Table, came: Mapping[str, set[str]]) -> None:
    new = [name for name, labels in _found(connection, table).items() if not came.get(name, set()) <= labels]
    if not new:
        return
    # Another writer may be about to widen it, too.
    _carry_out(connection, "lock_postgresql", table, "")
    known = _found(connection, table)
    for column in new:
        if column in known:
            _say(connection, table, column, known[column] | came[column])


def _labels_in(column: Any) -> set[str]:
    return set() if pa.types.is_null(column.type) else {str(one) for one in pc.unique(column.drop_null()).to_pylist()}


def _found(connection: sa.Connection, table: sa.Table) -> dict[str, set[str]]:
    """Column -> the labels of its check."""
    query = sa.text(load("sinks.sql", "tables.sql")["find_labels"])
    # A quoted name is for statements that go straight to the driver, which reads %% as %.
    name = _quoted(connection, table).replace("%%", "%")
    rows = connection.execute(query, {"table": name, "mark": f"{_MARK}%"})
    with reading("the comment on a check of labels"):
        return {row[0]: set(orjson.loads(row[1].removeprefix(_MARK))) for row in rows}


def _say(connection: sa.Connection, table: sa.Table, column: str, labels: Iterable[str]) -> None:
    some = sorted(labels)
    words = {
        "labels": ", ".join(map(_literal, some)),
        "comment": _literal(_MARK + orjson.dumps(some).decode()),
    }
    for block in ("drop_labels", "add_labels", "comment_labels"):
        _carry_out(connection, block, table, column, words)


def _carry_out(
    connection: sa.Connection, block: str, table: sa.Table, column: str, words: Mapping[str, str] = {}
) -> None:
    preparer = connection.dialect.identifier_preparer
    names = {
        "table": _quoted(connection, table),
        "column": preparer.quote_identifier(column),
        "name": preparer.quote_identifier(_name(column)),
    }
    connection.exec_driver_sql(load("sinks.sql", "tables.sql")[block].format(**names, **words))


def _literal(text: str) -> str:
    return quote_literal(text).replace("%", "%%")


def _name(column: str) -> str:
    """The check's name, which no other column's has."""
    raw = column.encode()
    if len(raw) <= _LONGEST:
        return f"{column}_labels"
    return f"{sha256(raw).hexdigest()[:32]}_labels"


def _quoted(connection: sa.Connection, table: sa.Table) -> str:
    return connection.dialect.identifier_preparer.format_table(table)
