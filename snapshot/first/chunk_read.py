"""One chunk: a transaction that locks, looks through the cut, checks that the table is what was planned, and copies.

The lock comes before the snapshot is imported, and what the cut's catalog says is compared with what the lock
holds still: a rewrite in between moves rows without a change that anybody could see (H71).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import pq, sql

from cdc.crash import crash_point, declare
from cdc.errors import ConfigError
from cdc.position import Position
from cdc.readable import readable
from cdc.schema import TableSchema
from cdc.sql import quote_identifier
from cdc.state import ChunkState
from cdc.topic import TableName
from snapshot.edges import Session
from snapshot.first.export import Cut
from snapshot.queries import composed, first_line, rows, table, text

declare("chunk_begun", "chunk_locked", "chunk_checked")

_GONE = (
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.UndefinedObject,
    psycopg.errors.ObjectNotInPrerequisiteState,
)
"""How Postgres says that a snapshot's file is gone (by version), or that its holder is, and the file not yet.

The holder's transaction ends before its file does: src/backend/access/transam/xact.c, AbortTransaction.
"""
BLOCK_LINES = 1000
BLOCK_BYTES = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTask:
    """A chunk as a worker is told it: plain data.

    ``chunk`` as planned, of the leaf ``leaf_oid``; ``schema``: the registered shape; ``condition``: the
    publication's row filter. ``first_of_table``, ``first_of_all``: no earlier run wrote a row of it, or of anything.
    """

    chunk: ChunkState
    leaf: TableName
    leaf_oid: int
    schema: TableSchema
    partition_count: int
    condition: str | None
    cut: Cut
    position: Position
    first_of_table: bool = False
    first_of_all: bool = False


class Changed(Exception):
    """The leaf is not the one that was planned, or not the one that the cut sees; the argument says how."""


class CutLost(Exception):
    """The cut's holder is gone, so its snapshot cannot be imported any more."""


class Blocked(Exception):
    """The leaf's lock was not to be had in time."""


def read_chunk(session: Session, task: ChunkTask) -> Iterator[list[bytes]]:
    """The chunk's rows as lines of COPY's text format, in blocks of bounded size, inside one transaction.

    The transaction, and with it the lock, stays open: whoever writes the rows flushes them and commits. Raises
    :class:`Changed`, :class:`CutLost` or :class:`Blocked` before the first row, ConfigError where Postgres refuses
    the read (rights, row security: H27).
    """
    session.execute(text("begin_chunk"))
    crash_point("chunk_begun")
    try:
        _lock(session, task)
        crash_point("chunk_locked")
        _check(session, task)
        crash_point("chunk_checked")
        yield from copy_out(session, _copy_statement(session, task))
    except psycopg.errors.LockNotAvailable as error:
        raise Blocked(first_line(error)) from None
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
        raise Changed(first_line(error)) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise refused(task, error) from None


def refused(task: ChunkTask, error: psycopg.Error) -> ConfigError:
    """A read that Postgres does not allow, with what would allow it."""
    said = first_line(error)
    if "row-level security" in said or "row security" in said:
        return ConfigError(
            f"row security hides rows of {task.leaf} from this role, so the snapshot would miss them",
            hint="alter role <user> bypassrls;   or take the table out of [source] tables",
        )
    return ConfigError(
        f"{task.leaf} cannot be read: {said}",
        hint=f"grant select on {quote_identifier(task.leaf.schema)}.{quote_identifier(task.leaf.table)} to <user>;",
    )


def _lock(session: Session, task: ChunkTask) -> None:
    """Lock, then import. A role with rights on columns alone may not lock: then the reading itself locks."""
    try:
        session.execute(composed("lock_leaf", leaf=table(task.leaf)))
    except psycopg.errors.InsufficientPrivilege:
        session.execute(b"rollback")
        session.execute(text("begin_chunk"))
        _import(session, task)
        session.execute(composed("columns_now", columns=_columns(task), leaf=table(task.leaf)))
        return
    _import(session, task)


def _import(session: Session, task: ChunkTask) -> None:
    try:
        session.execute(composed("import_snapshot", snapshot=sql.Literal(task.cut.snapshot)))
    except _GONE as error:
        raise CutLost(first_line(error)) from None


def _check(session: Session, task: ChunkTask) -> None:
    found = rows(session, "leaf_form", oid=task.leaf_oid, leaf=str(table(task.leaf).as_string(session)))
    if not found or found[0].oid != task.leaf_oid:
        raise Changed("is another table in the cut")
    form = found[0]
    if not form.cut_filenode == form.filenode == task.chunk.filenode:
        files = (task.chunk.filenode, form.cut_filenode, form.filenode)
        raise Changed("its file was {} when it was planned, is {} in the cut and {} now".format(*files))
    in_cut = {row.name: row for row in rows(session, "columns_in_cut", oid=task.leaf_oid)}
    with session.cursor() as cursor:
        cursor.execute(composed("columns_now", columns=_columns(task), leaf=table(task.leaf)))
        assert cursor.pgresult is not None
        for place, column in enumerate(task.schema.columns):
            there = in_cut.get(column.name)
            attnum = cursor.pgresult.ftablecol(place)
            type_oid = cursor.pgresult.ftype(place)
            if there is None or there.attnum != attnum or there.type_oid not in (None, type_oid):
                raise Changed(f"column {column.name} is another one than in the cut")


def _columns(task: ChunkTask) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column.name) for column in task.schema.columns)


def _copy_statement(session: Session, task: ChunkTask) -> bytes:
    parts = {
        "columns": _columns(task),
        "leaf": table(task.leaf),
        "low": sql.Literal(f"({task.chunk.low},0)"),
        # The catalog prints a filter as SQL, in parentheses; it is no text of ours to quote.
        "condition": sql.SQL(task.condition or "true"),
    }
    if task.chunk.high is None and task.chunk.low == 0:
        return composed("copy_all", **parts).as_bytes(session)
    if task.chunk.high is None:
        return composed("copy_rest", **parts).as_bytes(session)
    return composed("copy_range", **parts, high=sql.Literal(f"({task.chunk.high},0)")).as_bytes(session)


def copy_out(session: Session, statement: bytes) -> Iterator[list[bytes]]:
    """Run a COPY ... TO STDOUT; its lines in blocks, as they come. psycopg's error when it fails.

    Below psycopg's own COPY, which costs more per line than Postgres needs to send it. It waits outside libpq, so
    that other threads run meanwhile.
    """
    pgconn = session.pgconn
    pgconn.send_query(statement)
    _wait(pgconn)
    _expect(pgconn, pq.ExecStatus.COPY_OUT)
    take = pgconn.get_copy_data
    lines: list[bytes] = []
    held = 0
    while True:
        length, data = take(1)
        if length > 0:
            lines.append(bytes(data))
            held += length
            if held >= BLOCK_BYTES or len(lines) == BLOCK_LINES:
                yield lines
                lines, held = [], 0
        elif length == 0:
            _wait(pgconn, consume=True)
        else:
            break
    if lines:
        yield lines
    _expect(pgconn, pq.ExecStatus.COMMAND_OK)
    while pgconn.get_result():
        pass


def _wait(pgconn: pq.abc.PGconn, *, consume: bool = False) -> None:
    """Until a result is there; with ``consume`` until something came."""
    while consume or pgconn.is_busy():
        readable(pgconn.socket, None)
        pgconn.consume_input()
        if consume:
            return


def _expect(pgconn: pq.abc.PGconn, status: pq.ExecStatus) -> None:
    """The next result has that status; else its error, the session ready for the next command."""
    result = pgconn.get_result()
    if result is None:
        raise psycopg.OperationalError("the session ended")
    if result.status != status:
        while pgconn.get_result():
            pass
        raise psycopg.errors.error_from_result(result)
