"""Takes a token from an application's own connection, whichever driver made it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cdc.process.errors import CdcError, SourceError, UsageError
from cdc.process.sql_files import load
from cdc.process.untrusted_text import quoted
from cdc.record.tokens import Token

SQL = load("connectors.postgres.server", "stream.sql")["token"]
_OPEN = "a transaction is open"
"""The statement's answer within a transaction that has written."""
_IDLE, _ACTIVE, _FAILED, _GONE = 0, 1, 3, 4
"""``transaction_status`` of psycopg and of psycopg2."""


def token(connection: Any) -> Token:
    """Take a token on the connection that committed. Call it after the commit.

    ``connection``: of psycopg, psycopg2 or another DBAPI driver, or a Connection or Session of SQLAlchemy. A Session
    is not touched: the token comes from another connection of its engine. The one statement needs no rights, and no
    transaction stays open behind it. A driver that does not say whether a transaction is open is an exception: the
    statement joins the transaction, which the caller ends.

    UsageError where a transaction is open, because a token from before a commit does not cover it, and for a
    connection that has to be awaited. Where the driver does not say so, the server does, of a transaction that has
    written. SourceError where Postgres does not answer, or is a standby.
    """
    connection = _within(connection)
    if hasattr(connection, "fetchrow") or inspect.iscoroutinefunction(getattr(connection, "commit", None)):
        raise UsageError("the connection is asynchronous", hint="await cdc.read.async_token(connection)")
    began = _begins(connection)
    try:
        return _parsed(_read(connection))
    finally:
        # The caller had no transaction, so the one that the statement began is not his. A session that has ended has
        # none either, and why it gave no token is said already.
        if began:
            with suppress(Exception):
                connection.rollback()


async def async_token(connection: Any) -> Token:
    """The same on a connection of asyncpg, of psycopg's AsyncConnection, or an AsyncConnection or AsyncSession of
    SQLAlchemy. Raises as :func:`token`."""
    connection = _within(connection)
    began = _begins(connection)
    try:
        return _parsed(await _read_async(connection))
    finally:
        if began and hasattr(connection, "rollback"):
            with suppress(Exception):
                await connection.rollback()


def _within(connection: Any) -> Any:
    """The session of this thread or task, where SQLAlchemy's scoped ones stand before it. They do not say whether a
    transaction is open, and a session may hold what it has not sent yet."""
    registry = getattr(connection, "registry", None)
    return registry() if callable(registry) else connection


def _begins(connection: Any) -> bool:
    """Whether the statement begins a transaction that is to be ended behind it. UsageError within a transaction,
    SourceError for a connection that is closed."""
    for name in ("in_transaction", "is_in_transaction"):
        asked = getattr(connection, name, None)
        if callable(asked):
            opened = bool(asked())
            if opened and not _commits_itself(connection):
                raise _too_early()
            # A Session is not asked, and a rollback would have it forget what it has loaded.
            return not opened and not hasattr(connection, "get_bind")
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if status is None:
        return False
    _check(int(status))
    return True


def _check(status: int) -> None:
    if status == _GONE:
        raise SourceError("Postgres gives no token: the connection is closed", hint="take it on another one")
    if status == _ACTIVE:
        raise UsageError(
            "a statement is under way on this connection, and a token from before its end does not cover it",
            hint="read its result, leave the pipeline, and then take the token",
        )
    if status == _FAILED:
        raise UsageError(
            "the transaction on this connection has failed, and it commits nothing",
            hint="roll it back, write again, commit, and then take the token",
        )
    if status != _IDLE:
        raise _too_early()


def _commits_itself(connection: Any) -> bool:
    """Whether each statement on a Connection of SQLAlchemy is a transaction of its own, though it says that one is
    open."""
    held = getattr(getattr(connection, "sync_connection", connection), "connection", None)
    return getattr(held, "autocommit", False) is True


def _too_early() -> UsageError:
    return UsageError(
        f"{_OPEN} on this connection, and a token from before its commit does not cover it",
        hint="commit first, then take the token",
    )


def _read(connection: Any) -> Any:
    try:
        if hasattr(connection, "exec_driver_sql"):
            return connection.exec_driver_sql(SQL).fetchone()
        if hasattr(connection, "get_bind"):
            return _read_beside(connection)
        cursor = connection.cursor()
        try:
            cursor.execute(SQL)
            return cursor.fetchone()
        finally:
            cursor.close()
    except CdcError:
        raise
    except Exception as error:
        # Each driver has errors of its own, and this module imports none.
        raise _refused(error) from error


def _read_beside(session: Any) -> Any:
    """Ask on a connection beside a Session. It has none of its own outside a transaction, and the LSN is the server's.
    One that was given a Connection joins the transaction there, if one is open."""
    bind = session.get_bind()
    if hasattr(bind, "exec_driver_sql"):
        return _read_between(bind)
    with bind.connect() as connection:
        return connection.exec_driver_sql(SQL).fetchone()


def _read_between(connection: Any) -> Any:
    began = _begins(connection)
    try:
        return connection.exec_driver_sql(SQL).fetchone()
    finally:
        if began:
            connection.rollback()


async def _read_async(connection: Any) -> Any:
    try:
        if hasattr(connection, "fetchrow"):
            return await connection.fetchrow(SQL)
        if hasattr(connection, "exec_driver_sql"):
            return (await connection.exec_driver_sql(SQL)).fetchone()
        if hasattr(connection, "get_bind"):
            return await connection.run_sync(_read_beside)
        return await (await connection.execute(SQL)).fetchone()
    except CdcError:
        raise
    except Exception as error:
        raise _refused(error) from error


def _refused(error: Exception) -> SourceError:
    return SourceError(
        f"Postgres gives no token: {quoted(error)}", hint="take it on the primary, on the connection that committed"
    )


def _parsed(row: Any) -> Token:
    """The only column of a row, whatever row factory made it."""
    if isinstance(row, Mapping):
        found = next(iter(row.values()))
    elif isinstance(row, str) or row is None:
        found = row
    else:
        found = row.token if hasattr(row, "token") else row[0]
    if found is None:
        raise SourceError(
            "the connection leads to a standby, which commits nothing",
            hint="take the token on the primary, on the connection that committed",
        )
    if found == _OPEN:
        raise _too_early()
    return Token.parse(str(found))
