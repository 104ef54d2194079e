"""How both snapshots read: the named statements of a package, and a transaction that locks, takes its snapshot, and
checks that the table is as planned.

The lock comes before the snapshot. The catalog as the snapshot shows it is then compared with the plan and with the
locked tables: a rewrite in between moves rows without a change that anybody could see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row

from cdc.process.errors import ConfigError
from cdc.process.sql_files import load, quote_identifier
from cdc.process.untrusted_text import hide
from cdc.record.schema import TableSchema
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


_SQL = Queries(__package__)


class Changed(Exception):
    """The table is not the one that was planned, or not the one that the snapshot shows. The argument says how."""


class LockTimeout(Exception):
    """The lock was not to be had in time. The argument is Postgres' SQLSTATE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTarget:
    """The tables that a transaction locks, checks and reads: a leaf, or a table as a whole.

    ``schema``: the registered shape, of the table that the rows belong to. ``name``, ``oid``: of the target.
    ``filenode``: of its heap as planned. None where no file is planned. ``partitions``: lock those of the target too.
    """

    schema: TableSchema
    name: TableName
    oid: int
    filenode: int | None = None
    partitions: bool = False

    @property
    def columns(self) -> sql.Composed:
        """The columns of the shape, in its order."""
        return sql.SQL(", ").join(sql.Identifier(column.name) for column in self.schema.columns)


def begin(session: Session) -> None:
    """Begin a transaction that reads one state of the database from its first statement to its end."""
    session.execute(_SQL.text("begin_read"))


def open_read(session: Session, target: ReadTarget, take: Callable[[Session], None]) -> None:
    """Begin, lock, have ``take`` take the snapshot, and check. The transaction, and with it the lock, stays open.

    A role with rights on columns alone may not lock. Then a read of no row locks, behind the snapshot, and the check
    tells whether the table was changed in between. Raises :class:`Changed`, what ``take`` raises, and psycopg's
    errors: see :func:`refusals`.
    """
    begin(session)
    try:
        lock = "lock_table" if target.partitions else "lock_leaf"
        session.execute(_SQL.composed(lock, table=table(target.name)))
    except psycopg.errors.InsufficientPrivilege:
        session.rollback()
        begin(session)
        take(session)
        session.execute(_columns_now(target))
    else:
        take(session)
    _check_file(session, target)
    _check_columns(session, target)


@contextmanager
def refusals(session: Session, name: TableName) -> Iterator[None]:
    """Turn Postgres's refusal of a read in ``session`` into one sentence without a value of a row.

    Raises :class:`LockTimeout` where a lock was not to be had in time, :class:`Changed` where the table or a column is
    gone, ConfigError where the read is not allowed or a row filter or condition cannot be evaluated.
    """
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise LockTimeout(sqlstate(error)) from None
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedObject) as error:
        raise Changed(f"Postgres answers {sqlstate(error)}") from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise refused(session, name, error) from None
    except (psycopg.DataError, psycopg.ProgrammingError) as error:
        raise ConfigError(f"{name} cannot be read: Postgres answers {sqlstate(error)}") from None


def copy_blocks(
    target: ReadTarget, low: int, high: int | None, *, where: Sequence[sql.Composable] = ()
) -> sql.Composed:
    """The COPY of the target's rows in blocks ``low`` up to but not including ``high`` (None: to the end).

    ``where``: conditions that all have to hold, each in parentheses.
    """
    bounds: list[sql.Composable] = []
    if low:
        bounds.append(sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({low},0)")))
    if high is not None:
        bounds.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({high},0)")))
    rows = sql.SQL(" and ").join([*bounds, *where]) if bounds or where else sql.SQL("true")
    return _SQL.composed("copy_blocks", columns=target.columns, table=table(target.name), rows=rows)


def insert_lsn(session: Session) -> int:
    """Where the server's log ends now: every commit so far lies below."""
    return int(_SQL.one(session, "insert_lsn")[0])


def _check_file(session: Session, target: ReadTarget) -> None:
    quoted = table(target.name).as_string(session)
    found = _SQL.rows(session, "leaf_form", oid=target.oid, table=quoted, root=target.schema.oid)
    if not found or found[0].oid != target.oid:
        raise Changed("is another table now")
    form = found[0]
    if not form.belongs:
        # Its rows would stand at the floor of the reading that its detaching asks for, or above.
        raise Changed("is no partition of the table any more")
    if target.filenode is not None and not form.seen_filenode == form.filenode == target.filenode:
        files = (target.filenode, form.seen_filenode, form.filenode)
        raise Changed("was rewritten or truncated: its file was {}, is {} in the snapshot and {} now".format(*files))


def _check_columns(session: Session, target: ReadTarget) -> None:
    seen = {row.name: row for row in _SQL.rows(session, "columns_seen", oid=target.oid)}
    _check_numbers(session, target)
    with session.cursor() as cursor:
        cursor.execute(_columns_now(target))
        assert cursor.pgresult is not None
        for place, column in enumerate(target.schema.columns):
            there = seen.get(column.name)
            if there is None or there.type_oid != column.source_type_oid:
                raise Changed(f"has another column {column.name} now")
            attnum, shown = cursor.pgresult.ftablecol(place), cursor.pgresult.ftype(place)
            if there.attnum != attnum or there.shown_oid not in (None, shown):
                raise Changed(f"has another column {column.name} than the snapshot shows")


def _check_numbers(session: Session, target: ReadTarget) -> None:
    """Columns that took each other's names since the plan, of a table with masks: they would be masked by names, one
    of them not at all. Partitions have numbers of their own, and the names of their table."""
    schema = target.schema
    if not schema.noted_masks:
        return
    seen = {row.name: row.attnum for row in _SQL.rows(session, "columns_seen", oid=schema.oid)}
    for column in schema.columns:
        if seen.get(column.name) != column.attnum:
            raise Changed(f"has another column {column.name} now")


def _columns_now(target: ReadTarget) -> sql.Composed:
    return _SQL.composed("columns_now", columns=target.columns, table=table(target.name))


def refused(session: Session, name: TableName, error: psycopg.Error) -> ConfigError:
    """A read that Postgres does not allow, with what would allow it."""
    role = quote_identifier(session.info.user)
    # Its SQLSTATE is that of any right that is missing. The function of the server's says which.
    if error.diag.source_function == "check_enable_rls":
        return ConfigError(
            f"row security hides rows of {name} from this role, so the snapshot would miss them",
            hint=f"alter role {role} bypassrls;   or take the table out of [source] tables",
        )
    return ConfigError(
        f"{name} cannot be read: Postgres answers {sqlstate(error)}",
        hint=f"grant select on {quote_identifier(name.schema)}.{quote_identifier(name.table)} to {role};",
    )
