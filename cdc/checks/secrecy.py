"""The checks of the settings file itself: where secrets stand, and which connections go in the clear."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from cdc.checks.finding import Finding, fail, ok, warn
from cdc.errors import ConfigError
from cdc.setting_types import Secret
from cdc.settings import Settings

PART = "settings"


def check_settings(settings: Settings) -> Iterator[Finding]:
    """Every finding about the settings, without asking any server."""
    checks = (check_secrets, check_passwords_in_the_clear, check_plain_connections, check_shared_stores)
    found = [finding for check in checks for finding in check(settings)]
    yield from found or [ok(PART, "settings", "no secret lies open, nothing goes to another machine in the clear")]


def check_secrets(settings: Settings) -> Iterator[Finding]:
    """Each ``env:`` is set, each ``file:`` is readable by us and by nobody else."""
    for path, secret in secrets(settings):
        try:
            secret.reveal()
        except ConfigError as missing:
            yield fail(PART, "secret", f"{path}: {missing.message}", missing.hint or "put the secret there first")
            continue
        kind, _, where = secret.reference.partition(":")
        if kind == "file" and Path(where).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            yield warn(PART, "secret", f"{path}: others may read {where}", f"chmod 600 {where}")


def check_passwords_in_the_clear(settings: Settings) -> Iterator[Finding]:
    """A password inside a connection string ends up in backups, diffs and error texts."""
    fix = 'take it out and set password = "env:NAME" or "file:PATH" beside it'
    parts = settings.source.dsn.split()
    if any(part.startswith("password=") for part in parts) or _url_password(settings.source.dsn):
        yield warn(PART, "password", "source.dsn holds a password", fix)
    for name, sink in settings.sinks.items():
        url = getattr(sink, "url", "")
        if _url_password(url):
            yield warn(PART, "password", f"sinks.{name}.url holds a password", fix)


def check_plain_connections(settings: Settings) -> Iterator[Finding]:
    """Warn where rows and passwords travel to another machine without encryption."""
    if _plain_postgres(settings.source.dsn):
        fix = "add sslmode=verify-full sslrootcert=/path/to/ca.pem to the dsn"
        yield warn(
            PART, "plain", "source.dsn does not check the server's certificate on the way to another machine", fix
        )
    security = str(settings.log.client.get("security.protocol", "plaintext")).lower()
    remote = remote_brokers(settings)
    if remote and security in ("plaintext", "sasl_plaintext"):
        fix = 'set "security.protocol" = "sasl_ssl" (or "ssl") in [log.client]'
        yield warn(PART, "plain", f"records go to Kafka at {', '.join(remote)} in the clear", fix)
    for path, url, in_the_clear in _urls(settings):
        parts = urlsplit(url)
        if parts.scheme in in_the_clear and not _loopback(parts.hostname or ""):
            message = f"{path} goes to {parts.hostname} in the clear"
            yield warn(PART, "plain", message, f"write it as {in_the_clear[parts.scheme]}:// where the server can")


def remote_brokers(settings: Settings) -> list[str]:
    """The bootstrap servers on other machines."""
    return [s for s in settings.log.bootstrap_servers.split(",") if not _loopback(s.strip().rpartition(":")[0])]


def check_shared_stores(settings: Settings) -> Iterator[Finding]:
    """Two sinks in one place would overwrite each other's rows and watermarks."""
    seen: dict[tuple[str, str], str] = {}
    for name, sink in settings.sinks.items():
        key = (sink.place, sink.prefix or settings.name)
        if key in seen:
            message = f"the sinks {seen[key]} and {name} write to the same place"
            yield fail(PART, "shared_store", message, f'give one another prefix: [sinks.{name}] prefix = "{name}"')
        seen.setdefault(key, name)


def secrets(value: Any, path: str = "") -> Iterator[tuple[str, Secret]]:
    """Every secret of the settings with its dotted path."""
    match value:
        case Secret():
            yield path, value
        case BaseModel():
            for name in type(value).model_fields:
                yield from secrets(getattr(value, name), f"{path}.{name}" if path else name)
        case dict():
            for name, member in value.items():
                yield from secrets(member, f"{path}.{name}")


def _urls(settings: Settings) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Where a URL stands, the URL, and its schemes that encrypt nothing with those that do."""
    for name, sink in settings.sinks.items():
        yield f"sinks.{name}.url", getattr(sink, "url", ""), sink.schemes_in_the_clear
    if settings.debezium is not None:
        yield "debezium.url", settings.debezium.url, {"http": "https"}


def _plain_postgres(dsn: str) -> bool:
    if "://" in dsn:
        try:
            parts = urlsplit(dsn)
        except ValueError:
            return False  # connecting refuses it
        host, verified = parts.hostname or "", "sslmode=verify-full" in parts.query
    else:
        words = dict(word.split("=", 1) for word in dsn.split() if "=" in word)
        host = words.get("host") or words.get("hostaddr") or os.environ.get("PGHOST", "")
        verified = words.get("sslmode") == "verify-full"
    return not verified and not _loopback(host)


def _url_password(url: str) -> bool:
    try:
        return "://" in url and bool(urlsplit(url).password)
    except ValueError:
        return False


def _loopback(host: str) -> bool:
    """Whether the host is this machine. A path is a local socket, and so is no host at all."""
    host = host.strip("[]'")
    if host in ("", "localhost") or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
