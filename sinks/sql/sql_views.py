"""A view of live rows beside each table: without deleted rows and without our own columns.

Of Postgres and SQLite alone. A view is known as ours by a mark, so that none of somebody else's is ever replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from cdc.errors import ConfigError
from cdc.sql import load
from sinks.sql.sql_faults import NO_RIGHT, state_of
from sinks.warehouse.warehouse_columns import DELETED, OWN

log = logging.getLogger("headrace.sinks")

MARK = "live rows, kept by headrace"


class LiveViews:
    """The views beside the tables of one warehouse. ``ending`` of their names; empty for no views."""

    def __init__(self, engine: sa.Engine, db_schema: str | None, ending: str) -> None:
        self._engine = engine
        self._db_schema = db_schema
        self.ending = ending if engine.dialect.name in ("postgresql", "sqlite") else ""

    def keep(self, connection: sa.Connection, table: str, view: str) -> None:
        """Make the view, or give it the columns that the table has since. ConfigError where its name is taken.

        A role that may not make one goes without: a log line says so. Rows are written all the same.
        """
        if not self.ending:
            return
        columns = self._columns(connection, table)
        ours = self._ours(connection, view)
        if ours and self._columns(connection, view) == columns:
            return
        try:
            with connection.begin_nested():
                self._make(connection, table, view, columns, replaced=ours)
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

    def _make(
        self, connection: sa.Connection, table: str, view: str, columns: Sequence[str], *, replaced: bool
    ) -> None:
        names = {
            "view": self._quoted(view),
            "table": self._quoted(table),
            "columns": ", ".join(self._name(column) for column in columns),
            "deleted": self._name(DELETED),
            "mark": MARK,
        }
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

    def _columns(self, connection: sa.Connection, name: str) -> list[str]:
        found: list[Any] = sa.inspect(connection).get_columns(name, schema=self._db_schema)
        return [one["name"] for one in found if one["name"] not in OWN]

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
