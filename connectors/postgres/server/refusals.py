"""Errors for refused connections. A server's refusal is recognised by its SQLSTATE, in any language."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import NamedTuple

import psycopg

from cdc.process.errors import ConfigError, Retry, SourceError
from cdc.process.untrusted_text import hide
from cdc.settings.dsn import answer, parts_of, place_of
from cdc.settings.model import SourceSettings

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
