"""Reads from a server what :mod:`cdc.checks` judges and ``cdc status`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

from cdc.process.errors import CdcError, ConfigError, SourceError
from cdc.process.sql_files import load
from cdc.process.untrusted_text import quoted
from cdc.record.server_facts import (
    MARKS,
    PublicationFacts,
    Refusal,
    Sent,
    ServerFacts,
    SlotFacts,
    SourceFacts,
    TableFacts,
    TransactionFacts,
    provider_of,
)
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, SourceSettings
from connectors.postgres.server.catalog_shapes import CapturedTable, survey
from connectors.postgres.server.connections import LOOK_LIMITS, ReplicationRefused, connect
from connectors.postgres.server.outbox_table import read_outbox

Connection = psycopg.Connection[Any]

LONG_TRANSACTION_S = 300.0
_NOT_OFFERED = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.FeatureNotSupported,
)
"""What a server answers that does not offer what it is asked for."""


def read_source(conn: Connection, settings: Settings) -> SourceFacts:
    """Everything the checks look at."""
    missing: list[ConfigError] = []
    tables = survey(conn, settings, missing.append)
    return SourceFacts(
        server=read_server(conn),
        slot=read_slot(conn, settings.slot),
        publication=read_publication(conn, settings.publication),
        tables=tuple(map(_table, tables.tables)),
        left_out=tuple((out.table, out.reason) for out in tables.left_out),
        transactions=read_transactions(conn),
        missing=tuple((error.message, error.hint or "") for error in missing),
        hidden=_rows(conn, "hidden")[0]["exists"],
        replication=try_replication(settings.source),
        outbox=read_outbox(conn, settings),
    )


def try_replication(source: SourceSettings) -> Refusal | None:
    """Open a replication session, and close it. The refusal, None where there was none."""
    try:
        connect(source, application_name="cdc", replication=True, options=LOOK_LIMITS).close()
    except ReplicationRefused as error:
        return Refusal(error.message, error.hint, by_right=True, passing=False)
    except CdcError as error:
        return Refusal(error.message, error.hint, by_right=False, passing=isinstance(error, SourceError))
    return None


def read_server(conn: Connection) -> ServerFacts:
    """The server, its settings, and our role on it.

    Facts that a provider may take away are asked apart. ConfigError where it does not say which system it is.
    """
    (row,) = _rows(conn, "server", marks=list(MARKS))
    provider = provider_of(set(row.pop("settings")), set(row.pop("roles")))
    timeline = _offered(conn, "timeline")
    return ServerFacts(
        **row | {"standbys_away": tuple(row["standbys_away"])},
        provider=provider,
        system_identifier=_value(conn, "system_identifier"),
        timeline=timeline if timeline is not None else _value(conn, "noted_timeline"),
        wal_lsn=_offered(conn, "wal_lsn"),
    )


def read_slot(conn: Connection, slot: str) -> SlotFacts | None:
    """The slot of that name, None when there is none."""
    rows = _rows(conn, "slot", slot=slot)
    return SlotFacts(**rows[0]) if rows else None


def read_publication(conn: Connection, publication: str) -> PublicationFacts | None:
    """The publication of that name, None when there is none."""
    rows = _rows(conn, "publication", publication=publication)
    if not rows:
        return None
    tables = _rows(conn, "published", publication=publication)
    return PublicationFacts(
        publication=rows[0]["publication"],
        operations=frozenset(rows[0]["operations"]),
        via_root=rows[0]["via_root"],
        tables=frozenset(TableName(row["schema"], row["name"]) for row in tables),
        filtered=frozenset(TableName(row["schema"], row["name"]) for row in tables if row["filtered"]),
        sent={
            TableName(row["schema"], row["name"]): Sent(row["oid"], row["sends"], row["born"], row["listed"])
            for row in tables
        },
    )


def unpublishable(conn: Connection, tables: Sequence[TableName]) -> str:
    """The rights that our role lacks to make a publication of these tables, as a clause. Empty where nothing."""
    (row,) = _rows(conn, "publishing", tables=[str(table) for table in tables])
    lacking = [] if row["may_create"] else ["may not create in the database"]
    if row["of_others"]:
        lacking.append(f"does not own {', '.join(row['of_others'])}")
    return " and ".join(lacking)


def read_relations(conn: Connection, tables: Sequence[str], oids: Sequence[int]) -> dict[int, TableName]:
    """Oid -> name of the tables that have one of these names (``schema.table``) or oids."""
    rows = _rows(conn, "named", tables=list(tables), oids=list(oids))
    return {row["oid"]: TableName(row["schema"], row["name"]) for row in rows}


def read_transactions(conn: Connection, age_s: float = LONG_TRANSACTION_S) -> tuple[TransactionFacts, ...]:
    """The five oldest transactions that have been open for more than ``age_s``."""
    return tuple(TransactionFacts(**row) for row in _rows(conn, "transactions", age_s=age_s))


def _table(table: CapturedTable) -> TableFacts:
    return TableFacts(
        table=table.table,
        topic=table.topic,
        identity=table.identity,
        key=table.key,
        problems=tuple((problem.message, problem.hint) for problem in table.problems),
        generated=table.generated,
        children=table.children,
    )


def _offered(conn: Connection, name: str) -> Any | None:
    """A fact of its own, None where the server refuses it. Nothing else that was asked is lost with it."""
    try:
        with conn.transaction():
            return _value(conn, name)
    except ConfigError:
        return None


def _value(conn: Connection, name: str) -> Any:
    (row,) = _rows(conn, name)
    (value,) = row.values()
    return value


def _rows(conn: Connection, name: str, **arguments: Any) -> list[dict[str, Any]]:
    query = load("connectors.postgres.server", "facts.sql")[name]
    try:
        with conn.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, arguments or None).fetchall()
    except _NOT_OFFERED as refused:
        raise ConfigError(
            f"Postgres refuses to answer: {refused.diag.message_primary}",
            hint="connectors/postgres/PROVIDERS.md says what a provider has to offer",
        ) from None
    except psycopg.Error as error:
        raise SourceError(f"Postgres broke off while it was looked at: {quoted(error)}") from None
