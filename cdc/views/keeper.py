"""The runner of one view: from cut to cut of the log, through the state, to the view's topic.

A turn reads up to the newest progress record, applies the cut at its LSN, and notes which documents it concerns, all in
one local transaction. Then what waits is computed from the present state and published at the present fence, in pieces,
the oldest first. Everything that is published is a function of the log and the fence, so a replay says the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from cdc.clock import Clock
from cdc.progress import Offsets, Progress
from cdc.topic import TableName
from cdc.views.embedded_state import EmbeddedState
from cdc.views.fences import BEFORE_ALL, Fence, LogCut, TopicRecord, fence_of, spans_to
from cdc.views.lookups import DocumentSource, Row
from cdc.views.record_rows import StateRows
from cdc.views.refused import NotComputable
from cdc.views.root_keys import RowChange
from cdc.views.view_plan import ViewPlan
from cdc.views.view_ports import ViewInput, ViewOutput
from cdc.views.view_records import ViewRecord, ViewRecords, key_row
from cdc.views.view_state import ViewState
from cdc.wire.floors import read_floor
from cdc.wire.format import AFTER, DELETE_OP, TRUNCATE_OP

log = logging.getLogger(__name__)

PIECE = 5_000
"""Documents of one transaction, at most."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn did: records read, keys that they concern, documents and deletions published."""

    records: int = 0
    concerned: int = 0
    documents: int = 0
    deletions: int = 0

    @property
    def idle(self) -> bool:
        """Whether nothing moved."""
        return not (self.records or self.documents or self.deletions)


@dataclass(frozen=True, slots=True)
class KeeperParts:
    """What a runner works with. ``topics``: the topic of each table that the view uses."""

    plan: ViewPlan
    state: ViewState
    input: ViewInput
    output: ViewOutput
    records: ViewRecords
    topics: Mapping[TableName, str]


class Keeper:
    """Keeps one view. ``largest``: bytes of a document's row. ``piece``: documents of one transaction, at most.

    :meth:`begin` first, then :meth:`turn` again and again.
    """

    def __init__(self, parts: KeeperParts, *, clock: Clock, largest: int = 900_000, piece: int = PIECE) -> None:
        self._plan = plan = parts.plan
        self._state = state = parts.state
        self._input = parts.input
        self._output = parts.output
        self._records = parts.records
        self._tables = {topic: table for table, topic in parts.topics.items()}
        self._clock = clock
        self._largest = largest
        self._piece = piece
        self._applied = EmbeddedState(state.rows)
        self._documents = DocumentSource(plan)
        self._readers: dict[tuple[str, int], StateRows] = {}
        self._proven = False
        self._claimed = BEFORE_ALL

    def begin(self) -> None:
        """Take up what a run before has left: keys of what was published and is not known here wait again (V4)."""
        keys, ends = self._output.behind(self._state.reached.ends)
        claimed = self._output.claimed()
        rows = []
        for key in keys:
            try:
                rows.append(key_row(self._plan, key))
            except (ValueError, KeyError, TypeError):
                continue  # a floor's key
        with self._state.transaction():
            reached = self._state.reached
            published = max(reached.published, claimed or BEFORE_ALL)
            if rows and reached.built:
                self._state.queue(rows, reached.fence)
            self._state.note(ends=ends, published=published)

    def turn(self) -> Turn:
        """One look at the log, and one piece of what waits."""
        records, concerned = self._advance()
        documents, deletions = self._publish()
        return Turn(records, concerned, documents, deletions)

    @property
    def level(self) -> bool:
        """Whether nothing waits, and the claim has reached the fence."""
        return self._proven and self._state.reached.built and self._claimed == self._state.reached.fence

    def _advance(self) -> tuple[int, int]:
        progress = self._input.progress()
        seen_s = self._clock.monotonic()
        reached = self._state.reached
        if progress is None or fence_of(progress) <= reached.fence:
            return 0, 0
        read, changes, floors, marks, cut = self._read(progress)
        # What the cleaner may have taken since the record was seen was not there to be read.
        self._proven = self._clock.monotonic() - seen_s < self._input.compaction_lag_s
        with self._state.transaction():
            concerned = self._applied.apply(changes, self._plan, floors)
            built = reached.built or self._proven
            if reached.built:
                self._state.queue(concerned, reached.fence)
            elif built:
                self._state.queue_all(BEFORE_ALL)
                self._state.note(sweep=fence_of(progress).floor().text())
            self._state.note(
                fence=fence_of(progress),
                offsets=_behind(reached.offsets, cut),
                built=built,
                marks=marks,
                level_ms=self._clock.now_ns() // 1_000_000 if self._proven else reached.level_ms,
            )
        return read, len(concerned)

    def _read(self, progress: Progress) -> tuple[int, list[RowChange], dict[TableName, str], tuple[str, ...], LogCut]:
        spans = spans_to(progress, self._state.reached.offsets, self._tables)
        cut = LogCut(fence_of(progress), spans)
        changes: list[RowChange] = []
        floors: dict[TableName, str] = {}
        marks = set(self._state.reached.marks)
        read = 0
        for lot in self._input.read(spans):
            for record in cut.take(lot):
                read += 1
                table = self._tables[record.topic]
                if record.op == TRUNCATE_OP:
                    floor = _floor(record, table, marks)
                    if floor is not None:
                        floors[table] = max(floor, floors.get(table, ""))
                else:
                    change = self._change(table, record)
                    if change is not None:
                        changes.append(change)
        return read, changes, floors, tuple(sorted(marks)), cut

    def _change(self, table: TableName, record: TopicRecord) -> RowChange | None:
        place = (record.topic, record.version)
        reader = self._readers.get(place)
        if reader is None:
            reader = StateRows(self._input.shape(*place), self._plan.relations[table])
            self._readers[place] = reader
        key = reader.key(record.key)
        if record.op == DELETE_OP or record.value is None:
            return RowChange(table, key, None, record.pos)
        after = orjson.loads(record.value)[AFTER]
        return RowChange(table, key, reader.row(after), record.pos)

    def _publish(self) -> tuple[int, int]:
        state = self._state
        reached = state.reached
        # Until the cut has reached what was ever published, keys are only collected (V5).
        if not reached.built or not self._proven or reached.fence < reached.published:
            return 0, 0
        keys = state.waiting(self._piece)
        if not keys and not reached.sweep and self._claimed == reached.fence:
            return 0, 0
        computed = self._documents.of(state.rows, keys)
        known = state.digests(keys)
        now_ns = self._clock.now_ns()
        written: list[ViewRecord] = []
        digests: dict[Row, bytes | None] = {}
        parked: dict[Row, str] = {}
        for key, row in computed.items():
            reason = self._reason(row)
            if reason:
                parked[key] = reason
            elif isinstance(row, str):
                digest = blake2b(row.encode(), digest_size=16).digest()
                if known.get(key) != digest:
                    written += self._records.document(key, row, reached.fence, known=key in known, now_ns=now_ns)
                    digests[key] = digest
            elif key in known:
                written += self._records.deletion(key, reached.fence, now_ns)
                digests[key] = None
        last = len(keys) < self._piece
        if last and reached.sweep:
            written += self._records.sweep(reached.fence, now_ns)
        self._commit(written, [key for key in keys if key not in parked], digests, parked, swept=last)
        deletions = sum(1 for digest in digests.values() if digest is None)
        return len(digests) - deletions, deletions

    def _reason(self, row: str | NotComputable | None) -> str:
        if isinstance(row, NotComputable):
            return str(row)
        if isinstance(row, str) and len(row) > self._largest and len(row.encode()) > self._largest:
            return f"the document is larger than {self._largest} bytes"
        return ""

    def _commit(
        self,
        written: list[ViewRecord],
        keys: list[Row],
        digests: dict[Row, bytes | None],
        parked: dict[Row, str],
        *,
        swept: bool,
    ) -> None:
        """Publish, then clear what waited. Killed between, it is published once more, and says the same."""
        state = self._state
        fence = state.reached.fence
        claim = self._claim_after(keys)
        ends = self._output.publish(written, claim) if written or claim else state.reached.ends
        with state.transaction():
            state.settled(keys, digests)
            state.park(parked)
            state.note(
                ends=ends,
                published=max(fence, state.reached.published) if written else state.reached.published,
                sweep="" if swept else state.reached.sweep,
            )
        if claim is not None:
            self._claimed = claim
        for key, reason in parked.items():
            log.warning("document_parked", extra={"key": list(key), "reason": reason})

    def _claim_after(self, keys: Iterable[Row]) -> Fence | None:
        """What may be claimed when these keys are published. None where it is claimed already."""
        claim = self._state.claim(without=keys)
        return claim if claim > self._claimed else None


def _behind(offsets: Offsets, cut: LogCut) -> dict[str, dict[int, int]]:
    found = {topic: dict(parts) for topic, parts in offsets.items()}
    for topic, parts in cut.ends.items():
        found.setdefault(topic, {}).update(parts)
    return found


def _floor(record: TopicRecord, table: TableName, marks: set[str]) -> str | None:
    """The floor that a record sets. A sweep mark counts when each partition's was read."""
    floor = read_floor(record.key, record.value, record.pos)
    if floor.partitions <= 1:
        return floor.floor
    begins = f"{table} {floor.floor} "
    marks.add(f"{begins}{record.partition}")
    seen = {mark for mark in marks if mark.startswith(begins)}
    if len(seen) < floor.partitions:
        return None
    marks -= seen
    return floor.floor
