"""Sessions with Postgres: one way in, so that every part reads values in the same text form, and why it may be refused.

The text of a value depends on settings that a role or a database may change, and a
role's timeouts would kill an open snapshot. Both are pinned in the startup packet. A server's refusal is recognised by
its SQLSTATE, in any language.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import psycopg
from psycopg import sql, waiting
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import ConfigError, Retry, SourceError
from cdc.process.sql_files import load
from cdc.process.untrusted_text import hide
from cdc.settings.dsn import answer, parts_of, place_of, trusting
from cdc.settings.model import SourceSettings
from cdc.settings.secret_reference import patiently

# A session whose answers are waited for with an eye on the clock.
#
# Timeouts of the server end what the server does. One whose process stands still ends nothing, and keeps its
# connection.

LIMIT_S = 120.0
"""The longest silence. Statements of such a session take seconds at most, and an answer of many rows comes in parts."""
_TURN_S = 0.1
_ASK_S = 0.5
"""How often ``turn`` is called while bytes come."""
_Answer = TypeVar("_Answer")


class WatchedConnection(psycopg.Connection[Any]):
    """``turn`` is called several times a second while the server is waited for, and may raise. Behind that the session
    is of no use, nor is it where nothing came for ``limit_s``."""

    turn: Callable[[], None] | None = None
    limit_s = LIMIT_S

    def wait(self, gen: PQGen[_Answer], interval: float = _TURN_S, timeout: float | None = None) -> _Answer:
        """The answer, as psycopg has it. psycopg.OperationalError when nothing of it came for ``limit_s``."""
        watched = gen if self.turn is None else self._watched(gen, self.turn)
        return waiting.wait_selector(watched, self.pgconn.socket, interval=interval, timeout=timeout)

    def _watched(self, gen: PQGen[_Answer], turn: Callable[[], None]) -> PQGen[_Answer]:
        heard_s = asked_s = SYSTEM_CLOCK.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now_s = SYSTEM_CLOCK.monotonic()
                if ready:
                    # A part of an answer. Over a slow link all of one may take longer than the limit.
                    heard_s = now_s
                if not ready or now_s - asked_s > _ASK_S:
                    asked_s = now_s
                    turn()
                if now_s - heard_s > self.limit_s:
                    raise psycopg.OperationalError(f"the server has not answered for {self.limit_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            found: _Answer = end.value
            return found


Connection = psycopg.Connection[tuple[Any, ...]]

PINNED: Mapping[str, str] = MappingProxyType(
    {
        "DateStyle": "ISO",
        "IntervalStyle": "iso_8601",
        "extra_float_digits": "3",
        "TimeZone": "UTC",
        "bytea_output": "hex",
        "lc_monetary": "C",
        "search_path": "pg_catalog",
        "standard_conforming_strings": "on",
        "row_security": "off",
        "statement_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        # The server's side too: what a machine that vanished had locked (the writers' lock) is free within a minute.
        "tcp_keepalives_idle": "15",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "4",
    }
)
"""Settings of every session. ``row_security=off`` makes Postgres raise instead of hiding rows."""

_NEWER = {"transaction_timeout": 170000, "idle_session_timeout": 140000}
"""More timeouts of a role that would end our sessions, and the version that has them first. Older servers refuse them
in the startup packet. They are set alone: a short timeout may end a statement that takes longer."""
_OF_THE_LINE = "tcp_"
"""Settings of this kind read as 0 over a local socket."""

_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
LOOK_LIMITS: Mapping[str, str] = MappingProxyType({"lock_timeout": "5s", "statement_timeout": "30s"})
"""Of sessions that look, for a person who waits: the server ends what takes longer, such as a lock on the catalog."""
_CONNECT_TIMEOUT_S = 10
_LOCK_CLASS = 0x43444301  # "CDC" and a version
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def connect(
    settings: SourceSettings,
    *,
    application_name: str = "cdc",
    replication: bool = False,
    autocommit: bool = True,
    options: Mapping[str, str] = _NO_OPTIONS,
    turn: Callable[[], None] | None = None,
    limit_s: float = LIMIT_S,
) -> Connection:
    """A session with the source, its text format and timeouts pinned.

    ``replication``: a walsender session of the same database. Plain SQL works there too. ``options``: more
    server settings for the startup packet, over the pinned ones. ``turn``: called while an answer is waited for,
    for ``limit_s`` seconds at most, see :class:`WatchedConnection`. Raises SourceError when
    the server cannot be reached, ConfigError when it refuses who we are or what we ask for, or when a pooler stands
    before it. Neither holds the password. A refused login is tried again for some seconds, with the secret read anew,
    unless ``turn`` is given: a process that runs on has more time, see
    :class:`cdc.settings.secret_reference.RefusedLogin`.
    """
    opening = partial(_opened, settings, application_name, replication, autocommit, options, turn, limit_s)
    return opening() if turn or options is LOOK_LIMITS else patiently(opening, SYSTEM_CLOCK)


def _opened(
    settings: SourceSettings,
    application_name: str,
    replication: bool,
    autocommit: bool,
    options: Mapping[str, str],
    turn: Callable[[], None] | None,
    limit_s: float,
) -> Connection:
    conninfo = _conninfo(settings, application_name, replication, {**PINNED, **options})
    try:
        connection: Connection = (WatchedConnection if turn else psycopg.Connection).connect(conninfo, autocommit=True)
    except psycopg.Error as error:
        raise connect_error(error, settings, conninfo, replication=replication) from None
    with ExitStack() as opened:
        # A stop may be heard before it is anybody's.
        opened.callback(connection.close)
        if isinstance(connection, WatchedConnection):
            connection.turn, connection.limit_s = turn, limit_s
        try:
            _require_pinned(connection, settings, options)
            connection.autocommit = autocommit
        except psycopg.Error as error:
            raise SourceError(f"Postgres at {describe(settings)} broke off: {first_line(error)}") from None
        opened.pop_all()
    return connection


def _require_pinned(connection: Connection, settings: SourceSettings, options: Mapping[str, str]) -> None:
    """Set what older servers do not know, and read all back: a pooler drops settings, or changes the backend."""
    newer = [name for name, since in _NEWER.items() if name not in options and connection.info.server_version >= since]
    for name in newer:
        connection.execute(sql.SQL("set {} = 0").format(sql.Identifier(name)))
    asked = {name: value for name, value in PINNED.items() if name not in options and not name.startswith(_OF_THE_LINE)}
    asked |= dict.fromkeys(newer, "0")
    statement = sql.SQL(load("connectors.postgres.server")["session"]).format(names=sql.Literal(list(asked)))
    rows = connection.execute(statement).fetchall()
    lost = [name for name, value, _ in rows if value is not None and value.partition(",")[0] != asked[name]]
    where, parts = describe(settings), parts_of(settings.dsn)
    if lost:
        raise pooler(where, f"the session does not have the settings that were asked for ({', '.join(lost)})", parts)
    pid = rows[0][2]
    # A proxy that keeps one backend for a session has numbers of its own: only one that changes is refused.
    if pid != connection.info.backend_pid and connection.execute(statement).fetchall()[0][2] != pid:
        raise pooler(where, "the session changes its server process between statements", parts)


def writer_lock(name: str) -> tuple[int, int]:
    """The advisory lock (two int4) under which a pipeline's topics are written.

    Snapshot workers hold it shared for their whole life, capture exclusively: an orphaned worker must not write
    a row behind a streamed event, nor two captures write at once.
    """
    number = crc32(name.encode())
    return _LOCK_CLASS, number - (1 << 32) if number >= 1 << 31 else number


def first_line(error: Exception) -> str:
    """The line of an error that a sentence of ours can quote. The rest is detail, and may hold row data."""
    return hide((str(error).strip().splitlines() or ["no reason given"])[0])


def describe(settings: SourceSettings) -> str:
    """Where the source is, without anything secret: ``host:port/dbname``."""
    return place_of(parts_of(settings.dsn))


def _conninfo(settings: SourceSettings, application_name: str, replication: bool, server: Mapping[str, str]) -> str:
    parts: dict[str, Any] = trusting(parts_of(settings.dsn))
    own = " ".join(f"-c {name}={_escape(value)}" for name, value in server.items())
    parts.update(
        {name: value for name, value in _KEEPALIVE.items() if name not in parts},
        application_name=application_name,
        client_encoding="UTF8",
        options=f"{parts.get('options') or ''} {own}".strip(),
    )
    parts.setdefault("connect_timeout", _CONNECT_TIMEOUT_S)
    if settings.password is not None:
        parts["password"] = settings.password.reveal()
    if replication:
        parts["replication"] = "database"
    return make_conninfo(**parts)


def _escape(value: str) -> str:
    """A value inside the startup packet's ``options``, where spaces part arguments."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


_PROBE_S = 2.0


def connect_error(
    error: psycopg.Error, settings: SourceSettings, conninfo: str, *, replication: bool = False
) -> SourceError | ConfigError:
    """The error for a connection that failed. ``conninfo``: the one that failed, which is tried once more for its
    SQLSTATE where the server may have answered."""
    text = str(error)
    where, reason = place_of(parts_of(settings.dsn)), _first_line(text)
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return _silence(where, reason, settings)
    for refusal in _OF_LIBPQ:
        if all(word in text for word in refusal.words):
            return refusal.error(refusal.sentence.format(where=where, reason=reason), hint=refusal.hint)
    if getattr(error.pgconn, "needs_password", False):
        return ConfigError(f"Postgres at {where} refuses the login: {reason}", hint=_LOGIN)
    return refused(answer(conninfo), where, reason, settings, replication=replication)


def refused(
    state: str, where: str, reason: str, settings: SourceSettings, *, replication: bool = False
) -> SourceError | ConfigError:
    """The error for a server's answer. ``state``: its SQLSTATE, empty where none came."""
    if state in ("08P01", "0A000"):
        return pooler(where, reason, parts_of(settings.dsn))
    error, sentence, hint = _OF_SERVERS.get((state, replication)) or _OF_SERVERS.get((state, None)) or _AWAY
    text = sentence.format(where=where, reason=reason)
    if state not in ("28P01", "28000"):
        return error(text, hint=hint)
    if settings.password is not None:
        hint = f"[source] password is {settings.password.reference}: check what it holds, and user in the dsn"
        hint += f"; or {_ADDRESS}" if state == "28000" else ""
    return ConfigError(text, hint=hint, retry=Retry.SECRET)


def pooler(where: str, reason: str, parts: Mapping[str, str]) -> ConfigError:
    """The error for a pooler or proxy in the place of Postgres."""
    host, hint = parts.get("host", ""), "name the address of Postgres itself in [source] dsn, not the pooler's"
    if "-pooler." in host:
        hint += f": host={host.replace('-pooler.', '.', 1)}"
    elif ".proxy-" in host:
        hint += ": the endpoint of the instance or of the cluster's writer"
    elif ".pooler." in host:
        hint += ": the direct connection of the project"
    return ConfigError(f"a connection pooler or proxy answers at {where}, as PgBouncer: {reason}", hint=hint)


def _silence(where: str, reason: str, settings: SourceSettings) -> SourceError | ConfigError:
    if listens(parts_of(settings.dsn)):
        return SourceError(
            f"the server at {where} accepts connections and does not answer as Postgres does",
            hint="check host and port in [source] dsn: another server may listen there, or Postgres may hang",
        )
    return refused("", where, reason, settings)


def listens(parts: Mapping[str, str]) -> bool:
    """Whether something takes a connection at the source's address."""
    host, port = parts.get("hostaddr") or parts.get("host") or "", parts.get("port", "5432")
    if not host or host.startswith("/") or "," in host or not port.isdigit():
        return False
    with suppress(OSError, OverflowError), closing(socket.create_connection((host, int(port)), _PROBE_S)):
        return True
    return False


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    for noise in ("connection failed: ", "connection is bad: "):
        line = line.removeprefix(noise)
    # The server's severity stands in its language, with two blanks behind it.
    return hide(line.rpartition(":  ")[2].strip())


class ReplicationRefused(ConfigError):
    """The role lacks the right to replicate."""


class _Refusal(NamedTuple):
    """``words``: libpq's own, which this process has in English. ``sentence``: of ours, with {where} and {reason}."""

    words: tuple[str, ...]
    error: type[SourceError | ConfigError]
    sentence: str
    hint: str


_LOGIN = 'set [source] password = "env:NAME", "file:PATH" or "command:PROGRAM", or passfile= in the dsn'
_ADDRESS = "add a line for this user, database and address to the server's pg_hba.conf and reload it"
_REFUSED = (ConfigError, "Postgres at {where} refuses the login: {reason}")
_AWAY = (
    SourceError,
    "cannot connect to Postgres at {where}: {reason}",
    "check [source] dsn, and that the server runs and can be reached from here",
)
_OF_SERVERS: Mapping[tuple[str, bool | None], tuple[type[SourceError | ConfigError], str, str]] = {
    ("28P01", None): (*_REFUSED, _LOGIN),
    ("28000", None): (*_REFUSED, _ADDRESS),
    ("3D000", None): (ConfigError, "Postgres at {where}: {reason}", "check dbname and user in [source] dsn"),
    ("42501", True): (
        ReplicationRefused,
        "Postgres at {where} refuses a replication session: {reason}",
        "cdc check says how this server gives the right",
    ),
    ("42501", False): (
        ConfigError,
        "Postgres at {where} refuses the session: {reason}",
        "grant connect on database <database> to <user>;   (as the database's owner)",
    ),
    ("53300", None): (
        SourceError,
        "Postgres at {where} has no connection left: {reason}",
        "end sessions that are not needed, or raise the limit that the server names: max_connections, max_wal_senders, "
        "or the role's own by alter role <user> connection limit 64;",
    ),
}
"""By SQLSTATE, and for some by whether the session is one of replication."""
_UNTRUSTED = (
    ConfigError,
    "the certificate of Postgres at {where} is not trusted: {reason}",
    "name its authority in [source] dsn: sslrootcert=/path/to/ca.pem, or =system for those that this machine trusts",
)
_OF_LIBPQ = (
    _Refusal(("certificate verify failed",), *_UNTRUSTED),
    _Refusal(("root certificate file",), *_UNTRUSTED),
    _Refusal(
        ("server certificate for", "does not match host name"),
        ConfigError,
        "the certificate of Postgres at {where} is another host's: {reason}",
        "use the name that stands in the certificate as host in [source] dsn; hostaddr= may say where that is",
    ),
    _Refusal(
        ("server does not support SSL",),
        ConfigError,
        "Postgres at {where} takes no TLS, which sslmode in [source] dsn asks for: {reason}",
        "set ssl = on in the server's postgresql.conf; sslmode=prefer goes on without",
    ),
)
