"""One chunk of the first snapshot: its rows, read through the cut that all chunks share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc.crash import crash_point, declare
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.state import ChunkState
from cdc.topic import TableName
from snapshot.copy_out import copy_out
from snapshot.edges import Session
from snapshot.first.exported_cut import ExportedCut
from snapshot.queries import Queries, first_line
from snapshot.read_transaction import ReadTarget, copy_blocks, open_read, refusals

declare("chunk_begun", "chunk_locked", "chunk_checked")

_SQL = Queries(__package__)
_GONE = (
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.UndefinedObject,
    psycopg.errors.ObjectNotInPrerequisiteState,
)
"""How Postgres says that a snapshot's file is gone (by version), or that its holder is, and the file not yet.

The holder's transaction ends before its file does: src/backend/access/transam/xact.c, AbortTransaction.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTask:
    """A chunk as a worker gets it: plain data.

    ``chunk`` as planned, of the leaf ``leaf_oid``. ``schema``: the registered shape. ``condition``: the
    publication's row filter. ``first_of_table``, ``first_of_all``: no earlier run wrote a row of it, or of anything.
    """

    chunk: ChunkState
    leaf: TableName
    leaf_oid: int
    schema: TableSchema
    partition_count: int
    condition: str | None
    cut: ExportedCut
    position: Position
    first_of_table: bool = False
    first_of_all: bool = False

    @property
    def target(self) -> ReadTarget:
        """The leaf as it was planned."""
        return ReadTarget(schema=self.schema, name=self.leaf, oid=self.leaf_oid, filenode=self.chunk.filenode)


class CutLost(Exception):
    """The cut's holder is gone, so its snapshot cannot be imported any more."""


def read_chunk(session: Session, task: ChunkTask) -> Iterator[list[bytes]]:
    """The chunk's rows as lines of COPY's text format, in blocks of bounded size, inside one transaction.

    The transaction, and with it the lock, stays open: the writer of the rows flushes them and commits. Raises
    :class:`CutLost` before the first row, and what :func:`snapshot.read_transaction.refusals` names.
    """
    crash_point("chunk_begun")
    target = task.target
    # The catalog prints a filter as SQL, in parentheses. It is no text of ours to quote.
    where = [sql.SQL(task.condition)] if task.condition else []
    with refusals(session, target.name):
        open_read(session, target, lambda _: _import(session, task))
        crash_point("chunk_checked")
        query = copy_blocks(target, task.chunk.low, task.chunk.high, where=where)
        yield from copy_out(session, query.as_bytes(session))


def _import(session: Session, task: ChunkTask) -> None:
    crash_point("chunk_locked")
    try:
        session.execute(_SQL.composed("import_snapshot", snapshot=sql.Literal(task.cut.snapshot)))
    except _GONE as error:
        raise CutLost(first_line(error)) from None
