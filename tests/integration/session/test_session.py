"""A session whose text does not depend on what a database or a role has set."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.process.errors import CdcError, Exit
from cdc.settings.model import SourceSettings
from connectors.postgres.server.connections import connect
from tests.fresh import fresh_name

HOSTILE = {
    "DateStyle": "German",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "extra_float_digits": "-5",
    "bytea_output": "escape",
    "standard_conforming_strings": "on",
    "search_path": "nowhere",
    "statement_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "transaction_timeout": "1ms",
    "lock_timeout": "1ms",
}
"""Settings that a role may have; each would change a row's text or end the session."""

ROW = """select timestamptz '2026-07-22 15:15:00+00', date '2026-07-22', interval '1 day 02:03:04', 0.1::float8 + 0.2,
    '\\xdeadbeef'::bytea, 12.34::numeric::money"""


@pytest.fixture
def hostile_role(database: str) -> Iterator[str]:
    """Connection string of a role whose every setting is against us."""
    role = fresh_name()
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {} login superuser password 'pw'").format(sql.Identifier(role)))
        for name, value in HOSTILE.items():
            admin.execute(
                sql.SQL("alter role {} set {} = {}").format(
                    sql.Identifier(role), sql.Identifier(name), sql.Literal(value)
                )
            )
    yield make_conninfo(database, user=role, password="pw", passfile="/dev/null")
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def text_of(dsn: str) -> list[bytes | None]:
    """One row of many types, as the server sends it in text."""
    with connect(SourceSettings(dsn=dsn, tables=("a.b",))) as session:
        result = session.pgconn.exec_(ROW.encode())
        return [result.get_value(0, column) for column in range(result.nfields)]


def test_h30_a_rows_text_is_the_same_whatever_the_role_has_set(database: str, hostile_role: str) -> None:
    assert text_of(hostile_role) == text_of(database)
    assert text_of(database)[:5] == [
        b"2026-07-22 15:15:00+00",
        b"2026-07-22",
        b"P1DT2H3M4S",
        b"0.30000000000000004",
        b"\\xdeadbeef",
    ]


def test_h92_no_timeout_of_the_role_ends_a_session_of_ours(hostile_role: str) -> None:
    with connect(SourceSettings(dsn=hostile_role, tables=("a.b",))) as session:
        timeouts = [
            "statement_timeout",
            "idle_in_transaction_session_timeout",
            "transaction_timeout",
            "idle_session_timeout",
        ]
        for name in timeouts:
            row = session.execute("select current_setting(%s)", [name]).fetchone()
            assert row is not None
            assert row[0] == "0", name
        session.execute("select pg_sleep(0.05)")


@pytest.mark.slow
def test_a_wrong_password_is_one_sentence_without_it(hostile_role: str) -> None:
    dsn = make_conninfo(hostile_role, password="canary-word")
    with pytest.raises(CdcError) as refused:
        connect(SourceSettings(dsn=dsn, tables=("a.b",)))
    assert refused.value.exit in (Exit.CONFIG, Exit.UNAVAILABLE)
    assert refused.value.hint
    assert "canary-word" not in refused.value.message + refused.value.hint
    assert "\n" not in refused.value.message
