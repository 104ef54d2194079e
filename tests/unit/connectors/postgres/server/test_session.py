"""Refused connections, told by the server's SQLSTATE and by libpq's own words."""

from __future__ import annotations

import psycopg
import pytest

from cdc.process.errors import CdcError, ConfigError, Retry, SourceError
from cdc.settings.model import SourceSettings
from cdc.settings.setting_types import Secret
from connectors.postgres.server.connections import connect_error, refused
from tests.strangers import silence, stranger

LATE = psycopg.errors.ConnectionTimeout("connection timeout expired")


def settings(dsn: str, password: str | None = None) -> SourceSettings:
    return SourceSettings(dsn=dsn, tables=("public.*",), password=Secret(password) if password else None)


@pytest.mark.parametrize(
    ("state", "kind", "message", "hint", "retry"),
    [
        ("28P01", ConfigError, "refuses the login: nein", "[source] password is env:SHOP_PASSWORD", Retry.SECRET),
        ("28000", ConfigError, "refuses the login: nein", "pg_hba.conf", Retry.SECRET),
        ("3D000", ConfigError, "Postgres at h:5432/d: nein", "check dbname", Retry.NEVER),
        ("42501", ConfigError, "refuses the session", "grant connect", Retry.NEVER),
        ("53300", SourceError, "no connection left", "max_connections", Retry.LATER),
        ("08P01", ConfigError, "a connection pooler or proxy answers at h:5432/d", "Postgres itself", Retry.NEVER),
        ("57P03", SourceError, "cannot connect to Postgres", "that the server runs", Retry.LATER),
        ("", SourceError, "cannot connect to Postgres", "that the server runs", Retry.LATER),
    ],
)
def test_x5_a_refusal_is_told_by_its_sqlstate(
    state: str, kind: type[CdcError], message: str, hint: str, retry: Retry
) -> None:
    found = refused(state, "h:5432/d", "nein", settings("host=h dbname=d user=cdc", "env:SHOP_PASSWORD"))
    assert (type(found), found.retry) == (kind, retry)
    assert message in found.message and hint in found.hint


def test_a_replication_right_is_told_from_that_to_connect() -> None:
    found = refused("42501", "h:5432/d", "no", settings("host=h"), replication=True)
    assert "how this server gives the right" in found.hint


@pytest.mark.parametrize(
    ("host", "hint"),
    [
        ("ep-cool-1-pooler.eu.example.org", "not the pooler's: host=ep-cool-1.eu.example.org"),
        ("shop.proxy-abc.eu-west-1.rds.example.org", "the endpoint of the instance"),
        ("aws-0-eu.pooler.example.org", "the direct connection of the project"),
        ("db.example.org", "not the pooler's"),
    ],
)
def test_x3_a_pooler_s_host_says_what_to_name(host: str, hint: str) -> None:
    assert hint in refused("08P01", f"{host}:5432/d", "no", settings(f"host={host}")).hint


def test_h135_a_server_that_takes_connections_and_is_silent() -> None:
    with stranger(silence) as port:
        silent = connect_error(LATE, settings(f"host=127.0.0.1 port={port} dbname=d"), "")
    assert isinstance(silent, SourceError)
    assert f"the server at 127.0.0.1:{port}/d accepts connections and does not answer as Postgres" in silent.message


@pytest.mark.parametrize("dsn", ["host=127.0.0.1 port=1", "host=/run port=5432", "host=a,b port=1,2", "dbname=d"])
def test_h135_nothing_is_said_of_what_was_not_reached(dsn: str) -> None:
    assert "cannot connect to Postgres" in connect_error(LATE, settings(dsn), "").message
