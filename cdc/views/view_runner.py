"""The runner of one view: from cut to cut of the log, through the state, to the view's topic.

A turn reads up to the newest progress record, applies the cut at its LSN, and notes which documents it concerns, all in
one local transaction. Then what waits is computed from the present state and published at the present fence, in pieces,
the oldest first. Everything that is published is a function of the log and the fence, so a replay says the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from cdc.process.clock import Clock
from cdc.record.topic_names import TableName
from cdc.views.embedded_state import EmbeddedState, KnownUpTo
from cdc.views.log_cut import BEFORE_ALL, NEVER, Fence, fence_of
from cdc.views.lookups import DocumentSource, Row
from cdc.views.post_functions import Post
from cdc.views.record_changes import CutReading, RecordChanges
from cdc.views.runner_rules import (
    LACKS,
    AwaitedTables,
    DocumentPiece,
    PieceMaker,
    cut_is_whole,
    log_cut,
    noted_after,
    of_another_topic,
    published_before,
    shown_up_to,
    too_old,
    unswept_tables,
)
from cdc.views.state_reach import Reached
from cdc.views.syntax import NotComputable
from cdc.views.view_plan import ViewPlan
from cdc.views.view_ports import AskedOnce, ViewInput, ViewOutput, rows_asked
from cdc.views.view_records import ViewRecords, key_row
from cdc.views.view_state import ViewState

log = logging.getLogger(__name__)

PIECE = 5_000
"""Documents of one transaction, at most."""
BULK = 200_000
_PIECE_RECORDS = 20_000


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
    """The parts of a runner. ``topics``: the topic of each table that the view uses. ``post``: the user's function on
    finished documents. ``topic_id``: Kafka's, of the view's topic. ``above``: the fence that is above all that other
    generations of the view have published, NEVER for one that is only built."""

    plan: ViewPlan
    state: ViewState
    input: ViewInput
    output: ViewOutput
    records: ViewRecords
    topics: Mapping[TableName, str]
    post: Post | None = None
    topic_id: str = ""
    above: Fence = BEFORE_ALL


class ViewRunner:
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
        self._pieces = PieceMaker(parts.records, parts.post, largest)
        self._records = parts.records
        self._tables = {topic: table for table, topic in parts.topics.items()}
        self._clock = clock
        self._piece = piece
        self._applied = EmbeddedState(state.rows, state.unseen, plan)
        self._documents = DocumentSource(plan)
        self._asked = AskedOnce(parts.input, parts.output, parts.records.topic)
        self._changes = RecordChanges(plan, self._tables, self._input.shape)
        self._topic_id = parts.topic_id
        self._above = parts.above
        self._blocked: frozenset[Row] = frozenset()
        self._watched = AwaitedTables(parts.input, parts.output, parts.topics, clock)
        self._at_end = False
        self._bulk = bulk
        self._claimed = BEFORE_ALL
        self._topic_claim = BEFORE_ALL

    def begin(self) -> None:
        """Take up what a run before has left: keys of what was published and is not known here wait again.

        A state that is older than the topics keep deletions is thrown away: some may be gone unread. So is one
        of another topic of the view: what it has published is not in this one.
        """
        with self._state.guarded():
            self._begin()

    def _begin(self) -> None:
        state = self._state
        old = too_old(state.reached, self._input.retention_s, self._clock.now_ns())
        with state.transaction():
            if old or of_another_topic(state.reached, self._topic_id):
                state.forget()
            state.note(topic_id=self._topic_id)
        keys, ends = self._output.behind(state.reached.ends)
        self._topic_claim = claimed = self._output.claimed() or BEFORE_ALL
        rows, swept = list[Row](), False
        for key in keys:
            try:
                rows.append(key_row(self._plan, key))
            except (ValueError, KeyError, TypeError):
                swept = True  # a floor's key
        if swept:
            # A newer state has swept, and with it documents that it had parked.
            rows += state.documents()
        with state.transaction():
            # Of what stands there nothing is known but that it does: a deletion may be due.
            state.settled((), dict.fromkeys(rows, b""))
            if state.reached.built:
                state.queue(rows, state.reached.fence)
            newest, anew = self._output.newest(), state.of_other_types
            state.note(ends=ends, **published_before(state.reached, claimed, newest, self._above, anew=anew))
        self._asked.begin(state.reached.asked)
        self._blocked = frozenset(self._applied.blocked())
        self._bind()

    def _bind(self) -> None:
        """Go on under a plan that has wider types than the one that the state was made by: what a narrower one
        could not compute, and is parked, is computed anew, as all is."""
        state, fence = self._state, self._state.reached.fence
        with state.transaction():
            if state.of_other_types and state.reached.built:
                state.queue(*self._all(fence))
                state.queue(state.parked()[0], fence)
            state.bind()

    def turn(self) -> Turn:
        """One look at the log, and one piece of what waits. LogError where a broker, or the state's disk, is away."""
        with self._state.guarded():
            records = self._advance()
            published = self._publish()
            self._answer()
        return replace(published, records=records)

    @property
    def reached(self) -> Reached:
        """How far the state is."""
        return self._state.reached

    def sizes(self) -> tuple[int, int]:
        """The numbers of keys that wait and of documents that are parked."""
        return self._state.sizes()

    @property
    def claimed(self) -> Fence:
        """Up to where everything is published."""
        return self._claimed

    @property
    def level(self) -> bool:
        """Whether nothing waits, and the claim has reached the newest progress that was seen."""
        reached = self._state.reached
        done = reached.proven and reached.built and reached.sweep is None and not reached.held
        done = done and self._asked.taken(reached.asked) is None
        return self._at_end and done and self._claimed == reached.fence

    @property
    def prepared(self) -> bool:
        """Whether its state is whole at its fence, so that all its documents could be published."""
        reached = self._state.reached
        return reached.proven and reached.built and not reached.held and not self._unswept()

    def _advance(self) -> int:
        progress, reached = self._input.progress(), self._state.reached
        self._at_end = progress is not None and fence_of(progress) <= reached.fence
        if progress is None or self._at_end:
            if (awaited := self._watched.changed(reached)) is not None:
                with self._state.transaction():
                    self._state.note(awaited=awaited)
                self._watched.tell(reached.held, awaited, behind=self._claimed < reached.fence)
            return 0
        cut = CutReading(progress, reached, self._tables)
        with self._state.transaction():
            self._take(cut)
        self._tell(cut)
        return cut.records

    def _tell(self, cut: CutReading) -> None:
        """Log the records that were passed over, and the sweeps that are waited for."""
        log_cut(cut, not self._state.reached.proven or self._takes_back(), self._input.progress_ms, self._unswept())
        reached = self._state.reached
        self._watched.tell(reached.held, reached.awaited, behind=self._claimed < reached.fence)

    def _unswept(self) -> list[str]:
        return unswept_tables(self._state.reached, self._tables.values())

    def _take(self, cut: CutReading) -> None:
        """Apply one cut, within the transaction."""
        state, reached = self._state, self._state.reached
        whole = not reached.built or cut.most_records > self._bulk
        keys: set[Row] = set()
        known = KnownUpTo(shown_up_to(reached, self._topic_claim), self._topic_claim)
        letters, letters_end = self._input.letters(reached.letters)
        aside = [lost for letter in letters if (lost := self._changes.lost(letter)) is not None]
        sure_ms = self._clock.now_ns() / 1e6 - self._input.compaction_lag_s * 1000 / 2
        pieces = partial(cut.pieces, self._input.read(cut.spans), lambda record: self._changes.of(record, sure_ms))
        if whole:
            for changes in pieces(_PIECE_RECORDS):
                self._applied.load(changes, cut.fence, known, aside)
                aside = []
            self._applied.sweep(cut.floors, known)
        else:
            every = [change for piece in pieces(None) for change in piece]
            keys = self._applied.apply(every, cut.floors, fence=cut.fence, below=known, put_aside=aside)
        self._blocked = frozenset(self._applied.blocked())
        proven = cut_is_whole(self._input, cut, self._tables, self._clock.now_ns())
        built = reached.built or proven
        if whole and built:
            state.queue(*self._all(known.shown))
            state.queue([*state.documents(), *state.parked()[0]], known.shown)
        elif not whole:
            state.queue(*self._concerned(keys, known.shown))
        documents, now_ms = self._input.documents(), self._clock.now_ns() // 1_000_000
        lacking = self._watched.lacking(documents, cut, reached)
        self._take_up(documents)
        state.note(**noted_after(cut, reached, proven=proven, letters=letters_end, lacking=lacking, now_ms=now_ms))

    def _take_up(self, documents: Mapping[bytes, bytes]) -> None:
        """Documents that somebody asks for once more wait, whatever was published of them."""
        state, asked = self._state, self._asked.new(documents, self._state.reached.asked)
        if asked is not None:
            rows = rows_asked(self._plan, asked.keys)
            state.settled((), dict.fromkeys(rows, b""))
            if state.reached.built:
                state.queue(rows, state.reached.fence)
            state.note(asked=asked.id)

    def _answer(self) -> None:
        """Tell who asked that nothing of it waits any more."""
        asked = self._asked.taken(self._state.reached.asked)
        if asked is None or not self._may_publish():
            return
        left = self._state.unpublished(rows_asked(self._plan, asked.keys))
        if all(left.values()):
            self._asked.answer({self._records.key(key).decode(): str(reason) for key, reason in left.items()})

    def _blocked_documents(self) -> frozenset[Row]:
        """The keys of the documents that a row concerns of which a value is not known."""
        groups = self._state.groups
        return self._blocked if groups is None else frozenset(groups.groups_of(self._blocked))

    def _all(self, below: Fence) -> tuple[Iterable[Row], Fence]:
        """The keys of all documents, with every contribution computed, where there are groups. See _concerned."""
        groups = self._state.groups
        if groups is None:
            return self._state.roots(), below
        known = set(groups.every())
        # Rows that contributed and are gone are no roots any more.
        drivers = {*groups.drivers(), *self._state.roots(), *self._state.parked()[1]}
        _, below = self._concerned(drivers, below)
        return known.union(groups.every()), below

    def _concerned(self, roots: Iterable[Row], below: Fence) -> tuple[Iterable[Row], Fence]:
        """From keys of roots to those of documents: of a grouped view, by what each root contributes now. With up to
        where they are as published: ``below``, or where a root that failed was computed last."""
        groups = self._state.groups
        if groups is None:
            return roots, below
        found: set[Row] = set()
        waiting = iter(roots)
        while piece := list(islice(waiting, self._piece)):
            blocked = [key for key in piece if key in self._blocked]
            # The former contribution of a row stays until it is known again. Then its groups are published again.
            found |= groups.groups_of([*blocked, *self._state.failed(piece)])
            computed = self._documents.of(self._state.rows, [key for key in piece if key not in self._blocked])
            failed = {key: str(c) if isinstance(c, NotComputable) else "" for key, c in computed.items()}
            below = self._state.fail(failed | dict.fromkeys(blocked, LACKS), below)
            known = {k: c for k, c in computed.items() if not isinstance(c, NotComputable)}
            found |= groups.absorb(known)
        return found, below

    def _may_publish(self) -> bool:
        """Whether documents may go out. Until the cut has reached what was published before, keys are only kept."""
        reached = self._state.reached
        in_order = self._above != NEVER and reached.fence >= reached.published
        return in_order and self.prepared and not self._takes_back()

    def _takes_back(self) -> bool:
        """Whether a value is not known that was, at an LSN that the topic claims: the state is a younger one."""
        known = self._state.unseen.known_below
        return known is not None and known < self._topic_claim

    def _publish(self) -> Turn:
        state = self._state
        reached = state.reached
        if not self._may_publish():
            return Turn()
        keys = state.waiting(self._piece)
        if not keys and reached.sweep is None and (reached.awaited or self._claimed == reached.fence):
            return Turn()
        groups = state.groups
        computed = self._documents.of(state.rows, keys) if groups is None else groups.of(keys)
        now_ns = self._clock.now_ns()
        blocked = self._blocked_documents() if self._blocked else self._blocked
        above = reached.numbered_above(reached.fence)
        piece = self._pieces.of(computed, state.digests(keys), blocked, above, now_ns)
        done = [key for key in keys if key not in piece.parked]
        # The mark would take parked documents that are there from before the build.
        kept = reached.sweep and (state.digests(blocked) or not reached.due_sweep(state.claim(done), self._topic_claim))
        last = len(keys) < self._piece and not kept
        if last and reached.sweep is not None:
            # The floor of the build: what was published since lies above it.
            piece.written += self._records.sweep(reached.sweep, now_ns)
        self._commit(piece, done, swept=last)
        deletions = sum(1 for digest in piece.digests.values() if digest is None)
        return Turn(0, len(piece.digests) - deletions, deletions)

    def _commit(self, piece: DocumentPiece, keys: list[Row], *, swept: bool) -> None:
        """Publish, then clear what waited. Killed between, it is published once more, and says the same."""
        state = self._state
        # Until the mark of the build is there, what went before the build still shows.
        published = max(state.reached.fence, state.reached.published) if piece.digests else state.reached.published
        claim = self._claim_after(keys, published) if swept or state.reached.sweep is None else None
        ends = self._output.publish(piece.written, claim) if piece.written or claim else state.reached.ends
        with state.transaction():
            state.settled(keys, piece.digests)
            state.park(piece.parked)
            state.note(ends=ends, published=published, sweep=None if swept else state.reached.sweep)
        if claim is not None:
            self._claimed = self._topic_claim = claim
        for key, reason in piece.parked.items():
            log.warning("document_parked", extra={"key": list(key), "reason": reason})

    def _claim_after(self, keys: Iterable[Row], published: Fence) -> Fence | None:
        """The fence that may be claimed when these keys are published. None where it is claimed already.

        A claim that no document is newer than says that all documents together are the view at that LSN. So one below
        the present fence waits for a newer document. ``published``: the greatest fence of any document.
        """
        reached, claim = self._state.reached, self._state.claim(without=keys)
        whole = claim == reached.fence or claim < published
        # A state that was copied back takes nothing back of what the topic claims.
        news = claim > self._claimed and claim >= self._topic_claim
        return claim if whole and news and not reached.awaited else None
