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

from cdc.checks.findings import Finding, fail, ok, warn
from cdc.process.errors import ConfigError
from cdc.settings.dsn import SYSTEM, parts_of, secrets_in, secrets_in_url
from cdc.settings.model import Settings
from cdc.settings.setting_types import Secret

PART = "settings"


def check_settings(settings: Settings) -> Iterator[Finding]:
    """Every finding about the settings, without asking any server."""
    checks = (check_secrets, check_passwords_in_the_clear, check_plain_connections)
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
    fix = 'take it out and set password = "env:NAME", "file:PATH" or "command:PROGRAM" beside it'
    parts = _source(settings)
    # A dsn that is not libpq's (MongoDB's) is a URL.
    for name in secrets_in(parts) if parts is not None else secrets_in_url(settings.source.dsn):
        option = "a password" if name == "password" else name
        yield warn(PART, "password", f"source.dsn holds {option}", fix if name == "password" else "take it out")
    if parts is not None and (service := parts.get("service") or os.environ.get("PGSERVICE")):
        own = "check that its file is readable by you alone, or set password beside the dsn"
        yield warn(
            PART, "service", f"the service {service} of source.dsn may hold a password, and is not read here", own
        )
    for name, sink in settings.sinks.items():
        for place in ("url", "catalog"):
            if secrets_in_url(getattr(sink, place, "") or ""):
                yield warn(PART, "password", f"sinks.{name}.{place} holds a password", fix)


def check_plain_connections(settings: Settings) -> Iterator[Finding]:
    """Warn where rows and passwords travel to another machine without encryption."""
    source = _source(settings)
    if source is not None and _plain_postgres(source):
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


def _source(settings: Settings) -> dict[str, str] | None:
    """The dsn's options. None for one that libpq cannot read: connecting refuses it, or it is another database's."""
    try:
        return parts_of(settings.source.dsn)
    except ConfigError:
        return None


def _plain_postgres(parts: Mapping[str, str]) -> bool:
    hosts = parts.get("hostaddr") or parts.get("host") or os.environ.get("PGHOST", "")
    mode = parts.get("sslmode") or (
        "verify-full" if parts.get("sslrootcert") == SYSTEM else os.environ.get("PGSSLMODE")
    )
    return mode != "verify-full" and not all(map(_loopback, hosts.split(",")))


def _loopback(host: str) -> bool:
    """Whether the host is this machine. A path is a local socket, and so is no host at all."""
    host = host.strip("[]'")
    if host in ("", "localhost") or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
