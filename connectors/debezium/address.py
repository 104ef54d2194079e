"""Where the database is, from ``[source] dsn``: ``key=value`` pairs for every database but MongoDB."""

from __future__ import annotations

from urllib.parse import urlsplit

from cdc.process.errors import ConfigError
from cdc.settings.dsn import parts_of
from cdc.settings.model import Settings


def address(settings: Settings, default_port: int) -> dict[str, str]:
    """host, port, user, dbname and all else of the dsn. ConfigError where the host or the user is missing."""
    dsn = settings.source.dsn
    try:
        parts = parts_of(dsn)
    except ConfigError:
        raise ConfigError(
            "[source] dsn is not a list of key=value pairs",
            hint=f'write it as dsn = "host=127.0.0.1 port={default_port} dbname=shop user=cdc"',
        ) from None
    if "password" in parts:
        raise ConfigError("[source] dsn holds a password", hint="use [debezium] database_password")
    for name in ("host", "user"):
        if name not in parts:
            raise ConfigError(f"[source] dsn names no {name}", hint=f"add {name}=... to it")
    parts.setdefault("port", str(default_port))
    return parts


def connection_options(settings: Settings, default_port: int) -> dict[str, str]:
    """``database.hostname``, ``database.port`` and ``database.user``."""
    parts = address(settings, default_port)
    return {
        "database.hostname": parts["host"],
        "database.port": parts["port"],
        "database.user": parts["user"],
    }


def database_name(settings: Settings, default_port: int) -> str:
    """The database of the dsn. ConfigError where it names none."""
    parts = address(settings, default_port)
    if "dbname" not in parts:
        raise ConfigError("[source] dsn names no database", hint="add dbname=... to it")
    return parts["dbname"]


def described_address(settings: Settings) -> str:
    """host, port and database for people, from any form of dsn. No user, no password.

    ConfigError for a dsn that does not fit the database.
    """
    dsn = settings.source.dsn
    if "://" in dsn:
        parts = urlsplit(dsn)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
    found = address(settings, 0)
    port = f":{found['port']}" if found["port"] != "0" else ""
    return f"{found['host']}{port}" + (f"/{found['dbname']}" if "dbname" in found else "")
