"""The source's statistics of the tables that a view uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any

from cdc.errors import CdcError
from cdc.settings import Settings
from cdc.sql import load
from cdc.topic import TableName
from cdc.views.estimates import ColumnStatistics, TableStatistics
from connectors.postgres.connections import connect


class StatisticsOnce:
    """Statistics of the tables of many views: each table is asked for once, and a server that is away, too."""

    def __init__(self, read: Callable[[Iterable[TableName]], Mapping[TableName, TableStatistics]]) -> None:
        self._read = read
        self._asked: set[TableName] = set()
        self._known: dict[TableName, TableStatistics] = {}
        self._failure: CdcError | None = None

    def of(self, tables: Iterable[TableName]) -> Mapping[TableName, TableStatistics]:
        """Those of these tables that are known. Raises what the reading has raised."""
        wanted = list(tables)
        missing = [table for table in wanted if table not in self._asked]
        if self._failure is not None:
            raise self._failure
        if missing:
            try:
                self._known |= self._read(missing)
            except CdcError as failure:
                self._failure = failure
                raise
            self._asked.update(missing)
        return {table: self._known[table] for table in wanted if table in self._known}


def read_statistics(settings: Settings, tables: Iterable[TableName]) -> dict[TableName, TableStatistics]:
    """Rows and columns of these tables, as ANALYZE left them. SourceError where Postgres does not answer."""
    wanted = list(tables)
    names: dict[str, Any] = {"schemas": [table.schema for table in wanted], "names": [table.table for table in wanted]}
    blocks = load("connectors.postgres", "statistics.sql")
    with closing(connect(settings.source, application_name="cdc view check", autocommit=True)) as conn:
        rows = {TableName(s, t): n for s, t, n in conn.execute(blocks["tables"].encode(), names).fetchall()}
        columns: dict[TableName, dict[str, ColumnStatistics]] = {table: {} for table in rows}
        for schema, table, column, distinct, commonest, width in conn.execute(blocks["columns"].encode(), names):
            name = TableName(schema, table)
            # A negative one is a share of the rows.
            values = distinct if distinct >= 0 else -distinct * rows[name]
            columns[name][column] = ColumnStatistics(values, commonest, width)
    return {name: TableStatistics(count, columns[name]) for name, count in rows.items()}
