"""A request that is being carried out: what is planned, what is out, and what the state topic says of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cdc.checks.findings import failed_readings
from cdc.operate.snapshot_requests import condition_on
from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.row_condition import Condition
from cdc.record.state import ReadingState, RequestState
from cdc.record.topic_names import TableName
from connectors.postgres.encoding.encoder import TableEncoder
from snapshot.later.chunk_queue import ChunkQueue, said_of
from snapshot.source.planned_tables import Chunk, InspectedTable, LeafForm, form_change
from snapshot.source.planned_tables import TableForm as Look

MOST_FAILURES = 5
"""In a row. Then the request has failed, and says why."""
MOST_WAIT_S = 30.0
WAITING, RUNNING, PAUSED, DONE, FAILED, CANCELLED = "waiting", "running", "paused", "done", "failed", "cancelled"


@dataclass(frozen=True, slots=True)
class Differing:
    """How many rows a reading has changed in the log. None where that was not found out, and ``why``."""

    rows: int | None = None
    why: str = ""

    @property
    def words(self) -> str:
        """For ``cdc snapshot`` and the log. Empty where nothing was compared and nothing had to be."""
        if self.rows is None:
            return f"not compared with the log: {self.why}" if self.why else ""
        return said_of(self.rows)


_NOT_COMPARED = Differing()


@dataclass(slots=True)
class TableReading:
    """``plan``: None until the table was inspected, and again when it changed. ``out``: chunks with a reader.

    ``wanted``: the request's condition, parsed. ``ready``: it waits for nothing but a reader. ``turn``: when it was
    last given one. ``failures``: in a row, without anything read in between. ``ending``: every chunk is stored, and it
    is swept and compared.
    """

    request: RequestState
    state: ReadingState
    encoder: TableEncoder | None = None
    inspected: InspectedTable | None = None
    partitioned: bool = False
    chunks: ChunkQueue | None = None
    wanted: Condition | None = None
    awaited: frozenset[int] = frozenset()
    after_lsn: int = 0
    out: int = 0
    not_before_s: float = 0.0
    ending: bool = False
    compared: Differing = _NOT_COMPARED
    ready: bool = False
    turn: int = 0
    failures: int = 0

    def plan(self, inspected: InspectedTable, encoder: TableEncoder, *, window_bytes: int, server_version: int) -> None:
        """Cut the table into chunks. Those that an earlier session finished are not read again, if it is as it was.

        Raises TooLarge. ConfigError when the request's condition is none.
        """
        where = self.request.where
        self.wanted = condition_on(where, inspected.schema) if where is not None else None
        state = self.state
        kept = bool(state.leaves) and form_change(_planned(state, inspected.form), inspected.form) is None
        done = {leaf["oid"]: leaf["next"] for leaf in state.leaves} if kept else None
        if not kept:
            self.state = replace(state, floor="", rows=0, left_out=0, share=0.0)
        leaves = inspected.form.leaves
        if self.request.leaves is not None:
            leaves = tuple(leaf for leaf in leaves if str(leaf.table) in self.request.leaves)
        self.chunks = ChunkQueue(
            leaves,
            keys=self.request.keys,
            window_bytes=window_bytes,
            server_version=server_version,
            done=done,
            whole=self.request.whole,
        )
        self.inspected, self.encoder = inspected, encoder
        self.partitioned = all(leaf.oid != inspected.form.oid for leaf in inspected.form.leaves)
        self.note(RUNNING)
        self.state = replace(
            self.state, oid=inspected.form.oid, version=inspected.form.version, leaves=self.chunks.progress()
        )

    def forget(self, after_lsn: int) -> None:
        """The table is not what was planned: all of it again, once the stream has passed ``after_lsn``."""
        self.chunks = self.inspected = self.encoder = None
        self.after_lsn = after_lsn
        self.state = replace(self.state, leaves=[], floor="")

    def written(self, position: Position) -> None:
        """Rows were written there. The lowest of their positions is the floor of all."""
        text = position._replace(tx_seq=CHUNK_SEQ).text()
        floor, begun = self.state.floor or text, self.state.begun or text
        self.state = replace(self.state, floor=min(text, floor), begun=min(text, begun))

    def done(self, chunk: Chunk, rows: int, left_out: int) -> None:
        """The brokers hold a chunk."""
        assert self.chunks is not None
        self.failures = 0
        self.chunks.done(chunk)
        self.state = replace(
            self.state,
            rows=self.state.rows + rows,
            left_out=self.state.left_out + left_out,
            leaves=self.chunks.progress(),
            share=self.chunks.share,
        )

    def note(self, state: str, detail: str = "") -> None:
        """Note how far the reading is. ``detail``: why it waits or failed, else empty."""
        self.state = replace(self.state, state=state, detail=detail)

    def failed(self, now_s: float) -> bool:
        """Note a failure. False when there were so many in a row that it is not tried again."""
        self.failures += 1
        self.not_before_s = now_s + min(2.0 ** (self.failures - 1), MOST_WAIT_S)
        return self.failures <= MOST_FAILURES

    @property
    def small(self) -> bool:
        """Whether all it reads is a few keys."""
        return self.request.keys is not None

    @property
    def table(self) -> TableName:
        """The table's name: as the catalog had it, or as the request says before it was inspected."""
        schema, _, name = self.request.table.partition(".")
        return self.inspected.form.table if self.inspected is not None else TableName(schema, name)


def next_reading(readings: Iterable[TableReading]) -> TableReading | None:
    """The request that gets the next free reader: the one with the fewest, and of these the one that has waited
    longest. So a small request goes between the chunks of a large one."""
    return min(
        (reading for reading in readings if reading.ready),
        key=lambda reading: (reading.out, reading.turn),
        default=None,
    )


def _planned(state: ReadingState, now: Look) -> Look:
    """The table as an earlier session planned it. Only the facts of its identity are compared."""
    leaves: Sequence[LeafForm] = tuple(
        LeafForm(
            oid=leaf["oid"],
            table=TableName(leaf["schema"], leaf["name"]),
            filenode=leaf["filenode"],
            heap_blocks=leaf["blocks"],
            size_bytes=0,
        )
        for leaf in state.leaves
    )
    return Look(table=now.table, topic=now.topic, oid=state.oid, version=state.version, leaves=tuple(leaves))


def fresh(request: RequestState, epoch: int, now_ns: int) -> ReadingState:
    """The state of a request that nobody has begun."""
    return ReadingState(
        id=request.id,
        table=request.table,
        serial=request.serial,
        epoch=epoch,
        first=request.first,
        started_ns=now_ns,
    )


_KEPT_NS = {FAILED: 86_400 * 10**9}
_KEPT_OTHERWISE_NS = 3_600 * 10**9


def forgettable(states: Iterable[ReadingState], now_ns: int) -> list[ReadingState]:
    """Of conditions and keys that were read, and are over for an hour (a day where they failed): nobody asks any more.

    A table's own stays: there is one of each, and it notes that its first rows were read. Partitions that failed to be
    read stay too, because the stores lack them, until the whole table was read.
    """
    each = list(states)
    lacking = {state.id for state in failed_readings(each)}
    return [
        state
        for state in each
        if state.over
        and state.id != f"snapshot:{state.table}"
        and not (state.id in lacking and state.id == f"snapshot:{state.table}:partitions")
        and now_ns - state.finished_ns > _KEPT_NS.get(state.state, _KEPT_OTHERWISE_NS)
    ]


@dataclass(slots=True)
class RateLimit:
    """No more than so many rows a second over time. 0: no limit."""

    rows_per_s: int
    _free_s: float = 0.0

    def took(self, rows: int, now_s: float) -> None:
        """Count ``rows`` that were read at ``now_s`` of the monotonic clock."""
        if self.rows_per_s:
            self._free_s = max(self._free_s, now_s) + rows / self.rows_per_s

    def wait_s(self, now_s: float) -> float:
        """How long until more may be read."""
        return max(0.0, self._free_s - now_s)
