"""From a chunk's lines to records: every row ``op=r`` at the slot's consistent point.

With one worker the markers ``first``, ``last`` and their like are exact (D24). Whether a row is the last of its
table shows only when the next one comes, so the newest row is kept back, across chunks, until it is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import psycopg
from psycopg import sql

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.record.state import ChunkState
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import Masks
from cdc.wire.format import READ_OP
from connectors.postgres.encoding.encoder import TableEncoder, compile_table, record_headers
from snapshot.first.slot_creation import ExportedCut
from snapshot.source.ports import RowLog, Session
from snapshot.source.read_transaction import (
    SQL,
    ReadTarget,
    copy_blocks,
    copy_out,
    envelope,
    first_line,
    open_read,
    refusals,
)


def marker(*, first_of_all: bool, first_of_table: bool, last_of_table: bool, last_of_all: bool) -> str:
    """``source.snapshot`` of a row. Where several hold, in Debezium's order.

    >>> marker(first_of_all=True, first_of_table=True, last_of_table=True, last_of_all=False)
    'last_in_data_collection'
    """
    if last_of_all:
        return "last"
    if last_of_table:
        return "last_in_data_collection"
    if first_of_all:
        return "first"
    return "first_in_data_collection" if first_of_table else "true"


@dataclass(slots=True)
class _OpenChunk:
    """A chunk on its way: what was written of it."""

    task: ChunkTask
    encoder: TableEncoder
    headers: list[tuple[str, bytes]]
    started_ns: int
    finished_ns: int = 0
    rows: int = 0
    size_bytes: int = 0

    def state(self) -> ChunkState:
        return replace(
            self.task.chunk,
            rows=self.rows,
            size_bytes=self.size_bytes,
            started_ns=self.started_ns,
            finished_ns=self.finished_ns,
        )


@dataclass(slots=True)
class _LastRow:
    """A row whose marker is not known yet."""

    chunk: _OpenChunk
    line: bytes
    first_of_all: bool
    first_of_table: bool


class RowWriter:
    """Writes the rows of chunks, one chunk after the other, masked.

    ``name``: the pipeline's. ``database``: the source's. ``exact``: hold the newest row back for its marker. Only for a
    single worker. The brokers have the records that :meth:`settled` returns once the log has been flushed *before* that
    call.
    """

    def __init__(self, log: RowLog, *, name: str, database: str, clock: Clock, exact: bool, masks: Masks) -> None:
        self.log = log
        self._masks = masks
        self._name = name
        self._database = database
        self._clock = clock
        self._exact = exact
        self._chunk: _OpenChunk | None = None
        self._last_row: _LastRow | None = None
        self._closed: list[_OpenChunk] = []
        self._begun: set[str] = set()
        self._compiled: dict[TableSchema, TableEncoder] = {}

    @property
    def row_count(self) -> int:
        """Rows of the open chunk that were taken, one kept back included."""
        if self._chunk is None:
            return 0
        return self._chunk.rows + (self._last_row is not None and self._last_row.chunk is self._chunk)

    def open(self, task: ChunkTask) -> None:
        """Begin a chunk."""
        encoder = self._compiled.get(task.schema)
        if encoder is None:
            encoder = compile_table(task.schema, name=self._name, database=self._database, masks=self._masks)
            self._compiled[task.schema] = encoder
        headers = record_headers(task.position, READ_OP, task.schema.version)
        self._chunk = _OpenChunk(task, encoder, headers, self._clock.now_ns())

    def write(self, lines: list[bytes]) -> None:
        """Hand the open chunk's next lines, in COPY's text format, to the log."""
        chunk = self._open_chunk()
        middle = self._hold(chunk, lines) if self._exact else lines
        if middle:
            self._send(chunk, middle, "true")

    def close(self) -> None:
        """End the open chunk."""
        chunk = self._open_chunk()
        chunk.finished_ns = self._clock.now_ns()
        self._closed.append(chunk)
        self._chunk = None

    def drop(self) -> None:
        """Forget the open chunk, if there is one: it will be read again."""
        if self._last_row is not None and self._last_row.chunk is self._chunk:
            self._last_row = None
        self._chunk = None

    def finish(self) -> None:
        """There are no more rows: write the one kept back."""
        if self._last_row is not None:
            self._release(last_of_table=True, last_of_all=True)

    def settled(self) -> list[ChunkState]:
        """The closed chunks of which nothing is kept back, each once."""
        holding = self._last_row.chunk if self._last_row else None
        done = [chunk.state() for chunk in self._closed if chunk is not holding]
        self._closed = [chunk for chunk in self._closed if chunk is holding]
        return done

    def lost(self) -> Counter[str]:
        """Values that the encoding cannot express, by ``table.column``, since the last call (D4)."""
        found: Counter[str] = Counter()
        for schema, encoder in self._compiled.items():
            found.update({f"{schema.table}.{column}": count for column, count in encoder.lost.items()})
            encoder.lost.clear()
        return found

    def _open_chunk(self) -> _OpenChunk:
        if self._chunk is None:
            raise ValueError("no chunk is open")
        return self._chunk

    def _hold(self, chunk: _OpenChunk, lines: list[bytes]) -> list[bytes]:
        """Settle the markers at both ends of a block. The lines between them are what comes back."""
        table = chunk.task.chunk.table
        if self._last_row is not None:
            self._release(last_of_table=self._last_row.chunk.task.chunk.table != table, last_of_all=False)
        first_of_all = chunk.task.first_of_all and not self._begun
        first_of_table = chunk.task.first_of_table and table not in self._begun
        self._begun.add(table)
        alone = len(lines) == 1
        self._last_row = _LastRow(chunk, lines[-1], first_of_all and alone, first_of_table and alone)
        if alone or not first_of_table:
            return lines[:-1]
        first = marker(first_of_all=first_of_all, first_of_table=first_of_table, last_of_table=False, last_of_all=False)
        self._send(chunk, lines[:1], first)
        return lines[1:-1]

    def _release(self, *, last_of_table: bool, last_of_all: bool) -> None:
        last, self._last_row = self._last_row, None
        if last is not None:
            named = marker(
                first_of_all=last.first_of_all,
                first_of_table=last.first_of_table,
                last_of_table=last_of_table,
                last_of_all=last_of_all,
            )
            self._send(last.chunk, [last.line], named)

    def _send(self, chunk: _OpenChunk, lines: list[bytes], named: str) -> None:
        task = chunk.task
        around = envelope(
            chunk.encoder,
            task.position,
            marker=named,
            now_ns=self._clock.now_ns(),
            source_us=task.cut.taken_us,
            tx_id=task.cut.tx_id,
        )
        prefix, suffix = around.prefix, around.suffix
        records = [(key, prefix + row + suffix) for key, row in map(chunk.encoder.snapshot_line, lines)]
        self.log.rows(task.schema.topic, task.partition_count, records, chunk.headers)
        if task.history:
            self.log.rows(task.history, task.partition_count, records, chunk.headers)
        chunk.rows += len(records)
        chunk.size_bytes += sum(map(len, chain.from_iterable(records)))


declare("chunk_begun", "chunk_locked", "chunk_checked")

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
    publication's row filter. ``history``: the topic that keeps each change of the table, empty without one.
    ``first_of_table``, ``first_of_all``: no earlier run wrote a row of it, or of anything.
    """

    chunk: ChunkState
    leaf: TableName
    leaf_oid: int
    schema: TableSchema
    partition_count: int
    condition: str | None
    cut: ExportedCut
    position: Position
    history: str = ""
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
    :class:`CutLost` before the first row, and what :func:`snapshot.source.read_transaction.refusals` names.
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
        session.execute(SQL.composed("import_snapshot", snapshot=sql.Literal(task.cut.snapshot)))
    except _GONE as error:
        raise CutLost(first_line(error)) from None
