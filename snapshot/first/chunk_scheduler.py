"""The work itself: chunks to workers, results to the ledger, a new cut whenever the old one will not do."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import CdcError, Exit, SourceError
from cdc.record.position import SNAPSHOT_SEQ, Position
from cdc.record.state import ChunkState, TopicsState
from snapshot.first.manifest import Ledger, Sizing
from snapshot.first.row_writer import ChunkTask
from snapshot.first.slot_creation import CutHolder, open_cut
from snapshot.first.summary import Tally
from snapshot.first.workers import ChunkRead, ChunkUnread, RowsRead, WorkerDied, WorkerFailed, WorkerPool, chunk_id
from snapshot.source.inspection import inspect
from snapshot.source.planned_tables import InspectedTable, Inspection
from snapshot.source.ports import Edges, Reporter, Session, Shapes
from snapshot.source.read_transaction import insert_lsn

declare("cut_recorded", "chunk_reported", "chunk_recorded")

_HEAR_S = 0.25
_LOOK_AT_SLOT_S = 5.0
_TRIES = 10
"""How often one chunk or table may be taken up again before the run ends with an error."""
_DEATHS = 5
"""How many workers may die before the run ends with an error."""


class ChunkScheduler:
    """Copies what the ledger has left. ``tables``: the captured tables as of the last look."""

    def __init__(
        self,
        edges: Edges,
        session: Session,
        ledger: Ledger,
        topics: TopicsState,
        *,
        sizing: Sizing,
        reporter: Reporter,
        clock: Clock,
    ) -> None:
        self._edges = edges
        self._session = session
        self._ledger = ledger
        self._topics = topics
        self.sizing = sizing
        self._reporter = reporter
        self._clock = clock
        self._shapes: Shapes = edges.log.shapes()
        self.tables: dict[str, InspectedTable] = {}
        self.holder: CutHolder | None = None
        self._queue: deque[ChunkState] = deque()
        self._tally = Tally(ledger.manifest, {})
        self._tries: Counter[str] = Counter()
        self._deaths = 0
        self._begun: set[str] = set()
        self._lossy: set[str] = set()
        self._slot_look_s = clock.monotonic()

    def inspect(self) -> Inspection:
        """Query the tables anew: all that are captured, or, once there is a slot, those it was made with."""
        head = self._ledger.manifest.head
        inspection = inspect(
            self._edges, self._session, self._shapes, topics=self._topics, only=head.tables if head else None
        )
        self.tables = inspection.tables
        return inspection

    def inspect_at_end(self) -> Inspection:
        """Query the tables at the end, also those that cannot be read any more."""
        head = self._ledger.manifest.head
        return inspect(self._edges, self._session, self._shapes, topics=None, only=head.tables if head else None)

    def insert_lsn(self) -> int:
        """Where the server's log ends now."""
        return insert_lsn(self._session)

    def work(self, pool: WorkerPool) -> None:
        """Until every chunk is done. Needs workers that were started. They end with it."""
        if self.holder is None:
            self._recut()
        self._fill()
        while self._queue or pool.size:
            if self._queue and not self._cut().alive:
                self._reporter.say("the session that held the cut is gone: the rest is read in a new cut")
                self._recut()
                self._fill(pool)
            self._hand_out(pool)
            self._receive(pool)
            self._check_slot()

    def replan_changed(self) -> bool:
        """Plan tables anew that changed since they were read, for another round. False when none did."""
        if not self._ledger.changed(self.inspect_at_end()):
            return False
        self._recut(read_too=True)
        return True

    def close(self) -> None:
        """Let the cut go."""
        if self.holder is not None:
            self.holder.close()

    def _cut(self) -> CutHolder:
        if self.holder is None:
            raise ValueError("there is no cut")
        return self.holder

    def _recut(self, *, read_too: bool = False) -> None:
        """A new cut for all that is left, after a new look at the tables. ``read_too``: for read ones that changed."""
        self.close()
        inspection = self.inspect()
        self.holder = open_cut(self._edges.source)
        for sentence in self._ledger.cut(self.holder.cut.lsn, inspection, self.sizing, read_too=read_too):
            self._reporter.say(sentence)
        crash_point("cut_recorded")

    def _fill(self, pool: WorkerPool | None = None) -> None:
        """Queue what is left and is not with a worker."""
        out = pool.out() if pool else set()
        manifest = self._ledger.manifest
        self._queue = deque(chunk for chunk in manifest.left() if chunk_id(chunk) not in out)
        self._tally = Tally(manifest, {table: inspected.form for table, inspected in self.tables.items()})
        self._begun |= {table for table in manifest.tables() if any(c.rows for c in manifest.chunks(table))}
        self._reporter.plan({table: self.tables[table].form for table in manifest.tables() if table in self.tables})

    def _hand_out(self, pool: WorkerPool) -> None:
        ready = pool.ready()
        for member in ready:
            if not self._queue:
                break
            chunk = self._queue.popleft()
            task = self._task(chunk)
            if task is None:
                self._unread(ChunkUnread(chunk=chunk, why="changed", detail="it is not among its partitions now"), pool)
            else:
                pool.give(member, task)
        if not self._queue and len(pool.ready()) == pool.size:
            # Workers kept rows back for the marker of the last one, and write them now.
            pool.finish()

    def _task(self, chunk: ChunkState) -> ChunkTask | None:
        """The order to a worker about a chunk. None when its leaf was not there at the last look."""
        manifest = self._ledger.manifest
        inspected, state = self.tables[chunk.table], manifest.table(chunk.table)
        assert state is not None and manifest.slot is not None
        leaf = next((leaf for leaf in inspected.form.leaves if str(leaf.table) == chunk.leaf), None)
        if leaf is None:
            return None
        return ChunkTask(
            chunk=chunk,
            leaf=leaf.table,
            leaf_oid=leaf.oid,
            schema=inspected.schema,
            partition_count=self._topics.topics[inspected.form.topic]["partitions"],
            condition=inspected.condition,
            cut=self._cut().cut,
            position=Position(manifest.slot.epoch, manifest.slot.consistent_point, SNAPSHOT_SEQ),
            history=self._topics.histories.get(inspected.form.topic, ""),
            first_of_table=chunk.table not in self._begun,
            first_of_all=not self._begun,
        )

    def _receive(self, pool: WorkerPool) -> None:
        settled: list[ChunkState] = []
        for report in pool.hear(_HEAR_S):
            match report:
                case RowsRead():
                    self._tally.reading(report.chunk, report.rows)
                    self._show(report.chunk.table)
                case ChunkRead():
                    settled += report.settled
                    self._say_lost(report.lost)
                case ChunkUnread():
                    self._unread(report, pool)
                case WorkerDied():
                    self._died(report, pool)
                case WorkerFailed():
                    self._record(settled)
                    raise _failure(report)
        # Those who are free get their next chunk before the records are written.
        self._hand_out(pool)
        self._record(settled)

    def _say_lost(self, lost: Mapping[str, int]) -> None:
        for column in sorted(lost.keys() - self._lossy):
            self._reporter.say(f"{column} holds numbers that the encoding cannot express: they are null in the topic")
        self._lossy |= lost.keys()

    def _record(self, settled: list[ChunkState]) -> None:
        if not settled:
            return
        crash_point("chunk_reported")
        self._ledger.finish(settled)
        crash_point("chunk_recorded")
        for chunk in settled:
            self._tally.done(chunk)
            self._show(chunk.table)

    def _show(self, table: str) -> None:
        self._reporter.progress(table, self._tally.rows(table), self._tally.share(table))

    def _unread(self, report: ChunkUnread, pool: WorkerPool) -> None:
        chunk = report.chunk
        self._tally.dropped(chunk)
        state = self._ledger.manifest.table(chunk.table)
        if state is None or state.generation != chunk.generation:
            return  # planned anew meanwhile
        place = chunk.table if report.why == "changed" else chunk.key().decode()
        self._tries[place] += 1
        if self._tries[place] > _TRIES:
            raise SourceError(
                f"{chunk.leaf} could not be read in {_TRIES} tries: {report.detail}",
                hint="see what holds or rewrites the table, then run cdc snapshot again: it goes on where it was",
            )
        match report.why:
            case "changed":
                self._reporter.say(f"{chunk.leaf} changed under the snapshot: {report.detail}")
                self._recut()
                self._fill(pool)
                return
            case "blocked":
                self._reporter.say(f"{chunk.leaf} is locked: its chunk {chunk.number} is tried again later")
            case "session lost":
                self._reporter.say(f"a worker lost its session: chunk {chunk.number} of {chunk.leaf} is read again")
        self._queue.append(chunk)

    def _died(self, report: WorkerDied, pool: WorkerPool) -> None:
        self._deaths += 1
        if self._deaths > _DEATHS:
            raise SourceError(
                f"{_DEATHS} workers ended by themselves, the last one with exit code {report.exit_code}",
                hint="-9 is the kernel's answer to too little memory: use fewer --workers",
            )
        self._reporter.say(f"a worker ended by itself (exit code {report.exit_code}): another one takes its place")
        for chunk in report.chunks:
            self._tally.dropped(chunk)
            state = self._ledger.manifest.table(chunk.table)
            if state is not None and state.generation == chunk.generation:
                self._queue.appendleft(chunk)
        pool.start()

    def _check_slot(self) -> None:
        """Now and then: is the slot still good, and the session that holds the lock alive."""
        now = self._clock.monotonic()
        if now - self._slot_look_s < _LOOK_AT_SLOT_S:
            return
        self._slot_look_s = now
        made = self._ledger.manifest.slot
        assert made is not None
        self._edges.source.require(self._session, made, made.consistent_point)
        _, found, _ = self._edges.source.facts(self._session)
        if found is not None and found.wal_status == "unreserved":
            self._reporter.say(
                f"the server may give up the slot {made.slot} at its next checkpoint: raise max_slot_wal_keep_size now"
            )


def _failure(report: WorkerFailed) -> Exception:
    if report.trace and report.error.exit == Exit.BUG:
        return RuntimeError(report.trace)
    error: CdcError = report.error
    return error
