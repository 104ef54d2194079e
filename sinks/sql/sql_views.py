"""Beside each table a view of live rows, and for enums in a warehouse that is Postgres a check of their labels."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc

from cdc.process.errors import ConfigError
from cdc.process.sql_files import load, quote_literal
from cdc.record.documents import reading
from sinks.contract.batch import pc
from sinks.contract.history_rows import EXTRA, VERSION_COLUMNS
from sinks.sql.sql_client import NO_RIGHT, state_of
from sinks.warehouse.warehouse_columns import DELETED, OWN

log = logging.getLogger("headrace.sinks")

MARK = "live rows, kept by headrace"


class LiveViews:
    """The views beside the tables of one warehouse. ``ending`` of their names; empty for no views."""

    def __init__(self, engine: sa.Engine, db_schema: str | None, ending: str) -> None:
        self._engine = engine
        self._db_schema = db_schema
        self.ending = ending if engine.dialect.name in ("postgresql", "sqlite") else ""

    def keep(self, connection: sa.Connection, table: str, view: str, *, history: bool = False) -> None:
        """Make the view, or give it the columns that the table has since. ConfigError where its name is taken.
        ``history``: the view is of the versions of a history's rows.

        A role that may not make one goes without: a log line says so. Rows are written all the same.
        """
        if not self.ending:
            return
        found = self._columns(connection, table)
        columns = [name for name in found if name not in OWN and not (history and name in EXTRA)]
        ours = self._ours(connection, view)
        wanted = [*VERSION_COLUMNS, *columns] if history else columns
        if ours and self._columns(connection, view) == wanted and self._reads(connection, table, view):
            return
        try:
            with connection.begin_nested():
                self._make(connection, view, self._rows(table, columns, history=history), replaced=ours)
        except exc.DBAPIError as error:
            if state_of(error) != NO_RIGHT:
                raise
            log.warning("live_view_refused", extra={"view": view})

    def drop(self, connection: sa.Connection, view: str) -> list[tuple[str, str]]:
        """Take a view of ours away, if there is one. Returns the rights on it, for :meth:`grant`."""
        if not self.ending or not self._ours(connection, view):
            return []
        rights: list[tuple[str, str]] = []
        if self._postgres:
            query = sa.text(self._block("live_grants"))
            rights = [(row[0], row[1]) for row in connection.execute(query, {"view": self._quoted(view)})]
        connection.exec_driver_sql(self._block("drop_live").format(view=self._quoted(view)))
        return rights

    def grant(self, connection: sa.Connection, view: str, rights: Sequence[tuple[str, str]]) -> None:
        """Give rights back on a view that was made anew."""
        for grantee, right in rights:
            statement = self._block("grant_live").format(right=right, view=self._quoted(view), grantee=grantee)
            connection.exec_driver_sql(statement)

    def _rows(self, table: str, columns: Sequence[str], *, history: bool) -> str:
        """What the view shows, as SQL."""
        block = load("sinks.warehouse", "history.sql")["versions"] if history else self._block("live")
        named = ", ".join(self._name(column) for column in columns)
        # Psycopg reads %% as %, and SQLAlchemy quotes names for that.
        block = block.replace("%", "%%") if self._postgres else block
        return block.format(columns=named, table=self._quoted(table), deleted=self._name(DELETED))

    def _make(self, connection: sa.Connection, view: str, rows: str, *, replaced: bool) -> None:
        names = {"view": self._quoted(view), "rows": rows, "mark": MARK}
        if self._postgres:
            connection.exec_driver_sql(self._block("live_postgresql").format(**names))
            connection.exec_driver_sql(self._block("mark_live_postgresql").format(**names))
            return
        if replaced:
            connection.exec_driver_sql(self._block("drop_live").format(**names))
        connection.exec_driver_sql(self._block("live_sqlite").format(**names))

    def _ours(self, connection: sa.Connection, view: str) -> bool:
        """Whether the view is there. ConfigError when something else has its name."""
        if self._postgres:
            found = connection.execute(sa.text(self._block("find_live_postgresql")), {"view": self._quoted(view)})
        else:
            found = connection.execute(sa.text(self._block("find_live_sqlite")), {"view": view})
        row = found.one_or_none()
        if row is None or row[0] is None:
            return False
        if MARK not in str(row[1]):
            raise taken(view, f"the database has another {view} already")
        return True

    def _reads(self, connection: sa.Connection, table: str, view: str) -> bool:
        """Whether the view is of this table, and not of one that was renamed away from under it."""
        if not self._postgres:
            return True  # SQLite binds a view's table by its name
        names = {"view": self._quoted(view), "table": self._quoted(table)}
        return bool(connection.execute(sa.text(self._block("reads_table")), names).scalar_one())

    def _columns(self, connection: sa.Connection, name: str) -> list[str]:
        found: list[Any] = sa.inspect(connection).get_columns(name, schema=self._db_schema)
        return [one["name"] for one in found]

    @property
    def _postgres(self) -> bool:
        return self._engine.dialect.name == "postgresql"

    def _block(self, name: str) -> str:
        return load("sinks.sql", "tables.sql")[name]

    def _name(self, name: str) -> str:
        # Straight to the driver, without parameters: a % stands for itself.
        quoted: str = self._engine.dialect.identifier_preparer.quote_identifier(name)
        return quoted

    def _quoted(self, name: str) -> str:
        return f"{self._name(self._db_schema)}.{self._name(name)}" if self._db_schema else self._name(name)


def taken(view: str, why: str) -> ConfigError:
    """For a view whose name something else has."""
    return ConfigError(
        f"the view of live rows {view} cannot be made: {why}",
        hint='give the views of the sink another ending, as live_views = "_now", or none: live_views = ""',
    )


# The labels of an enum in a warehouse that is Postgres: text, with a check of the labels that its rows have had.
#
# The log does not announce labels, so the check is made of the rows: one that comes with a new label widens it first,
# in the transaction that writes the row. No label is ever refused. The comment on a check says which labels it has.

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
