"""One connection to a SQL database and its transaction: what is applied commits with the watermark. And who is
there."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, TypeVar

import sqlalchemy
import sqlalchemy as sa
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, exc

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ConfigError, Exit, Retry, SinkError
from cdc.process.untrusted_text import quoted
from cdc.record.server_facts import StoreFacts
from cdc.settings.dsn import answer
from sinks.contract.attempt_limits import is_look
from sinks.contract.port import StoreAway
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_connection import (
    TIMEOUT_S,
    StoreRetry,
    brief,
    login,
    login_refused,
    place,
    unreachable,
    unreached,
)
from sinks.sql.sql_natives import keeps_natives, read_as_text

# The subject of a database's error: pure. By SQLSTATE where there is one, by SQLite's words, else by its class.
#
# A SQLAlchemyError's own text quotes the statement with its values, so of the text no more than names is used.


class Fault(Enum):
    """The three kinds of :mod:`sinks.contract.port`. Of what cannot be taken it says what."""

    AWAY = "away"
    MISSING = "missing"
    TABLE = "table"
    RECORD = "record"


_STATES: tuple[tuple[tuple[str, ...], Fault], ...] = (
    # An undefined table, an undefined schema.
    (("42P01", "3F000"), Fault.MISSING),
    # Not null: a column of the user's, or one of ours, which no delete fits. 54: too many columns, or of arguments.
    (("23502", "42", "54011", "54023", "55000", "2B"), Fault.TABLE),
    (("22", "23", "54", "44", "P0", "38", "39", "09"), Fault.RECORD),
)
"""The beginnings of SQLSTATEs (PostgreSQL's appendix A), the first that fits. All others may pass: no connection, no
room, a deadlock, a lock that was not had, a transaction that may not write."""

NO_RIGHT = "42501"

_LITE: tuple[tuple[str, Fault], ...] = (
    ("no such table", Fault.MISSING),
    ("has no column", Fault.TABLE),
    ("no such column", Fault.TABLE),
    ("too many columns", Fault.TABLE),
    ("may not be modified", Fault.TABLE),
    ("cannot modify", Fault.TABLE),
    ("duplicate column", Fault.TABLE),
    ("NOT NULL constraint failed", Fault.TABLE),
)
"""Parts of SQLite's messages (sqlite3 has no state, and calls most of these OperationalError)."""
_LITE_NAMED = re.compile(r"(?:no column named|no such column:|constraint failed:) (?:\w+\.)?(\w+)")


def fault_of(error: Exception) -> Fault:
    """The fault behind an exception of SQLAlchemy's."""
    if not isinstance(error, exc.DBAPIError):
        # A value that SQLAlchemy itself cannot pass on, or its own idea of the table.
        return Fault.RECORD if isinstance(error, exc.StatementError) else Fault.TABLE
    state = state_of(error)
    if state:
        return next((fault for states, fault in _STATES if state.startswith(states)), Fault.AWAY)
    text = str(error.orig)
    for words, fault in _LITE:
        if words in text:
            return fault
    if isinstance(error, exc.DataError | exc.IntegrityError):
        return Fault.RECORD
    return Fault.TABLE if isinstance(error, exc.ProgrammingError | exc.NotSupportedError) else Fault.AWAY


def state_of(error: Exception) -> str:
    """The SQLSTATE. Empty where there is none."""
    cause: Any = error.orig if isinstance(error, exc.DBAPIError) else error
    return getattr(cause, "sqlstate", None) or ""


def lacks_right(error: Exception) -> str:
    """Postgres's own sentence on a missing right: it names a table or schema, and no value. Empty elsewhere."""
    cause: Any = error.orig if isinstance(error, exc.DBAPIError) else error
    return str(cause.diag.message_primary or "") if state_of(error) == NO_RIGHT else ""


def kind_of(error: Exception) -> str:
    """The kind of an error, without its text, which may quote a row. With the column that it names."""
    cause: Any = error.orig if isinstance(error, exc.DBAPIError) else error
    state = state_of(error)
    named = getattr(getattr(cause, "diag", None), "column_name", None)
    if named is None and not state:
        found = _LITE_NAMED.search(str(cause))
        named = found[1] if found else None
    kind = f"{type(cause).__name__} (SQLSTATE {state})" if state else type(cause).__name__
    return f"{kind} at column {named}" if named else kind


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


_POSTGRES = ("psycopg", "psycopg2")
_INVALID_LOGIN = "28"
"""The class of SQLSTATEs."""
_MYSQL = (1044, 1045, 1698)


def refuses_login(error: exc.SQLAlchemyError, url: URL) -> bool:
    """Whether a connection to ``url`` failed for its login. Postgres is asked once more: its drivers do not say."""
    original = error.orig if isinstance(error, exc.DBAPIError) else error
    state = state_of(error)
    if state or url.get_driver_name() not in _POSTGRES:
        code = next(iter(getattr(original, "args", ())), None)
        return state.startswith(_INVALID_LOGIN) or code in _MYSQL
    if getattr(getattr(original, "pgconn", None), "needs_password", False):
        return True
    _, options = url.get_dialect()().create_connect_args(url)
    return answer(make_conninfo("", **{"connect_timeout": 5, **options})).startswith(_INVALID_LOGIN)


def probe_sql(spec: SinkSpec) -> StoreFacts:
    """A database that SQLAlchemy speaks: its dialect and its version.

    Raises ConfigError for a URL or a login that does not fit, SinkError when the database does not answer.
    """
    url, password = spec.text("url"), spec.secrets.get("password")
    try:
        parsed = sqlalchemy.make_url(url)
        parsed = parsed.set(password=password) if password is not None else parsed
        engine = sqlalchemy.create_engine(parsed, connect_args=connect_args(parsed))
    except (sqlalchemy.exc.ArgumentError, ImportError, ValueError) as error:
        raise ConfigError(
            f"SQLAlchemy cannot use the url: {quoted(str(error))}", hint='write url = "postgresql+psycopg://..."'
        ) from None
    where = f"{parsed.host or 'localhost'}:{parsed.port}" if parsed.port else str(parsed.host or parsed.database)
    try:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("select 1"))
            version = ".".join(str(part) for part in connection.dialect.server_version_info or ())
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = quoted(str(error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error))
        if refuses_login(error, parsed):
            raise login(where, reason) from None
        raise unreached("the database", where, reason, "url") from None
    finally:
        engine.dispose()
    return StoreFacts(product=engine.dialect.name, version=version)
