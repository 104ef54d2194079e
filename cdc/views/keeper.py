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
from itertools import islice

import orjson

from cdc.clock import Clock
from cdc.topic import TableName
from cdc.views.cut_reading import CutReading
from cdc.views.embedded_state import EmbeddedState
from cdc.views.fences import BEFORE_ALL, Fence, TopicRecord, fence_of
from cdc.views.lookups import DocumentSource, Row
from cdc.views.record_rows import StateRows
from cdc.views.refused import NotComputable
from cdc.views.root_keys import RowChange
from cdc.views.view_plan import ViewPlan
from cdc.views.view_ports import ViewInput, ViewOutput
from cdc.views.view_records import ViewRecord, ViewRecords, key_row
from cdc.views.view_state import ViewState
from cdc.wire.format import AFTER, DELETE_OP

log = logging.getLogger(__name__)

PIECE = 5_000
"""Documents of one transaction, at most."""


BULK = 200_000
_PIECE_RECORDS = 20_000
_MOST_TOLD = 10
"""Unreadable records of one cut that are named."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The work of one turn: records read, documents and deletions published."""

    records: int = 0
    documents: int = 0
    deletions: int = 0

    @property
    def idle(self) -> bool:
        """Whether nothing moved."""
        return not (self.records or self.documents or self.deletions)


@dataclass(frozen=True, slots=True)
class KeeperParts:
    """The parts of a runner. ``topics``: the topic of each table that the view uses."""

    plan: ViewPlan
    state: ViewState
    input: ViewInput
    output: ViewOutput
    records: ViewRecords
    topics: Mapping[TableName, str]


class Keeper:
    """Keeps one view. ``largest``: bytes of a document's row. ``piece``: documents of one transaction, at most.
    ``bulk``: a cut of more records is loaded without asking what it concerns, and then all documents are computed.

    :meth:`begin` first, then :meth:`turn` again and again.
    """

    def __init__(
        self, parts: KeeperParts, *, clock: Clock, largest: int = 900_000, piece: int = PIECE, bulk: int = BULK
    ) -> None:
        self._plan = plan = parts.plan
        self._state = state = parts.state
        self._input = parts.input
        self._output = parts.output
        self._records = parts.records
        self._tables = {topic: table for table, topic in parts.topics.items()}
        self._clock = clock
        self._largest = largest
        self._piece = piece
        self._applied = EmbeddedState(state.rows, plan)
        self._documents = DocumentSource(plan)
        self._readers: dict[tuple[str, int], StateRows] = {}
        self._at_end = False
        self._bulk = bulk
        self._claimed = BEFORE_ALL

    def begin(self) -> None:
        """Take up what a run before has left: keys of what was published and is not known here wait again (V4).

        A state that is older than the topics keep deletions is thrown away: some may be gone unread (V24).
        """
        with self._state.guarded():
            self._begin()

    def _begin(self) -> None:
        state = self._state
        age_s = self._clock.now_ns() / 1e9 - state.reached.level_ms / 1000
        with state.transaction():
            if state.reached.level_ms and age_s > self._input.retention_s:
                log.warning("view_state_too_old", extra={"age_s": int(age_s)})
                state.forget()
        keys, ends = self._output.behind(state.reached.ends)
        claimed = self._output.claimed() or BEFORE_ALL
        rows = []
        for key in keys:
            try:
                rows.append(key_row(self._plan, key))
            except (ValueError, KeyError, TypeError):
                continue  # a floor's key
        with state.transaction():
            # Of what stands there nothing is known but that it does: a deletion may be due.
            state.settled((), dict.fromkeys(rows, b""))
            if state.reached.built:
                state.queue(rows, state.reached.fence)
            state.note(ends=ends, published=max(state.reached.published, claimed))

    def turn(self) -> Turn:
        """One look at the log, and one piece of what waits. LogError where a broker, or the state's disk, is away."""
        with self._state.guarded():
            records = self._advance()
            documents, deletions = self._publish()
        return Turn(records, documents, deletions)

    @property
    def claimed(self) -> Fence:
        """Up to where everything is published."""
        return self._claimed

    @property
    def level(self) -> bool:
        """Whether nothing waits, and the claim has reached the newest progress that was seen."""
        reached = self._state.reached
        done = reached.proven and reached.built and reached.sweep is None
        return self._at_end and done and self._claimed == reached.fence

    def _advance(self) -> int:
        progress = self._input.progress()
        reached = self._state.reached
        self._at_end = progress is not None and fence_of(progress) <= reached.fence
        if progress is None or self._at_end:
            return 0
        cut = CutReading(progress, reached, self._tables)
        with self._state.transaction():
            self._take(cut)
        self._tell(cut)
        return cut.records

    def _tell(self, cut: CutReading) -> None:
        """Log the records that were passed over, and the sweeps that are waited for."""
        if cut.foreign:
            log.warning("view_foreign_records", extra={"records": cut.foreign})
        for record in cut.unreadable[:_MOST_TOLD]:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.error("view_record_unreadable", extra=place | {"records": len(cut.unreadable)})
        if not self._state.reached.proven:
            log.warning("view_waits_for_progress", extra={"since_ms": self._input.progress_ms})
        unswept = self._unswept()
        if unswept:
            log.warning("view_waits_for_sweep", extra={"tables": unswept})

    def _unswept(self) -> list[str]:
        """In a new epoch the rows of the one before are there until each table was swept: those that were not yet."""
        reached = self._state.reached
        if reached.fence.epoch <= 1:
            return []
        names = map(str, self._tables.values())
        return sorted(name for name in names if reached.swept.get(name, 0) < reached.fence.epoch)

    def _take(self, cut: CutReading) -> None:
        """Apply one cut, within the transaction."""
        state, reached = self._state, self._state.reached
        whole = not reached.built or cut.most_records > self._bulk
        keys: set[Row] = set()
        if whole:
            for changes in cut.pieces(self._input.read(cut.spans), self._change, _PIECE_RECORDS):
                self._applied.load(changes)
            self._applied.sweep(cut.floors)
        else:
            changes = [c for piece in cut.pieces(self._input.read(cut.spans), self._change, None) for c in piece]
            keys = self._applied.apply(changes, cut.floors)
        proven = self._is_whole(cut)
        built = reached.built or proven
        if whole and built:
            state.queue(self._all(), reached.fence if reached.built else BEFORE_ALL)
            state.queue(state.documents(), reached.fence)
        elif not whole:
            state.queue(self._concerned(keys), reached.fence)
        state.note(
            fence=cut.fence,
            offsets=cut.offsets,
            built=built,
            proven=proven,
            sweep=cut.fence if built and not reached.built else reached.sweep,
            marks=cut.marks,
            swept=cut.swept,
            level_ms=self._clock.now_ns() // 1_000_000 if proven else reached.level_ms,
        )

    def _is_whole(self, cut: CutReading) -> bool:
        """Whether the cleaner took nothing of the cut that was just read (H185).

        It takes a row for a newer one that is as old as the lag. Behind the cut there is none, or none so old: what
        was read tells its age, and what was not read is about as young as the progress record. Half of the lag is for
        the time that a record needed to arrive.
        """
        oldest_ms = min(self._input.progress_ms, cut.beyond_ms or self._input.progress_ms)
        if self._clock.now_ns() / 1e9 - oldest_ms / 1000 < self._input.compaction_lag_s / 2:
            return True
        offsets = cut.offsets
        return not self._input.beyond({topic: offsets.get(topic, {}) for topic in self._tables})

    def _all(self) -> Iterable[Row]:
        """The keys of all documents, with every contribution computed, where there are groups."""
        groups = self._state.groups
        if groups is None:
            return self._state.roots()
        known = set(groups.every())
        # Rows that contributed and are gone are no roots any more.
        self._concerned(set(groups.drivers()).union(self._state.roots()))
        return known.union(groups.every())

    def _concerned(self, roots: Iterable[Row]) -> Iterable[Row]:
        """From keys of roots to those of documents: of a grouped view, by what each root contributes now."""
        groups = self._state.groups
        if groups is None:
            return roots
        found: set[Row] = set()
        waiting = iter(roots)
        while piece := list(islice(waiting, self._piece)):
            computed = self._documents.of(self._state.rows, piece)
            failed = {key: str(c) if isinstance(c, NotComputable) else "" for key, c in computed.items()}
            self._state.fail(failed, self._state.reached.fence)
            found |= groups.absorb({k: None if isinstance(c, NotComputable) else c for k, c in computed.items()})
        return found

    def _change(self, record: TopicRecord) -> RowChange:
        table = self._tables[record.topic]
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

    def _may_publish(self) -> bool:
        reached = self._state.reached
        # Until the cut has reached what was ever published, keys are only collected (V5).
        return reached.built and reached.proven and reached.fence >= reached.published and not self._unswept()

    def _publish(self) -> tuple[int, int]:
        state = self._state
        reached = state.reached
        if not self._may_publish():
            return 0, 0
        keys = state.waiting(self._piece)
        if not keys and reached.sweep is None and self._claimed == reached.fence:
            return 0, 0
        groups = state.groups
        computed = self._documents.of(state.rows, keys) if groups is None else groups.of(keys)
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
        if last and reached.sweep is not None:
            # The floor of the build: what was published since lies above it.
            written += self._records.sweep(reached.sweep, now_ns)
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
        # Until the mark of the build is there, what went before the build still shows.
        claim = self._claim_after(keys) if swept or state.reached.sweep is None else None
        ends = self._output.publish(written, claim) if written or claim else state.reached.ends
        with state.transaction():
            state.settled(keys, digests)
            state.park(parked)
            state.note(
                ends=ends,
                published=max(fence, state.reached.published) if written else state.reached.published,
                sweep=None if swept else state.reached.sweep,
            )
        if claim is not None:
            self._claimed = claim
        for key, reason in parked.items():
            log.warning("document_parked", extra={"key": list(key), "reason": reason})

    def _claim_after(self, keys: Iterable[Row]) -> Fence | None:
        """The fence that may be claimed when these keys are published. None where it is claimed already."""
        claim = self._state.claim(without=keys)
        return claim if claim > self._claimed else None
