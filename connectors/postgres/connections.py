"""Sessions with Postgres: one way in, so that every part reads values in the same text form.

The text of a value depends on settings that a role or a database may change (hazard H30), and a
role's timeouts would kill an open snapshot (H92). Both are pinned in the startup packet.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from types import MappingProxyType
from typing import Any, NamedTuple
from zlib import crc32

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.errors import ConfigError, SourceError
from cdc.foreign import hide
from cdc.settings import SourceSettings
from connectors.postgres.watched import LIMIT_S, WatchedConnection

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
"""Settings of every session. ``row_security=off`` makes Postgres raise instead of hiding rows (H27)."""

_NEWER = (
    ("idle_session_timeout", 140000, b"set idle_session_timeout = 0"),
    ("transaction_timeout", 170000, b"set transaction_timeout = 0"),
)
"""More timeouts of a role that would end our sessions (H92), and the version that has them first."""

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
_PROBE_S = 2.0
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
    for ``limit_s`` seconds at most, see :class:`connectors.postgres.watched.WatchedConnection`. Raises SourceError when
    the server cannot be reached, ConfigError when it refuses who we are or what we ask for. Neither holds the password.
    """
    conninfo = _conninfo(settings, application_name, replication, {**PINNED, **options})
    try:
        connection: Connection = (WatchedConnection if turn else psycopg.Connection).connect(conninfo, autocommit=True)
        with ExitStack() as opened:
            # A stop may be heard before it is anybody's.
            opened.callback(connection.close)
            if isinstance(connection, WatchedConnection):
                connection.turn, connection.limit_s = turn, limit_s
            for name, since, statement in _NEWER:
                # Unknown before, where it would be refused in the startup packet.
                if connection.info.server_version >= since and name not in options:
                    connection.execute(statement)
            connection.autocommit = autocommit
            opened.pop_all()
    except psycopg.Error as error:
        raise connect_error(str(error), settings) from None
    return connection


def writer_lock(name: str) -> tuple[int, int]:
    """The advisory lock (two int4) under which a pipeline's topics are written.

    Snapshot workers hold it shared for their whole life, capture exclusively: an orphaned worker must not write
    a row behind a streamed event, nor two captures write at once (H15, H76).
    """
    number = crc32(name.encode())
    return _LOCK_CLASS, number - (1 << 32) if number >= 1 << 31 else number


def first_line(error: Exception) -> str:
    """The line of an error that a sentence of ours can quote. The rest is detail, and may hold row data."""
    return _first_line(str(error))


def describe(settings: SourceSettings) -> str:
    """Where the source is, without anything secret: ``host:port/dbname``."""
    parts = _parsed(settings)
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return f"{host}:{parts.get('port', 5432)}/{parts.get('dbname') or parts.get('user') or ''}"


def connect_error(text: str, settings: SourceSettings) -> SourceError | ConfigError:
    """libpq's words as one of ours. libpq gives no SQLSTATE for a refused connection, only text."""
    where, low, reason = describe(settings), text.lower(), _first_line(text)
    for refusal in _REFUSALS:
        if all(word in low for word in refusal.words):
            hint = refusal.hint
            if hint == _LOGIN[-1] and settings.password is not None:
                hint = f"[source] password is {settings.password.reference}: check what it holds, and user in the dsn"
            return refusal.error(refusal.sentence.format(where=where, reason=reason), hint=hint)
    if "timeout expired" in low and silent(settings):
        return SourceError(
            f"what listens at {where} takes connections and does not answer as Postgres does",
            hint="check host and port in [source] dsn: another server may listen there, or Postgres hang",
        )
    return SourceError(
        f"cannot connect to Postgres at {where}: {reason}",
        hint="check [source] dsn, and that the server runs and can be reached from here",
    )


def silent(settings: SourceSettings) -> bool:
    """Whether something takes a connection at the source's address: called when it has not answered in time."""
    parts = _parsed(settings)
    host, port = str(parts.get("hostaddr") or parts.get("host") or ""), str(parts.get("port", 5432))
    if not host or host.startswith("/") or "," in host or not port.isdigit():
        return False
    try:
        with closing(socket.create_connection((host, int(port)), _PROBE_S)):
            return True
    except (OSError, OverflowError):
        return False


def _conninfo(settings: SourceSettings, application_name: str, replication: bool, server: Mapping[str, str]) -> str:
    parts = _parsed(settings)
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


def _parsed(settings: SourceSettings) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(settings.dsn))
    except psycopg.Error:
        # libpq's reason quotes what it stumbled over, which may be the password.
        raise ConfigError(
            "[source] dsn is not a libpq connection string",
            hint='write it as dsn = "host=127.0.0.1 port=5432 dbname=shop user=cdc", and the password beside it: '
            '[source] password = "env:NAME"; in a URL, special characters are percent-encoded',
        ) from None


def _escape(value: str) -> str:
    """A value inside the startup packet's ``options``, where spaces part arguments."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    for noise in ("connection failed: ", "connection is bad: "):
        line = line.removeprefix(noise)
    return hide(line.rpartition("FATAL:  ")[2].strip())


class _Refusal(NamedTuple):
    """``words``: those of libpq or the server that identify it, in lower case. ``sentence``: of ours, with {where} and
    {reason}."""

    words: tuple[str, ...]
    error: type[SourceError | ConfigError]
    sentence: str
    hint: str


_UNTRUSTED = (
    ConfigError,
    "the certificate of Postgres at {where} is not trusted: {reason}",
    "name its authority in [source] dsn: sslrootcert=/path/to/ca.pem, or =system for those that this machine trusts",
)
_LOGIN = (
    ConfigError,
    "Postgres at {where} refuses the login: {reason}",
    'set [source] password = "env:NAME" or "file:PATH", or passfile= in the dsn',
)
_ADDRESS = (
    ConfigError,
    "Postgres at {where} refuses the connection: {reason}",
    "add a line for this user, database and address to the server's pg_hba.conf and reload it",
)
_NAMES = (ConfigError, "Postgres at {where}: {reason}", "check dbname and user in [source] dsn")
_REPLICATION_RIGHT = (
    ConfigError,
    "Postgres at {where} refuses a replication session: {reason}",
    "alter role <user> replication;   (as a superuser)",
)
_FULL = (
    SourceError,
    "Postgres at {where} has no connection left: {reason}",
    "raise max_connections or max_wal_senders, or end sessions that are not needed",
)
_REFUSALS = (
    _Refusal(("certificate verify failed",), *_UNTRUSTED),
    _Refusal(("root certificate file",), *_UNTRUSTED),
    _Refusal(
        ("server certificate for", "does not match host name"),
        ConfigError,
        "the certificate of Postgres at {where} is another host's: {reason}",
        "use the name that stands in the certificate as host in [source] dsn; hostaddr= may say where that is",
    ),
    _Refusal(
        ("server does not support ssl",),
        ConfigError,
        "Postgres at {where} takes no TLS, which sslmode in [source] dsn asks for: {reason}",
        "set ssl = on in the server's postgresql.conf; sslmode=prefer goes on without",
    ),
    _Refusal(("password authentication failed",), *_LOGIN),
    _Refusal(("no password supplied",), *_LOGIN),
    _Refusal(("authentication failed",), *_LOGIN),
    _Refusal(("no pg_hba.conf entry",), *_ADDRESS),
    _Refusal(("pg_hba.conf rejects",), *_ADDRESS),
    _Refusal(("role", "does not exist"), *_NAMES),
    _Refusal(("database", "does not exist"), *_NAMES),
    _Refusal(("permission denied to start wal sender",), *_REPLICATION_RIGHT),
    _Refusal(("must be superuser or replication role to start walsender",), *_REPLICATION_RIGHT),
    _Refusal(("too many",), *_FULL),
    _Refusal(("remaining connection slots",), *_FULL),
    _Refusal(("number of requested standby connections exceeds",), *_FULL),
)
