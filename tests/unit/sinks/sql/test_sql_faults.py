"""What a database's error is about, by its state, by SQLite's words, by its class."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest
from sqlalchemy import exc

from sinks.sql.sql_client import Fault, fault_of, kind_of


def by_state(state: str) -> exc.DBAPIError:
    return exc.DBAPIError("insert", None, psycopg.errors.lookup(state)("a row's value"))


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("08006", Fault.AWAY), ("25006", Fault.AWAY), ("40P01", Fault.AWAY), ("53100", Fault.AWAY),
        ("55P03", Fault.AWAY), ("57P01", Fault.AWAY), ("58030", Fault.AWAY), ("0A000", Fault.AWAY),
        ("42P01", Fault.MISSING), ("3F000", Fault.MISSING),
        ("42703", Fault.TABLE), ("42501", Fault.TABLE), ("23502", Fault.TABLE), ("54011", Fault.TABLE),
        ("22003", Fault.RECORD), ("23505", Fault.RECORD), ("23514", Fault.RECORD), ("54000", Fault.RECORD),
        ("P0001", Fault.RECORD),
    ],
)  # fmt: skip
def test_h100_a_state_says_what_an_error_is_about(state: str, fault: Fault) -> None:
    assert fault_of(by_state(state)) is fault
    assert state in kind_of(by_state(state))
    assert "value" not in kind_of(by_state(state))


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (exc.OperationalError("", None, sqlite3.OperationalError("no such table: orders")), Fault.MISSING),
        (
            exc.OperationalError("", None, sqlite3.OperationalError("table orders has no column named note")),
            Fault.TABLE,
        ),
        (exc.OperationalError("", None, sqlite3.OperationalError("database is locked")), Fault.AWAY),
        (exc.OperationalError("", None, sqlite3.OperationalError("database or disk is full")), Fault.AWAY),
        (exc.IntegrityError("", None, sqlite3.IntegrityError("NOT NULL constraint failed: orders.mine")), Fault.TABLE),
        (exc.IntegrityError("", None, sqlite3.IntegrityError("CHECK constraint failed: mine")), Fault.RECORD),
        (exc.DataError("", None, sqlite3.DataError("string or blob too big")), Fault.RECORD),
        (exc.StatementError("a value", "", None, ValueError("x")), Fault.RECORD),
        (exc.ProgrammingError("", None, Exception("1054: unknown column")), Fault.TABLE),
        (exc.OperationalError("", None, Exception("server has gone away")), Fault.AWAY),
        (exc.NoSuchTableError("orders"), Fault.TABLE),
    ],
)
def test_h100_words_and_classes_say_it_where_there_is_no_state(error: Exception, fault: Fault) -> None:
    assert fault_of(error) is fault


def test_the_column_is_named_and_no_value() -> None:
    missing = exc.OperationalError("", None, sqlite3.OperationalError("table orders has no column named note"))
    assert kind_of(missing) == "OperationalError at column note"
