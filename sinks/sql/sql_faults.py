"""The subject of a database's error: pure. By SQLSTATE where there is one, by SQLite's words, else by its class.

A SQLAlchemyError's own text quotes the statement with its values, so of the text no more than names is used.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from sqlalchemy import exc


class Fault(Enum):
    """The three kinds of :mod:`sinks.port`. Of what cannot be taken it says what."""

    AWAY = "away"
    MISSING = "missing"
    TABLE = "table"
    RECORD = "record"


_STATES: tuple[tuple[tuple[str, ...], Fault], ...] = (
    # An undefined table, an undefined schema.
    (("42P01", "3F000"), Fault.MISSING),
    # Not null: a column of the user's, or one of ours, which no delete fits. 54: too many columns, or of arguments.
    (("23502", "42", "54011", "54023", "55000", "2B"), Fault.TABLE),
    (("22", "23", "54", "44", "P0", "38", "39", "09"), Fault.RECORD),
)
"""The beginnings of SQLSTATEs (PostgreSQL's appendix A), the first that fits. All others may pass: no connection, no
room, a deadlock, a lock that was not had, a transaction that may not write."""

NO_RIGHT = "42501"

_LITE: tuple[tuple[str, Fault], ...] = (
    ("no such table", Fault.MISSING),
    ("has no column", Fault.TABLE),
    ("no such column", Fault.TABLE),
    ("too many columns", Fault.TABLE),
    ("may not be modified", Fault.TABLE),
    ("cannot modify", Fault.TABLE),
    ("duplicate column", Fault.TABLE),
    ("NOT NULL constraint failed", Fault.TABLE),
)
"""Parts of SQLite's messages (sqlite3 has no state, and calls most of these OperationalError)."""
_LITE_NAMED = re.compile(r"(?:no column named|no such column:|constraint failed:) (?:\w+\.)?(\w+)")


def fault_of(error: Exception) -> Fault:
    """The fault behind an exception of SQLAlchemy's."""
    if not isinstance(error, exc.DBAPIError):
        # A value that SQLAlchemy itself cannot pass on, or its own idea of the table.
        return Fault.RECORD if isinstance(error, exc.StatementError) else Fault.TABLE
    state = state_of(error)
    if state:
        return next((fault for states, fault in _STATES if state.startswith(states)), Fault.AWAY)
    text = str(error.orig)
    for words, fault in _LITE:
        if words in text:
            return fault
    if isinstance(error, exc.DataError | exc.IntegrityError):
        return Fault.RECORD
    return Fault.TABLE if isinstance(error, exc.ProgrammingError | exc.NotSupportedError) else Fault.AWAY


def state_of(error: Exception) -> str:
    """The SQLSTATE. Empty where there is none."""
    cause: Any = error.orig if isinstance(error, exc.DBAPIError) else error
    return getattr(cause, "sqlstate", None) or ""


def lacks_right(error: Exception) -> str:
    """Postgres's own sentence on a missing right: it names a table or schema, and no value. Empty elsewhere."""
    cause: Any = error.orig if isinstance(error, exc.DBAPIError) else error
    return str(cause.diag.message_primary or "") if state_of(error) == NO_RIGHT else ""


def kind_of(error: Exception) -> str:
    """The kind of an error, without its text, which may quote a row. With the column that it names."""
    cause: Any = error.orig if isinstance(error, exc.DBAPIError) else error
    state = state_of(error)
    named = getattr(getattr(cause, "diag", None), "column_name", None)
    if named is None and not state:
        found = _LITE_NAMED.search(str(cause))
        named = found[1] if found else None
    kind = f"{type(cause).__name__} (SQLSTATE {state})" if state else type(cause).__name__
    return f"{kind} at column {named}" if named else kind
