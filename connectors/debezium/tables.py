"""What a comparison and a handover ask the catalog about tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg.rows import class_row

from cdc.comparison.records import TableFacts
from cdc.schema import TableSchema
from cdc.sql import load
from cdc.topic import TableName
from connectors.postgres.session import Connection


@dataclass(frozen=True, slots=True)
class _Row:
    schema: str
    name: str
    leaf: bool
    defaults: list[str]
    primary_key: list[str]


def read_table_facts(conn: Connection, schemas: Iterable[TableSchema]) -> dict[str, TableFacts]:
    """table -> what is known of it, for every table of the database; ``schemas``: every version the topic holds."""
    versions: dict[TableName, list[TableSchema]] = {}
    for schema in sorted(schemas, key=lambda s: s.version):
        versions.setdefault(schema.table, []).append(schema)
    with conn.cursor(row_factory=class_row(_Row)) as cursor:
        cursor.execute(load(__package__)["compared_tables"].encode())
        rows = cursor.fetchall()
    return {
        f"{row.schema}.{row.name}": TableFacts(
            schemas=tuple(versions.get(TableName(row.schema, row.name), ())),
            defaults=frozenset(row.defaults),
            primary_key=tuple(row.primary_key),
            leaf=row.leaf,
        )
        for row in rows
    }
