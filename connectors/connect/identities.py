"""Tables whose changes Debezium's Postgres connector does not carry whole: asked for before they are captured.

Without the whole row before (REPLICA IDENTITY FULL) Postgres sends no value of a column that did not change and is
stored out of line. For some types Debezium writes NULL then, and a sink cannot distinguish it from a NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from cdc.masks import masks_of
from cdc.schema import Identity, TableSchema
from cdc.settings import Settings
from cdc.sql import load, quote_identifier
from cdc.topic import TableName
from cdc.wire.debezium.shape import silent_columns
from connectors.debezium.connector_config import debezium_settings, reselects
from connectors.postgres.catalog_shapes import CapturedTable, resolve_tables, table_schema
from connectors.postgres.connections import Connection, connect

_FULL = "f"


class Caution(NamedTuple):
    """A table whose changes do not come whole, and what ends it."""

    message: str
    fix: str


def caution_of(table: TableName, columns: Sequence[str]) -> Caution:
    """The words for one table."""
    named = ", ".join(columns)
    return Caution(
        f"{table}: in an update Debezium writes NULL for a large value that did not change, in {named}; the sinks put "
        "such a record into the dead letters unless the store holds NULL there",
        f"alter table {_quoted(table)} replica identity full; or add Debezium's ReselectColumnsPostProcessor to "
        "[debezium.options]",
    )


def cautions(shapes: Iterable[TableSchema], encoding: str) -> list[Caution]:
    """Those of some tables that need one. A table with REPLICA IDENTITY FULL, or without such columns, needs none."""
    found = []
    for shape in shapes:
        silent = silent_columns(shape, encoding) if shape.identity is not Identity.FULL else []
        if silent:
            found.append(caution_of(shape.table, silent))
    return found


def identity_cautions(settings: Settings) -> list[Caution]:
    """The cautions for all captured tables. None for another database.

    SourceError or ConfigError where Postgres cannot be asked.
    """
    if debezium_settings(settings).database != "postgres":
        return []
    with closing(connect(settings.source, application_name="cdc connect")) as session:
        return cautions_within(session, settings, resolve_tables(session, settings))


def cautions_within(session: Connection, settings: Settings, tables: Iterable[CapturedTable]) -> list[Caution]:
    """The same for these tables, by an open session."""
    tables = list(tables)
    indexed = {table.table: table.key for table in tables if table.identity is Identity.INDEX}
    primary = primary_keys(session) if indexed else {}
    lost = lost_deletes(indexed, primary)
    if reselects(settings):
        return lost
    encoding = settings.log.encoding
    wanting = [table for table in tables if not _is_full(table)]
    masks = masks_of(settings)
    shapes = [table_schema(session, table.oid, topic=table.topic, encoding=encoding, masks=masks) for table in wanting]
    return [*lost, *cautions(shapes, encoding)]


def primary_keys(session: Connection) -> dict[TableName, list[str]]:
    """The primary key's columns of every table of the database but the server's own. Empty without one."""
    rows = session.execute(load(__package__)["primary_keys"].encode())
    return {TableName(schema, name): columns for schema, name, columns in rows}


def lost_deletes(
    indexed: Mapping[TableName, Sequence[str]], primary: Mapping[TableName, Sequence[str]]
) -> list[Caution]:
    """The cautions for tables whose replica identity is an index beside the primary key. Debezium's key is the
    primary key, and Postgres logs the index's columns alone of a row that goes: its key is 0 or empty then.

    ``indexed``: the columns of each table's identity index. ``primary``: those of the primary keys.
    """
    return [
        Caution(
            f"{table}: its replica identity is an index without {', '.join(lacking)} of its primary key, so Debezium "
            "writes deletes and changes of the key under a key of no row, and the stores keep those rows",
            f"alter table {_quoted(table)} replica identity default",
        )
        for table, columns in indexed.items()
        if (lacking := [name for name in primary.get(table, ()) if name not in columns])
    ]


def _is_full(table: CapturedTable) -> bool:
    """Whether every part of it has the identity: a partition's own is the one that counts."""
    return all(leaf.identity == _FULL for leaf in table.leaves) if table.leaves else table.identity is Identity.FULL


def _quoted(table: TableName) -> str:
    return f"{quote_identifier(table.schema)}.{quote_identifier(table.table)}"
