"""Sessions with Postgres: one way in, so that every part reads values in the same text form.

What a value looks like as text depends on settings that a role or a database may change (hazard H30), and a
role's timeouts would kill a held snapshot (H92). Both are pinned in the startup packet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from zlib import crc32

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.errors import ConfigError, SourceError
from cdc.settings import SourceSettings

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
        # The server's side too: what a machine that vanished held (the writers' lock) is free within a minute.
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
) -> Connection:
    """A session with the source, its text format and timeouts pinned.

    ``replication``: a walsender session of the same database; plain SQL works there too. ``options``: more
    server settings for the startup packet, over the pinned ones. Raises SourceError when the server cannot be
    reached, ConfigError when it refuses who we are or what we ask for; neither holds the password.
    """
    conninfo = _conninfo(settings, application_name, replication, {**PINNED, **options})
    try:
        connection = psycopg.connect(conninfo, autocommit=True)
        for name, since, statement in _NEWER:
            # Unknown before, where it would be refused in the startup packet.
            if connection.info.server_version >= since and name not in options:
                connection.execute(statement)
        connection.autocommit = autocommit
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
    """What a sentence of ours can quote of an error; the rest is detail, and may hold row data."""
    return _first_line(str(error))


def describe(settings: SourceSettings) -> str:
    """Where the source is, without anything secret: ``host:port/dbname``."""
    parts = _parsed(settings)
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return f"{host}:{parts.get('port', 5432)}/{parts.get('dbname') or parts.get('user') or ''}"


def connect_error(text: str, settings: SourceSettings) -> SourceError | ConfigError:
    """libpq's words as one of ours. libpq gives no SQLSTATE for a refused connection, only text."""
    where, low = describe(settings), text.lower()
    for words, make in _REFUSALS.items():
        if all(word in low for word in words):
            return make(where, _first_line(text))
    return SourceError(
        f"cannot connect to Postgres at {where}: {_first_line(text)}",
        hint="check [source] dsn, and that the server runs and can be reached from here",
    )


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
    return line.rpartition("FATAL:  ")[2].strip()


def _password(where: str, reason: str) -> ConfigError:
    return ConfigError(
        f"Postgres at {where} refuses the login: {reason}",
        hint='set [source] password = "env:NAME" or "file:PATH", or passfile= in the dsn',
    )


def _hba(where: str, reason: str) -> ConfigError:
    return ConfigError(
        f"Postgres at {where} refuses the connection: {reason}",
        hint="add a line for this user, database and address to the server's pg_hba.conf and reload it",
    )


def _database(where: str, reason: str) -> ConfigError:
    return ConfigError(f"Postgres at {where}: {reason}", hint="check dbname and user in [source] dsn")


def _replication_right(where: str, reason: str) -> ConfigError:
    return ConfigError(
        f"Postgres at {where} refuses a replication session: {reason}",
        hint="alter role <user> replication;   (as a superuser)",
    )


def _untrusted(where: str, reason: str) -> ConfigError:
    return ConfigError(
        f"the certificate of Postgres at {where} is not trusted: {reason}",
        hint="name its authority in [source] dsn: sslrootcert=/path/to/ca.pem, or sslrootcert=system for those this "
        "machine trusts",
    )


def _misnamed(where: str, reason: str) -> ConfigError:
    return ConfigError(
        f"the certificate of Postgres at {where} is another host's: {reason}",
        hint="use the name that stands in the certificate as host in [source] dsn; hostaddr= may say where that is",
    )


def _no_tls(where: str, reason: str) -> ConfigError:
    return ConfigError(
        f"Postgres at {where} takes no TLS, which sslmode in [source] dsn asks for: {reason}",
        hint="set ssl = on in the server's postgresql.conf; sslmode=prefer goes on without",
    )


def _full(where: str, reason: str) -> SourceError:
    return SourceError(
        f"Postgres at {where} has no connection left: {reason}",
        hint="raise max_connections or max_wal_senders, or end sessions that are not needed",
    )


_REFUSALS: Mapping[tuple[str, ...], Callable[[str, str], SourceError | ConfigError]] = {
    ("certificate verify failed",): _untrusted,
    ("root certificate file",): _untrusted,
    ("server certificate for", "does not match host name"): _misnamed,
    ("server does not support ssl",): _no_tls,
    ("password authentication failed",): _password,
    ("no password supplied",): _password,
    ("authentication failed",): _password,
    ("no pg_hba.conf entry",): _hba,
    ("pg_hba.conf rejects",): _hba,
    ("role", "does not exist"): _database,
    ("database", "does not exist"): _database,
    ("permission denied to start wal sender",): _replication_right,
    ("must be superuser or replication role to start walsender",): _replication_right,
    ("too many",): _full,
    ("remaining connection slots",): _full,
    ("number of requested standby connections exceeds",): _full,
}
