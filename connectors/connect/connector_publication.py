"""The publication of a Debezium connector for Postgres, and tables whose changes would not come whole: refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError
from cdc.process.sql_files import load, quote_identifier
from cdc.record.schema import Identity
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, SourceSettings
from connectors.debezium.captured_tables import includes
from connectors.debezium.connector_config import debezium_settings, reselects
from connectors.postgres.server.catalog_facts import read_publication
from connectors.postgres.server.catalog_shapes import CapturedTable, resolve_tables
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.publication import ensure_publication
from connectors.postgres.server.slot import barrier, sees_all_of
from connectors.postgres.server.table_problems import TableProblem

ROW_OPERATIONS = frozenset({"insert", "update", "delete"})
"""The operations that the connector reads. It passes TRUNCATE over."""
_AUTOCREATE = "publication.autocreate.mode"
_KEYS = "message.key.columns"
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of :func:`publish`. ``tables``: those that the settings mean. ``made``: there was no publication.
    ``added``: the tables that one which existed lacked. ``open``: a transaction from before them is still open, so they
    may not be read yet."""

    tables: tuple[TableName, ...] = ()
    made: bool = False
    added: tuple[TableName, ...] = ()
    open: bool = False


def makes_publication(settings: Settings) -> bool:
    """Whether ``cdc connect deploy`` makes the publication: for Postgres, unless ``[debezium.options]`` leaves it to
    Debezium."""
    debezium = debezium_settings(settings)
    return debezium.database == "postgres" and debezium.options.get(_AUTOCREATE, "disabled") == "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts about the pipeline's tables. ``topics``: those that were noted, None before any is. ``running``: the
    configuration in force, None where nothing runs. ``due``: tables whose rows are to be asked for once more."""

    topics: TopicsState | None = None
    running: Mapping[str, str] | None = None
    due: tuple[str, ...] = ()


def publish(settings: Settings, clock: Clock, known: Known, *, wait_s: float) -> Published:
    """Make the publication, or add the tables that it lacks.

    Where any rows are to be read, it waits up to ``wait_s`` until every transaction has ended that is open now: the
    server sends no change of one that is older than its table's publication, so that a snapshot read before its end
    would miss them. A deploy that was ended in that wait leaves it to the next one. Raises ConfigError for a table that
    cannot be captured and for a publication that does not fit, SourceError where Postgres cannot be asked.
    """
    with closing(connect(settings.source, application_name="cdc connect")) as session:
        tables = _tables(session, settings)
        for problem in partial_within(session, settings, tables):
            raise ConfigError(problem.message, hint=problem.hint)
        found = read_publication(session, settings.publication)
        made = ensure_publication(session, settings.publication, tables, operations=ROW_OPERATIONS)
        signals = debezium_settings(settings).signal_table
        meant = tuple(table.table for table in tables if str(table.table) != signals)
        if found is None:
            return Published(tables=meant, made=made)
        added = tuple(sorted(table for table in meant if table not in found.tables))
        done = with_unread(Published(tables=meant, added=added), known.topics, known.running)
        waits = bool(done.added or known.due) and not _settled(session, clock, wait_s)
        return replace(done, open=waits)


def captured_now(settings: Settings) -> tuple[TableName, ...]:
    """The tables that the settings mean, by the catalog. SourceError or ConfigError where it cannot be asked."""
    with closing(connect(settings.source, application_name="cdc connect")) as session:
        return tuple(table.table for table in resolve_tables(session, settings))


def with_unread(done: Published, known: TopicsState | None, running: Mapping[str, str] | None) -> Published:
    """The same with the tables among ``added`` that the publication had already, and that the connector never read or
    passes over now: of a publication for all tables, renamed in the database, or back in the settings.

    ``known``: the tables that were noted. ``running``: the configuration in force. Where nothing runs, every table: the
    notes do not say which of them the connector that was there had passed over.
    """
    if known is None:
        return done
    listed = running.get("table.include.list", "").split(",") if running is not None else []
    more = [table for table in done.tables if not (str(table) in known.tables and _listed(listed, str(table)))]
    return replace(done, added=tuple(sorted({*done.added, *more})))


def _listed(expressions: Iterable[str], table: str) -> bool:
    return any(includes(one, table) for one in expressions)


def _tables(session: Connection, settings: Settings) -> Sequence[CapturedTable]:
    """The tables that the settings name, and the signal table. ConfigError for one that cannot be captured."""
    debezium = debezium_settings(settings)
    tables = resolve_tables(session, settings)
    if _KEYS not in debezium.options:
        for problem in (problem for table in tables for problem in table.problems):
            raise ConfigError(problem.message, hint=problem.hint)
    if debezium.signal_table is None:
        return tables
    signals: SourceSettings = settings.source.model_copy(update={"tables": (debezium.signal_table,), "exclude": ()})
    known = {table.table for table in tables}
    more = resolve_tables(session, settings.model_copy(update={"source": signals}))
    return [*tables, *(table for table in more if table.table not in known)]


def _settled(session: Connection, clock: Clock, wait_s: float) -> bool:
    """Whether every transaction that is open now has ended within ``wait_s``."""
    before, deadline = barrier(session), clock.monotonic() + wait_s
    while not sees_all_of(session, before):
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(_POLL_S)
    return True


# Tables whose changes Debezium's Postgres connector does not carry whole: refused, before one of them is lost.
#
# Without the whole row before (REPLICA IDENTITY FULL) Postgres sends no value of a column that did not change and is
# stored out of line. Debezium writes a placeholder then, or NULL for types of which it has none, and no store is asked
# for what was there.

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
