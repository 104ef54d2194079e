"""Connection strings of libpq, parsed by libpq itself, and the SQLSTATE of a refused login."""

from __future__ import annotations

import os
import re
import select
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGconn

from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import remember

SECRETS = ("password", "sslpassword", "oauth_client_secret")
"""Options of libpq that hold a secret."""
SYSTEM = "system"
"""The value of ``sslrootcert`` for the authorities that the machine trusts."""
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where Debian, Red Hat, SUSE and Alpine have them."""


def parts_of(dsn: str, setting: str = "[source] dsn") -> dict[str, str]:
    """Every option of the string by its name, without those that libpq adds (the environment, a service).

    Its secrets are hidden from now on. ConfigError for a string that libpq cannot read.
    """
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        # libpq's reason quotes what it stumbled over, which may be the password.
        raise ConfigError(
            f"{setting} is not a libpq connection string",
            hint='write it as dsn = "host=127.0.0.1 port=5432 dbname=shop user=cdc", and the password beside it: '
            '[source] password = "env:NAME"; in a URL, special characters are percent-encoded',
        ) from None
    remember(parts[name] for name in SECRETS if name in parts)
    return parts


def place_of(parts: Mapping[str, str]) -> str:
    """Where the server is, without anything secret: ``host:port/dbname``."""
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return f"{host}:{parts.get('port', 5432)}/{parts.get('dbname') or parts.get('user') or ''}"


def secrets_in(parts: Mapping[str, str]) -> list[str]:
    """The options that hold a secret."""
    return [name for name in SECRETS if parts.get(name)]


def secrets_in_url(url: str) -> list[str]:
    """The same of the URL of a store, which has its login before the host or among its options."""
    try:
        found = urlsplit(url)
        named = [name for name, value in parse_qsl(found.query) if value and name.lower() in (*SECRETS, "passwd")]
        return [*(["password"] if "://" in url and found.password else []), *named]
    except ValueError:
        return []


def trusting(parts: Mapping[str, str]) -> dict[str, str]:
    """The options with the machine's bundle of authorities for ``sslrootcert=system``.

    psycopg's wheel brings an OpenSSL of its own, which looks for them in a folder that no machine has. As libpq does
    for ``system``, ``sslmode`` is verify-full unless it is set. Nothing changes where no bundle is found.
    """
    bundles = [path for path in (os.environ.get("SSL_CERT_FILE", ""), *_BUNDLES) if path and Path(path).is_file()]
    if parts.get("sslrootcert") != SYSTEM or parts.get("sslmode", "verify-full") != "verify-full" or not bundles:
        return dict(parts)
    return {**parts, "sslmode": "verify-full", "sslrootcert": bundles[0]}


# The SQLSTATE with which Postgres refuses a connection.
#
# psycopg gives no SQLSTATE for a connection that failed. libpq's trace of the messages from the server has it.

_SILENCE_S = 10.0
_ANSWER = re.compile(rb'\tErrorResponse\t S "[^"]*"(?: V "[A-Z]+")? C "([0-9A-Z]{5})"')


def answer(conninfo: str) -> str:
    """The SQLSTATE with which a server refuses a connection now. Empty if it accepts one or does not answer."""
    # In memory: libpq writes all of the login there.
    with closing(os.fdopen(os.memfd_create("cdc-login"), "rb")) as trace:
        session = pq.PGconn.connect_start(conninfo.encode())
        try:
            if session.status != pq.ConnStatus.BAD:
                session.trace(trace.fileno())
                _finish(session)
                session.untrace()
        finally:
            session.finish()
        trace.seek(0)
        found = _ANSWER.findall(trace.read())
    return found[-1].decode() if found else ""


def _finish(session: PGconn) -> None:
    """Go on until the session is open or refused, or nothing has come for some seconds."""
    while (status := session.connect_poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
        line = [session.socket]
        reads, writes = (line, []) if status is pq.PollingStatus.READING else ([], line)
        if not any(select.select(reads, writes, [], _SILENCE_S)):
            return
