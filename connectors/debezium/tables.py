"""The captured tables: those that cannot be captured whole, their publication in Postgres, and those that join."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing

import psycopg

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError, SourceError, UsageError
from cdc.process.sql_files import load, quote_identifier
from cdc.record.schema import Identity
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, is_postgres
from connectors.debezium.config import debezium_settings, reselects
from connectors.debezium.databases import includes, named_tables
from connectors.postgres.server.catalog_facts import read_publication
from connectors.postgres.server.catalog_shapes import CapturedTable, resolve_tables
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.publication import ensure_publication
from connectors.postgres.server.slot import barrier, sees_all_of
from connectors.postgres.server.table_problems import TableProblem

_ROW_OPERATIONS = frozenset({"insert", "update", "delete"})
"""The operations that the connector reads. It passes TRUNCATE over."""
_FULL = "f"
_ODD = re.compile(r"[\s\"'`]")
"""What Debezium parses in a name that it reads back from its offsets, and writes there as it is."""
_POLL_S = 0.2


def captured_tables(settings: Settings) -> list[TableName]:
    """The tables that the settings mean: by the catalog of a Postgres, by their names elsewhere.

    ConfigError for one that cannot be captured whole, SourceError where Postgres cannot be asked.
    """
    if not is_postgres(settings):
        return named_tables(settings)
    with closing(_open(settings)) as session:
        tables = _resolved(session, settings)
        for problem in _partial(session, settings, tables):
            raise ConfigError(problem.message, hint=problem.hint)
    return [table.table for table in tables]


def publish(settings: Settings) -> list[TableName]:
    """Make the publication, or add the tables that it lacks. Returns those, of one that there was.

    Nothing for another database, and where ``[debezium.options]`` leaves it to Debezium. ConfigError for a publication
    that does not fit, SourceError where Postgres cannot be asked.
    """
    options = debezium_settings(settings).options
    if not is_postgres(settings) or options.get("publication.autocreate.mode", "disabled") != "disabled":
        return []
    with closing(_open(settings)) as session:
        tables, signals = _resolved(session, settings), _signal_table(session, settings)
        found = read_publication(session, settings.publication)
        ensure_publication(session, settings.publication, [*tables, *signals], operations=_ROW_OPERATIONS)
    return [one.table for one in tables if one.table not in found.tables] if found is not None else []


def joined_tables(
    tables: Iterable[TableName],
    lacked: Collection[TableName],
    noted: TopicsState | None,
    running: Mapping[str, str] | None,
) -> tuple[str, ...]:
    """The captured tables whose rows of before no connector has read. Pure.

    Those that the publication ``lacked``, and those that are not ``noted`` or that the ``running`` configuration passes
    over: of a publication for all tables, renamed in the database, or back in the settings. A configuration in force
    proves no reading: a deploy that failed may have made it. Where nothing runs, all of them: the notes do not say what
    the connector that was there had passed over. None but those lacked before any table is noted.
    """
    if noted is None:
        return tuple(sorted(map(str, lacked)))
    read = {table for table in noted.tables if running is not None and includes(running, table)}
    return tuple(sorted({*map(str, lacked), *(str(table) for table in tables if str(table) not in read)}))


def settled(settings: Settings, clock: Clock, wait_s: float) -> bool:
    """Whether every transaction that is open now has ended within ``wait_s``, of a Postgres.

    The server sends no change of one that is older than its table's publication, so that a snapshot read before its end
    would miss them.
    """
    if not is_postgres(settings):
        return True
    with closing(_open(settings)) as session:
        before, deadline = barrier(session), clock.monotonic() + wait_s
        while not sees_all_of(session, before):
            if clock.monotonic() >= deadline:
                return False
            clock.sleep(_POLL_S)
    return True


def _open(settings: Settings) -> Connection:
    return connect(settings.source, application_name="cdc connect")


def _resolved(session: Connection, settings: Settings) -> list[CapturedTable]:
    """The tables without the signal table. ConfigError for one that cannot be captured, as one without a key."""
    debezium = debezium_settings(settings)
    tables = [table for table in resolve_tables(session, settings) if str(table.table) != debezium.signal_table]
    if "message.key.columns" not in debezium.options:
        for problem in (problem for table in tables for problem in table.problems):
            raise ConfigError(problem.message, hint=problem.hint)
    return tables


def _signal_table(session: Connection, settings: Settings) -> Sequence[CapturedTable]:
    table = debezium_settings(settings).signal_table
    if table is None:
        return ()
    source = settings.source.model_copy(update={"tables": (table,), "exclude": ()})
    return resolve_tables(session, settings.model_copy(update={"source": source}))


# Tables whose changes Debezium's Postgres connector does not carry whole: refused, before one of them is lost.
#
# Without the whole row before (REPLICA IDENTITY FULL) Postgres sends no value of a column that did not change and is
# stored out of line. Debezium writes a placeholder then, or NULL for types of which it has none, and no store is asked
# for what was there.


def partial_tables(settings: Settings) -> list[TableProblem]:
    """A problem for each captured table whose changes would not come whole. None for another database.

    SourceError or ConfigError where Postgres cannot be asked.
    """
    if not is_postgres(settings):
        return []
    with closing(_open(settings)) as session:
        signals = debezium_settings(settings).signal_table
        tables = [table for table in resolve_tables(session, settings) if str(table.table) != signals]
        return _partial(session, settings, tables)


def _partial(session: Connection, settings: Settings, tables: Iterable[CapturedTable]) -> list[TableProblem]:
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


def unparted_tables(settings: Settings, tables: Collection[str]) -> dict[str, TableProblem]:
    """A problem for each of these tables that Debezium cannot read in parts, by its key: asked for, it would fail the
    connector at each start. The keys of Postgres' tables alone are looked at.

    SourceError where Postgres cannot be asked.
    """
    found = {table: "it does not read back a name with a blank or a quote" for table in tables if _ODD.search(table)}
    if is_postgres(settings):
        with closing(_open(settings)) as session:
            rows = session.execute(load(__package__)["incomparable_keys"].encode()).fetchall()
        types = {str(TableName(schema, name)): kinds for schema, name, kinds in rows}
        found |= {
            table: f"it compares no key of type {types[table]} with a bound" for table in tables if table in types
        }
    return {
        table: TableProblem(
            message=f"Debezium cannot read {table} in parts: {why}",
            hint=f'cdc connect signal snapshot "{table}" --blocking reads it in one, and holds the stream meanwhile',
        )
        for table, why in found.items()
    }


def require_condition(settings: Settings, table: str, where: str) -> None:
    """UsageError for a condition that Postgres does not take: it would fail the connector at each start. Another
    database is not asked. SourceError where Postgres cannot be."""
    if not is_postgres(settings):
        return
    statement = f"explain select from {_quoted(TableName(*table.rsplit('.', 1)))} where ({where})"
    with closing(_open(settings)) as session:
        try:
            session.execute("set lock_timeout = '5s'")
            session.execute(statement.encode(), binary=True)  # so, the server takes one statement and no second
        except psycopg.Error as error:
            words = error.diag.message_primary or str(error)
            if isinstance(error, psycopg.OperationalError):  # a lock that is waited for, or a connection that is gone
                raise SourceError(f"Postgres did not try the condition of --where: {words}") from None
            raise UsageError(
                f"Postgres does not take the condition of --where: {words}",
                hint="it is what stands behind WHERE, without that word",
            ) from None


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
