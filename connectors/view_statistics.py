"""The source's statistics of the tables that a view uses."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from cdc.settings import Settings
from cdc.sql import load
from cdc.topic import TableName
from cdc.views.estimates import ColumnStatistics, TableStatistics
from connectors.postgres.connections import connect


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
