"""Refused connections, told by libpq's words."""

from __future__ import annotations

import pytest

from cdc.errors import ConfigError, SourceError
from cdc.setting_types import Secret
from cdc.settings import SourceSettings
from connectors.postgres.connections import connect_error
from tests.strangers import silence, stranger

WRONG = 'connection failed: FATAL:  password authentication failed for user "cdc"'
LATE = "connection failed: connection timeout expired"


def settings(dsn: str, password: str | None = None) -> SourceSettings:
    return SourceSettings(dsn=dsn, tables=("public.*",), password=Secret(password) if password else None)


def test_a_wrong_password_is_told_from_a_missing_one() -> None:
    given = connect_error(WRONG, settings("host=h dbname=d user=cdc", "env:SHOP_PASSWORD"))
    assert isinstance(given, ConfigError)
    assert "refuses the login" in given.message
    assert "[source] password is env:SHOP_PASSWORD: check what it holds" in given.hint
    missing = connect_error("connection failed: fe_sendauth: no password supplied", settings("host=h dbname=d"))
    assert 'set [source] password = "env:NAME"' in missing.hint


def test_h135_a_server_that_takes_connections_and_is_silent() -> None:
    with stranger(silence) as port:
        silent = connect_error(LATE, settings(f"host=127.0.0.1 port={port} dbname=d"))
    assert isinstance(silent, SourceError)
    assert f"what listens at 127.0.0.1:{port}/d takes connections and does not answer as Postgres" in silent.message


@pytest.mark.parametrize("dsn", ["host=127.0.0.1 port=1", "host=/run port=5432", "host=a,b port=1,2", "dbname=d"])
def test_h135_nothing_is_said_of_what_was_not_reached(dsn: str) -> None:
    assert "cannot connect to Postgres" in connect_error(LATE, settings(dsn)).message
