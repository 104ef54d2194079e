"""One connection to a SQL database and its transaction: what is applied commits with the watermark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.errors import ConfigError, SinkError
from sinks.facts import place
from sinks.patience import Patience, brief, login_refused, unreachable

declare("sql_staged", "sql_before_commit", "sql_after_commit")

T = TypeVar("T")
_PASSING = (exc.OperationalError, exc.InterfaceError)
_LOGIN = ("password", "denied", "authentication", "no pg_hba.conf entry")


class SqlClient:
    """Statements in one transaction that lasts until :meth:`commit`. One thread at a time."""

    def __init__(self, url: str, password: str | None, clock: Clock) -> None:
        try:
            parsed = sa.make_url(url)
            parsed = parsed.set(password=password) if password is not None else parsed
            self.engine = sa.create_engine(parsed, poolclass=sa.NullPool)
            if self.lite:
                _make_transactional(self.engine)
        except (exc.ArgumentError, ImportError, ValueError) as error:
            raise ConfigError(
                f"SQLAlchemy cannot use the sink's url: {brief(str(error))}",
                hint='write url = "postgresql+psycopg://user@host/database"',
            ) from None
        self.store = f"the database {self.engine.dialect.name} at {parsed.database if self.lite else place(url)}"
        self._patience = Patience(store=self.store, passing=_PASSING, explain=self._explained, clock=clock)
        self._connection: sa.Connection | None = None
        self._dirty = False
        self.read(lambda connection: connection.execute(sa.select(1)))

    @property
    def lite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def write(self, act: Callable[[sa.Connection], T]) -> T:
        """Do something in the open transaction, again from its beginning when the connection broke.

        SinkError when it broke after something was written that is not committed: the caller has to replay that.
        """
        before = self._dirty

        def attempt() -> T:
            try:
                done = act(self._connected())
            except _PASSING:
                self._drop()
                if before:
                    raise self._lost() from None
                raise
            except Exception:
                self._drop()
                raise
            self._dirty = True
            crash_point("sql_staged")
            return done

        return self._patience.call(attempt)

    def read(self, act: Callable[[sa.Connection], T]) -> T:
        """Look something up, in the open transaction if there is one; leaves none open otherwise.

        SinkError as for :meth:`write`: a look on a new connection would hide that what was written is gone.
        """
        before = self._dirty

        def attempt() -> T:
            try:
                found = act(self._connected())
            except _PASSING:
                self._drop()
                if before:
                    raise self._lost() from None
                raise
            if not self._dirty:
                self._connected().rollback()
            return found

        return self._patience.call(attempt)

    def commit(self) -> None:
        """Make durable and visible what was written."""
        if not self._dirty:
            return
        try:
            crash_point("sql_before_commit")
            self._connected().commit()
        except exc.SQLAlchemyError as error:
            self._drop()
            raise self._explained(error) from None
        crash_point("sql_after_commit")
        self._dirty = False

    def close(self) -> None:
        self._drop()
        with contextlib.suppress(Exception):
            self.engine.dispose()

    def _connected(self) -> sa.Connection:
        if self._connection is None:
            try:
                self._connection = self.engine.connect()
            except exc.OperationalError as error:
                if any(word in str(error.orig) for word in _LOGIN):
                    raise login_refused(self.store, str(error.orig)) from None
                raise
        return self._connection

    def _drop(self) -> None:
        """Let the connection go, and with it what was not committed."""
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
        self._connection = None
        self._dirty = False

    def _lost(self) -> SinkError:
        return SinkError(
            f"{self.store} dropped the connection before what was written was committed",
            hint="the sink replays it when it is started again",
        )

    def _explained(self, error: Exception) -> SinkError:
        # A SQLAlchemyError's own text quotes the statement with its values.
        reason: Any = error.orig if isinstance(error, exc.DBAPIError) else error
        if isinstance(error, _PASSING):
            return unreachable(self.store, str(reason))
        return SinkError(f"{self.store} answers with an error: {kind_of(error)}")


def kind_of(error: Exception) -> str:
    """What kind of error it is, without its text, which may quote a row."""
    cause: Any = error.orig if isinstance(error, exc.DBAPIError) else error
    state = getattr(cause, "sqlstate", None)
    return f"{type(cause).__name__} (SQLSTATE {state})" if state else type(cause).__name__


def _make_transactional(engine: sa.Engine) -> None:
    """SQLite's driver begins transactions late and releases savepoints as commits, unless told not to."""

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma busy_timeout=30000")

    @sa.event.listens_for(engine, "begin")
    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("begin")
