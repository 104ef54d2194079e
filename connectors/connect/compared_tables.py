"""Questions of a comparison and of a handover to the catalog."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.rows import class_row

from cdc.sql import load
from connectors.postgres.connections import Connection


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as the catalog has it now. ``leaf``: it is a partition. ``defaults``: the columns that have one."""

    schema: str
    name: str
    leaf: bool
    defaults: list[str]
    primary_key: list[str]


def read_tables(conn: Connection) -> list[CatalogTable]:
    """Every table of the database but the server's own."""
    with conn.cursor(row_factory=class_row(CatalogTable)) as cursor:
        cursor.execute(load(__package__)["compared_tables"].encode())
        return cursor.fetchall()
