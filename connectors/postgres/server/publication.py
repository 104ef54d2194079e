"""The publication: what the server sends. Made for exactly the captured tables, or checked."""

from __future__ import annotations

from collections.abc import Sequence, Set

import psycopg
from psycopg import sql

from cdc.process.errors import ConfigError, SourceError
from cdc.process.sql_files import load
from cdc.process.untrusted_text import quoted
from cdc.record.server_facts import SourceFacts
from cdc.record.topic_names import TableName
from connectors.postgres.server.catalog_facts import read_publication, unpublishable
from connectors.postgres.server.catalog_shapes import CapturedTable
from connectors.postgres.server.connections import Connection
from connectors.postgres.server.table_problems import GENERATED_SINCE

_SQL = "stream.sql"


EVERY_OPERATION = frozenset({"insert", "update", "delete", "truncate"})


def ensure_publication(
    conn: Connection,
    name: str,
    tables: Sequence[CapturedTable],
    *,
    may_add: bool = True,
    operations: Set[str] = EVERY_OPERATION,
) -> bool:
    """Make the publication, or check the one that exists. True when it was made.

    Changes of a partition come under its root, and stored generated columns come along where the server can
    send them (18). One that lacks a table gets it. Where a slot has been made already, its earlier rows are for a later
    snapshot to bring, which has to be asked for before. ``may_add=False`` refuses it. ``operations``: those
    that one which exists has to publish at least. Raises ConfigError with the SQL that helps when it does not fit, or
    when our role may not make or change it.
    """
    found = read_publication(conn, name)
    if found is None:
        _change(conn, _create(conn), name, [table.table for table in tables])
        return True
    if not operations <= found.operations:
        raise ConfigError(
            f"the publication {name} publishes only {', '.join(sorted(found.operations)) or 'nothing'}",
            hint=f"{_statement(conn, 'every_operation', name)};",
        )
    if not found.via_root and any(table.partitioned for table in tables):
        raise ConfigError(
            f"the publication {name} sends changes of partitions under the partitions' names",
            hint=f"{_statement(conn, 'via_root', name)};",
        )
    missing = sorted(table.table for table in tables if table.table not in found.tables)
    if missing and not may_add:
        raise ConfigError(
            f"the publication {name} lacks {', '.join(map(str, missing))}",
            hint="leave it out for now ([source] exclude); add it when the handover is over: cdc init",
        )
    if missing:
        _change(conn, "add", name, missing)
    return False


def refused_publication(conn: Connection, facts: SourceFacts, name: str) -> tuple[str, str] | None:
    """Why the publication, which is not there yet, cannot be made by our role, and the SQL for who can. None if it can
    be made, or is there."""
    tables = [table.table for table in facts.tables]
    if facts.outbox is not None and facts.outbox.table is not None:
        tables.append(facts.outbox.table)
    why = "" if facts.publication is not None else unpublishable(conn, tables)
    if not why:
        return None
    statement = _statement(conn, _create(conn), name, tables)
    return f"the role {facts.server.role} cannot make the publication {name}: it {why}", (
        f"let the tables' owner run: {statement};"
    )


def publish_everything(conn: Connection, name: str) -> bool:
    """Let the publication send every operation, TRUNCATE too. True when it did not. ConfigError when it is not ours."""
    found = read_publication(conn, name)
    if found is None or found.operations == EVERY_OPERATION:
        return False
    _change(conn, "every_operation", name)
    return True


def drop_publication(conn: Connection, name: str) -> bool:
    """Drop it. False when there is none. ConfigError when it is not ours to drop."""
    if read_publication(conn, name) is None:
        return False
    _change(conn, "drop_publication", name)
    return True


def _change(conn: Connection, statement: str, name: str, tables: Sequence[TableName] = ()) -> None:
    text = _statement(conn, statement, name, tables)
    try:
        with conn.transaction():
            conn.execute(load(__package__, _SQL)["lock_timeout"].encode())
            conn.execute(text.encode())
    except psycopg.errors.LockNotAvailable:
        raise SourceError(
            f"the publication {name} cannot be changed now: one of the tables is locked",
            hint=f"run the command again when the lock is gone; pg_locks and pg_stat_activity name who has it. {text};",
        ) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"the role {conn.info.user} may not change the publication {name}: {error.diag.message_primary}",
            hint=f"let the owner of the tables and the publication run: {text};",
        ) from None
    except psycopg.errors.DatabaseError as error:
        raise SourceError(
            f"the publication {name} cannot be changed: {quoted(error.diag.message_primary or error)}",
            hint=f"the statement was: {text};",
        ) from None


def _create(conn: Connection) -> str:
    return "create_18" if conn.info.server_version >= GENERATED_SINCE else "create"


def _statement(conn: Connection, statement: str, name: str, tables: Sequence[TableName] = ()) -> str:
    template = sql.SQL(" ".join(load(__package__, _SQL)[statement].split()))
    listed = sql.SQL(", ").join(sql.SQL("only ") + sql.Identifier(table.schema, table.table) for table in tables)
    return template.format(publication=sql.Identifier(name), tables=listed).as_string(conn)
