"""Tables whose changes Debezium's Postgres connector does not carry whole: refused, before one of them is lost.

Without the whole row before (REPLICA IDENTITY FULL) Postgres sends no value of a column that did not change and is
stored out of line. Debezium writes a placeholder then, or NULL for types of which it has none, and no store is asked
for what was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from cdc.errors import ConfigError
from cdc.schema import Identity
from cdc.settings import Settings
from cdc.sql import load, quote_identifier
from cdc.topic import TableName
from connectors.debezium.connector_config import debezium_settings, reselects
from connectors.postgres.catalog_shapes import CapturedTable, resolve_tables
from connectors.postgres.connections import Connection, connect
from connectors.postgres.problems import TableProblem

_FULL = "f"


def partial_tables(settings: Settings) -> list[TableProblem]:
    """A problem for each captured table whose changes would not come whole. None for another database.

    SourceError or ConfigError where Postgres cannot be asked.
    """
    if debezium_settings(settings).database != "postgres":
        return []
    with closing(connect(settings.source, application_name="cdc connect")) as session:
        return partial_within(session, settings, resolve_tables(session, settings))


def require_whole_rows(settings: Settings) -> None:
    """ConfigError for the first of :func:`partial_tables`."""
    for problem in partial_tables(settings):
        raise ConfigError(problem.message, hint=problem.hint)


def partial_within(session: Connection, settings: Settings, tables: Iterable[CapturedTable]) -> list[TableProblem]:
    """The same for these tables, by an open session."""
    tables = [table for table in tables if str(table.table) != debezium_settings(settings).signal_table]
    indexed = {table.table: table.key for table in tables if table.identity is Identity.INDEX}
    lost = lost_deletes(indexed, primary_keys(session)) if indexed else []
    partly = [] if reselects(settings) else [table for table in tables if not is_whole(table)]
    places = {oid: table for table in partly for oid in (table.oid, *(leaf.oid for leaf in table.leaves))}
    found: dict[TableName, Sequence[str]] = {}
    for oid, columns in session.execute(load(__package__)["long_columns"].encode(), {"oids": list(places)}):
        found.setdefault(places[oid].table, columns)
    return [*lost, *(unsent_values(table, columns) for table, columns in sorted(found.items()))]


def primary_keys(session: Connection) -> dict[TableName, list[str]]:
    """The primary key's columns of every table of the database but the server's own. Empty without one."""
    rows = session.execute(load(__package__)["primary_keys"].encode())
    return {TableName(schema, name): columns for schema, name, columns in rows}


def unsent_values(table: TableName, columns: Sequence[str]) -> TableProblem:
    """The words for a table of which an update may lack the values of these columns."""
    return TableProblem(
        message=f"{table}: an update lacks a large value that did not change, in {', '.join(columns)}, and Debezium "
        "writes a placeholder or NULL for it",
        hint=f"alter table {_quoted(table)} replica identity full; or add Debezium's ReselectColumnsPostProcessor to "
        "[debezium.options], which may read a value before its commit is visible",
    )


def lost_deletes(
    indexed: Mapping[TableName, Sequence[str]], primary: Mapping[TableName, Sequence[str]]
) -> list[TableProblem]:
    """The problems of tables whose replica identity is an index beside the primary key. Debezium's key is the
    primary key, and Postgres logs the index's columns alone of a row that goes: its key is 0 or empty then.

    ``indexed``: the columns of each table's identity index. ``primary``: those of the primary keys.
    """
    return [
        TableProblem(
            message=f"{table}: its replica identity is an index without {', '.join(lacking)} of its primary key, so "
            "Debezium writes deletes and changes of the key under a key of no row, and stores would keep those rows",
            hint=f"alter table {_quoted(table)} replica identity full",
        )
        for table, columns in indexed.items()
        if (lacking := [name for name in primary.get(table, ()) if name not in columns])
    ]


def is_whole(table: CapturedTable) -> bool:
    """Whether each change has the whole row before: a partition's own identity is the one that counts."""
    return all(leaf.identity == _FULL for leaf in table.leaves) if table.leaves else table.identity is Identity.FULL


def _quoted(table: TableName) -> str:
    return f"{quote_identifier(table.schema)}.{quote_identifier(table.table)}"
