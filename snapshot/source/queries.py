"""A package's named statements, the ``queries.sql`` beside its modules, and how they are run."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row

from cdc.process.sql_files import load
from cdc.process.untrusted_text import hide
from cdc.record.topic_names import TableName
from snapshot.source.edges import Session

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Queries:
    """The statements of one package: ``Queries(__package__)``. Every method raises KeyError for an unknown name."""

    def __init__(self, package: str) -> None:
        self._package = package

    def text(self, name: str) -> bytes:
        """A statement without placeholders of its own, or with psycopg's."""
        return load(self._package)[name].encode()

    def composed(self, name: str, **parts: sql.Composable) -> sql.Composed:
        """A statement with its ``{parts}`` filled in."""
        return sql.SQL(load(self._package)[name]).format(**parts)

    def rows(self, session: Session, name: str, **arguments: Any) -> list[Any]:
        """The rows of the answer, as named tuples."""
        with session.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(self.text(name), arguments or None).fetchall()

    def one(self, session: Session, name: str, **arguments: Any) -> Any:
        """The only row of a statement that always has one."""
        return self.rows(session, name, **arguments)[0]


def table(name: TableName) -> sql.Identifier:
    """A table's name for a statement, quoted."""
    return sql.Identifier(name.schema, name.table)


def first_line(error: BaseException) -> str:
    """The error's message, without the context lines."""
    said = str(error).strip()
    return hide(said.splitlines()[0]) if said else type(error).__name__


def sqlstate(error: psycopg.Error) -> str:
    """The error by code and name. An error's own words may hold a row's values.

    >>> sqlstate(psycopg.errors.InvalidTextRepresentation("invalid input syntax for type integer: \\"secret\\""))
    '22P02 (invalid text representation)'
    """
    return f"{error.sqlstate or 'without a code'} ({_WORDS.sub(' ', type(error).__name__).lower()})"
