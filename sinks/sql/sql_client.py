"""One connection to a SQL database and its transaction: what is applied commits with the watermark."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.errors import ConfigError, Exit, Retry, SinkError
from sinks.port import StoreAway
from sinks.sql.sql_faults import Fault, fault_of, kind_of, lacks_right
from sinks.sql.sql_login import refuses_login
from sinks.sql.sql_natives import keeps_natives, read_as_text
from sinks.store_facts import TIMEOUT_S, place
from sinks.store_retry import StoreRetry, brief, login_refused, unreachable
from sinks.tries import is_look

declare("sql_staged", "sql_before_commit", "sql_after_commit")

T = TypeVar("T")
_WITH_TIMEOUT = ("psycopg", "psycopg2", "pymysql", "mysqldb")
_OF_LIBPQ = ("psycopg", "psycopg2")
_OF_MYSQL = ("pymysql",)
_KEPT_ALIVE = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
_OPTIONS = {
    "keepalives_idle": socket.TCP_KEEPIDLE,
    "keepalives_interval": socket.TCP_KEEPINTVL,
    "keepalives_count": socket.TCP_KEEPCNT,
}
_UNCONFIRMED_MS = 10_000


class _Away(Exception):
    """Stands for an error that may pass."""

    def __init__(self, error: exc.SQLAlchemyError) -> None:
        super().__init__(kind_of(error))
        self.error = error


class Rejected(SinkError):
    """A statement that the database does not carry out, however often. ``fault``: what that is about."""

    exit = Exit.CONFIG
    retry = Retry.NEVER

    def __init__(self, message: str, *, hint: str = "", fault: Fault = Fault.TABLE, kind: str = "") -> None:
        super().__init__(message, hint=hint)
        self.fault = fault
        self.kind = kind


def connect_args(url: sa.URL) -> dict[str, int]:
    """The driver's options beside the url: for how long a server may be silent, as it connects (in seconds) and later.

    A look gives up bytes that nobody confirms (in ms): somebody waits for it. A batch may have to wait for a lock while
    the server takes no more bytes. Nothing where the url says it, or where the driver has no such option.
    """
    driver = url.get_driver_name()
    options = {"connect_timeout": int(TIMEOUT_S)} if driver in _WITH_TIMEOUT else {}
    if driver in _OF_LIBPQ:
        options |= _KEPT_ALIVE | ({"tcp_user_timeout": _UNCONFIRMED_MS} if is_look() else {})
    return {name: value for name, value in options.items() if name not in url.query}


class SqlClient:
    """Statements in one transaction that lasts until :meth:`commit`. One thread at a time."""

    def __init__(self, url: str, password: str | None, clock: Clock) -> None:
        try:
            parsed = sa.make_url(url)
            parsed = parsed.set(password=password) if password is not None else parsed
            self.engine = sa.create_engine(parsed, poolclass=sa.NullPool, connect_args=connect_args(parsed))
            if self.lite:
                _make_transactional(self.engine)
            if parsed.get_driver_name() in _OF_MYSQL:
                _keep_alive(self.engine)
            if keeps_natives(self.engine):
                read_as_text(self.engine)
        except (exc.ArgumentError, ImportError, ValueError) as error:
            raise ConfigError(
                f"SQLAlchemy cannot use the sink's url: {brief(str(error))}",
                hint='write url = "postgresql+psycopg://user@host/database"',
            ) from None
        self.store = f"the database {self.engine.dialect.name} at {parsed.database if self.lite else place(url)}"
        self._retry = StoreRetry(store=self.store, passing=(_Away,), explain=self._explained, clock=clock)
        self._connection: sa.Connection | None = None
        self._dirty = False
        self.read(lambda connection: connection.execute(sa.select(1)))

    @property
    def lite(self) -> bool:
        """Whether the database is SQLite."""
        return self.engine.dialect.name == "sqlite"

    def write(self, act: Callable[[sa.Connection], T]) -> T:
        """Do something in the open transaction, again from its beginning when the connection broke.

        StoreAway when it broke after something was written that is not committed: the caller has to replay that.
        Rejected where repeating is of no use: nothing is left then of what was not committed.
        """
        before = self._dirty

        def attempt() -> T:
            try:
                done = act(self._connected())
            except Exception as error:
                self._drop()
                raise self._fault(error, before) from None
            self._dirty = True
            crash_point("sql_staged")
            return done

        return self._retry.call(attempt)

    def read(self, act: Callable[[sa.Connection], T]) -> T:
        """Look something up, in the open transaction if there is one. Leaves none open otherwise.

        StoreAway as for :meth:`write`: a look on a new connection would hide that what was written is gone.
        """
        before = self._dirty

        def attempt() -> T:
            try:
                found = act(self._connected())
            except Exception as error:
                self._drop()
                raise self._fault(error, before) from None
            if not self._dirty:
                self._connected().rollback()
            return found

        return self._retry.call(attempt)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Turn an error on the caller's own connection into a SinkError."""
        try:
            yield
        except exc.SQLAlchemyError as error:
            raise self._explained(error) from None

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
        """Roll back what was not committed and end the connection. Raises nothing."""
        self._drop()
        with contextlib.suppress(Exception):
            self.engine.dispose()

    def _connected(self) -> sa.Connection:
        if self._connection is None:
            try:
                self._connection = self.engine.connect()
            except exc.OperationalError as error:
                if refuses_login(error, self.engine.url):
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

    def _fault(self, error: Exception, before: bool) -> Exception:
        """The error to raise for one of the driver's. ``before``: something had been written that is not committed."""
        if not isinstance(error, exc.SQLAlchemyError):
            return error
        if fault_of(error) is not Fault.AWAY:
            return self._explained(error)
        return self._lost() if before else _Away(error)

    def _lost(self) -> SinkError:
        return StoreAway(
            f"{self.store} dropped the connection before what was written was committed",
            hint="the sink replays it when it is started again",
        )

    def _explained(self, error: Exception) -> SinkError:
        if isinstance(error, _Away):
            error = error.error
        # A SQLAlchemyError's own text quotes the statement with its values.
        reason: Any = error.orig if isinstance(error, exc.DBAPIError) else error
        fault = fault_of(error)
        if fault is Fault.AWAY:
            return unreachable(self.store, str(reason))
        kind = kind_of(error)
        denied = lacks_right(error)
        hint = f"{brief(denied)}: compose/rights/warehouse.sql has the rights that a sink needs" if denied else ""
        return Rejected(f"{self.store} answers with an error: {kind}", hint=hint, fault=fault, kind=kind)


def _keep_alive(engine: sa.Engine) -> None:
    """The drivers of MySQL have no option for it: a server that vanished would be waited for, for ever."""

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        line = getattr(connection, "_sock", None)
        if isinstance(line, socket.socket) and line.family != socket.AF_UNIX:
            keep_alive(line)


def keep_alive(line: socket.socket) -> None:
    """Have the kernel ask a silent server whether it is there, as libpq's options do."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, number in _KEPT_ALIVE.items():
        line.setsockopt(socket.IPPROTO_TCP, _OPTIONS[name], number)
    if is_look():
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNCONFIRMED_MS)


def _make_transactional(engine: sa.Engine) -> None:
    """SQLite's driver begins transactions late and releases savepoints as commits, unless this turns it off."""

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma busy_timeout=30000")

    @sa.event.listens_for(engine, "begin")
    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("begin")
