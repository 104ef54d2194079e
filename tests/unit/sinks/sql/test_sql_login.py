"""A database's refusals of a login are told by its code, in any language."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from cdc.process.errors import ConfigError, Exit, Retry, SinkError
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.sql.sql_client import probe_sql, refuses_login
from tests.strangers import stranger

MYSQL = sa.make_url("mysql+pymysql://u@127.0.0.1/x")


def refusing(state: bytes) -> Any:
    """As a server that says no in German."""

    def answer(request: bytes) -> bytes | None:
        if request[4:8] == (80877103).to_bytes(4, "big") and len(request) == 8:
            return None
        fields = b"SFATAL\0VFATAL\0C" + state + "\0Mgeht für dich nicht\0\0".encode()
        return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields

    return answer


def spec(port: int) -> SinkSpec:
    url = f"postgresql+psycopg://u@127.0.0.1:{port}/x?sslmode=disable&gssencmode=disable"
    return spec_for("sql", prefix="shop", options={"url": url})


def test_x5_a_refused_login_is_told_in_any_language() -> None:
    with stranger(refusing(b"28P01")) as port:
        with pytest.raises(SinkError, match="refuses the login") as opened:
            open_sink(spec(port))
        assert (opened.value.exit, opened.value.retry) == (Exit.CONFIG, Retry.SECRET)
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} refuses the login"):
            probe_sql(spec(port))


def test_x5_a_server_that_starts_up_is_no_refusal() -> None:
    with stranger(refusing(b"57P03")) as port, pytest.raises(SinkError, match="cannot reach the database"):
        probe_sql(spec(port))


@pytest.mark.parametrize(("code", "refused"), [(1045, True), (1049, False), (2003, False)])
def test_x5_mysql_says_it_by_number(code: int, refused: bool) -> None:
    error = exc.OperationalError("", None, Exception(code, "nein"))
    assert refuses_login(error, MYSQL) is refused
