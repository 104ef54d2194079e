"""Takes a token from an application's own connection, whichever driver made it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cdc.errors import SourceError, UsageError
from cdc.foreign import quoted
from cdc.sql import load
from cdc.tokens import Token

SQL = load("connectors.postgres", "token.sql")["token"]
_IDLE = 0
"""``transaction_status`` of psycopg and of psycopg2 outside a transaction."""


def token(connection: Any) -> Token:
    """Take a token on the connection that committed. Call it after the commit.

    ``connection``: of psycopg, psycopg2 or another DBAPI driver, or a Connection or Session of SQLAlchemy. The one
    statement needs no rights, and no transaction stays open behind it. A driver that does not say whether a
    transaction is open is an exception: the statement joins the transaction, which the caller ends.

    UsageError where a transaction is open, because a token from before a commit does not cover it, and for a
    connection that has to be awaited. SourceError where Postgres does not answer, or is a standby.
    """
    if hasattr(connection, "fetchrow") or inspect.iscoroutinefunction(getattr(connection, "commit", None)):
        raise UsageError("the connection is asynchronous", hint="await cdc.read.async_token(connection)")
    opened = _is_open(connection)
    try:
        return _parsed(_read(connection))
    finally:
        # The caller had no transaction, so the one that the statement began is not his. A session that has ended has
        # none either, and why it gave no token is said already.
        if opened is False:
            with suppress(Exception):
                connection.rollback()


async def async_token(connection: Any) -> Token:
    """The same on a connection of asyncpg, of psycopg's AsyncConnection, or an AsyncConnection or AsyncSession of
    SQLAlchemy. Raises as :func:`token`."""
    opened = _is_open(connection)
    try:
        return _parsed(await _read_async(connection))
    finally:
        if opened is False and hasattr(connection, "rollback"):
            with suppress(Exception):
                await connection.rollback()


def _is_open(connection: Any) -> bool | None:
    """False outside a transaction, None where the driver does not say. UsageError within one."""
    for name in ("in_transaction", "is_in_transaction"):
        asked = getattr(connection, name, None)
        if callable(asked):
            found = bool(asked())
            break
    else:
        status = getattr(getattr(connection, "info", None), "transaction_status", None)
        if status is None:
            return None
        found = int(status) != _IDLE
    if found:
        raise UsageError(
            "a transaction is open on this connection, and a token from before its commit does not cover it",
            hint="commit first, then take the token",
        )
    return False


def _read(connection: Any) -> Any:
    try:
        if hasattr(connection, "exec_driver_sql"):
            return connection.exec_driver_sql(SQL).fetchone()
        if hasattr(connection, "get_bind"):
            return connection.connection().exec_driver_sql(SQL).fetchone()
        cursor = connection.cursor()
        try:
            cursor.execute(SQL)
            return cursor.fetchone()
        finally:
            cursor.close()
    except Exception as error:
        # Each driver has errors of its own, and this module imports none.
        raise _refused(error) from error


async def _read_async(connection: Any) -> Any:
    try:
        if hasattr(connection, "fetchrow"):
            return await connection.fetchrow(SQL)
        if hasattr(connection, "exec_driver_sql"):
            return (await connection.exec_driver_sql(SQL)).fetchone()
        if hasattr(connection, "get_bind"):
            return (await (await connection.connection()).exec_driver_sql(SQL)).fetchone()
        return await (await connection.execute(SQL)).fetchone()
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
    return Token.parse(str(found))
