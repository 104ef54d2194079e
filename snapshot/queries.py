"""The named statements of ``queries.sql``, and how they are run."""

from __future__ import annotations

from typing import Any

from psycopg import sql
from psycopg.rows import namedtuple_row

from cdc.foreign import hide
from cdc.sql import load
from cdc.topic import TableName
from snapshot.edges import Session


def text(name: str) -> bytes:
    """A statement without placeholders of its own, or with psycopg's."""
    return load("snapshot")[name].encode()


def composed(name: str, **parts: sql.Composable) -> sql.Composed:
    """A statement with its ``{parts}`` filled in."""
    return sql.SQL(load("snapshot")[name]).format(**parts)


def rows(session: Session, name: str, **arguments: Any) -> list[Any]:
    """The answer's rows, as named tuples."""
    with session.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(text(name), arguments or None).fetchall()


def one(session: Session, name: str, **arguments: Any) -> Any:
    """The only row of a statement that always has one."""
    return rows(session, name, **arguments)[0]


def table(name: TableName) -> sql.Identifier:
    return sql.Identifier(name.schema, name.table)


def first_line(error: BaseException) -> str:
    """What went wrong, without the context lines."""
    said = str(error).strip()
    return hide(said.splitlines()[0]) if said else type(error).__name__
