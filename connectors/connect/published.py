"""The publication of a Debezium connector for Postgres: made here, because Debezium's own way can stop all capture.

By ``publication.autocreate.mode=filtered`` Debezium 3.7 alters the publication at every start. Together with
``skipped.operations`` it sends a statement that no Postgres parses, and tries it again for ever while every state says
RUNNING. The same happens at once where a partitioned table is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from cdc.clock import Clock
from cdc.errors import ConfigError
from cdc.settings import Settings, SourceSettings
from cdc.state import TopicsState
from cdc.topic import TableName
from connectors.connect.identities import partial_within
from connectors.debezium.connector_config import debezium_settings
from connectors.debezium.regex import includes
from connectors.postgres.barrier import barrier, sees_all_of
from connectors.postgres.catalog_facts import read_publication
from connectors.postgres.catalog_shapes import CapturedTable, resolve_tables
from connectors.postgres.connections import Connection, connect
from connectors.postgres.publication import ensure_publication

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
