"""One store and all that belongs to it, on one thread of its own: its place, its shapes, its parked keys."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from cdc.process.crash_points import crash_point, declare
from cdc.record.progress import Hold, Offsets, Watermark
from cdc.record.schema import TableSchema
from cdc.wire.dead_letter import DeadLetter, Orders, Parked, Refusals, Waiting, Why, carry_out, place, queues
from sinks.contract.batch import events_of
from sinks.contract.history_rows import gap_of
from sinks.contract.port import OpenSink, Sink
from sinks.contract.table_places import SchemaBook
from spark.figures.sink_metrics import FillStand, Lacking
from spark.records.source import EARLIEST
from spark.stores.apply import (
    History,
    Outcome,
    Rules,
    apply_events,
    apply_sorted,
    behind_letters,
    events_of_letters,
    refused_letters,
    replayed,
    sort_out,
    split_parked,
    unheld,
    unknown,
)
from spark.stores.holds import claim
from spark.stores.place_check import (
    EpochIds,
    StoreMoved,
    Surroundings,
    TopicLooks,
    check_log,
    check_reach,
    cut_histories,
    grown,
    moves,
    outdated,
    rewound,
)
from spark.stores.store_figures import BeatCount, TopicFill, note_outcome
from spark.stores.store_tables import StoreTables
from spark.stores.watermark import Claim, covers, distance, highest

__all__ = ["Store", "StoreMoved", "Surroundings"]

log = logging.getLogger(__name__)
T = TypeVar("T")

declare("sink_before_apply", "sink_after_apply", "sink_after_letters", "sink_after_watermark")
declare("sink_after_retry", "sink_after_answers")

_ORDERS_AT_ONCE = 1_000
_LOOK_S = 2.0  # how often a store at rest is asked whether it is still what it was


class Store(StoreTables):
    """One sink's store. All that touches it runs on its own thread, in order, so a sink needs no lock.

    ``connect`` opens it, and is called again after :meth:`close`.
    """

    def __init__(self, name: str, connect: Callable[[], OpenSink], around: Surroundings) -> None:
        super().__init__(name, connect, around)
        self._place = Claim({}, 0.0)
        self._parked, self._orders = Parked(name), Orders(name)
        self._goal: Offsets | None = None
        self._ends: Offsets = {}
        self._ids, self._looks = EpochIds(around.facts), TopicLooks(around.facts, self.captured)
        self._looked_s = around.clock.monotonic()
        self._figures.behind = self.behind
        self._figures.lacks, self._figures.fill = self._lacks, self._filled
        self._fill, self._ready, self._beats = TopicFill(), False, BeatCount()

    @property
    def lsn(self) -> int:
        """The LSN below which the store shows every change. 0 for an empty store."""
        return self.shown.lsn if self.shown is not None else 0

    @property
    def rules(self) -> Rules:
        """The rules by which a batch is sorted. For the store's own thread."""
        held, reach = frozenset(self._holds.now), self._around.view.reach
        return Rules(book=self._book, parked=self._parked.firsts(), absent=self._absent, held=held, reach=reach)

    def rules_of_now(self) -> Rules:
        """The same for another thread, or for a task: what is parked stays as it is."""
        return replace(self.rules, parked=self._parked.snapshot())

    @property
    def starts(self) -> Offsets:
        """The offset from which to read each partition. :data:`spark.records.source.EARLIEST` for one never read."""
        if not self.topics.ids:
            return self._ends  # A query needs a topic: it reads a held table from here on, and skips its records.
        return {
            topic: {p: self.offsets.get(topic, {}).get(p, EARLIEST) for p in range(count)}
            for topic, count in self.topics.partitions.items()
        }

    @property
    def caught_up(self) -> bool:
        """Whether it has begun, shows all that was in the topics it reads when it first did, and names its holds."""
        goal = {topic: ends for topic, ends in (self._goal or {}).items() if topic in self.topics.ids}
        told = not self._holds.now or (self.shown is not None and self._holds.now.keys() <= self.shown.held.keys())
        return self._ready and covers(self.offsets, goal) and told

    @property
    def backlog(self) -> int:
        """Records between the store and what was in the topics when it first began."""
        return distance(self.offsets, self._goal or {})

    def behind(self) -> int:
        """Records between the store and the end of the log as it was last seen: at its beginning, or since."""
        return self._around.view.behind(self.offsets, self.topics.ids, self._ends)

    def _lacks(self) -> Lacking:
        return Lacking(*self._around.view.lacking(self.offsets, self.topics.ids))

    def _filled(self) -> FillStand | None:
        return self._fill.stand(self.offsets, self.topics.ids)

    def holds_outgrown(self, shapes: Callable[[], list[TableSchema]]) -> bool:
        """Whether a held table has a newer shape than the one that it is held for."""
        return self._holds.outgrown(shapes)

    # The rest runs on the store's thread, through `run` or `submit`.

    def begin(self) -> Offsets:
        """Find out where the store is and make it ready. Returns the offset to read each partition from.

        TopicError when it was fed from other topics than those of today, or claims more than they have.
        """
        around, self.fault, self._ready = self._around, None, False
        self.captured = self.topics = around.facts.topics(self.name)
        # A client keeps what it has made in mind: a new one sees what was deleted meanwhile, and makes it anew.
        self._close()
        opened = self._open()
        self.shown, self._unsure = opened.watermarks.read(), None
        self._ends = ends = around.facts.ends(self.captured)
        check_log(self.name, self.shown, self.captured, ends, around.facts)
        if self.shown is not None and not covers(self.offsets, ends):
            check_reach(self.name, self.shown, self.captured, self._now_ms())
        self._holds.begin()
        self._beats.begun_ms = self._now_ms()
        self._goal = self._goal or ends
        letters = [letter for letter in around.dead.read() if letter.sink == self.name]
        self._parked, self._orders = Parked(self.name, letters), Orders(self.name, letters)
        self._book, self._absent, self._ids = SchemaBook(), frozenset(), EpochIds(around.facts)
        self._looks = TopicLooks(around.facts, self.captured)
        self._go_on()
        self._begin_histories()
        self._fill.begin(self.shown, ends)
        self._go_back()
        read = {topic: parts for topic, parts in self.offsets.items() if topic in self.captured.ids}
        self._place, self._ready = Claim(read, around.clock.monotonic()), True
        self._figures.answered(around.clock.monotonic())
        self._tell()
        # Orders that came while no sink fed the store are carried out before its first batch.
        self.submit(self._carry_out_orders)
        return self.starts

    def _begin_histories(self) -> None:
        """Where a history's topic begins behind what the store has of it, records are gone by their age: the history
        gets a gap, and goes on from what is there."""
        # A history that the sink kept before has a place, and no offsets in the claim.
        shown, claimed = self.shown, {t: parts for t, parts in self.offsets.items() if parts}
        known = {t: claimed.get(t) or self._placed(t) for t in cut_histories(claimed, self.captured)}
        cut = {t: parts for t, parts in cut_histories(known, self.captured).items() if t in known}
        if not cut:
            return
        gaps = [gap_of(self._shapes[topic], shown if known[topic] else None) for topic in sorted(cut)]
        behind = {topic: parts for topic, parts in cut.items() if topic in claimed}
        at = Claim(highest(self.offsets, behind), self._around.clock.monotonic())
        self._lead(at)
        self._holding(lambda: self._open().sink.apply(unheld(events_of(gaps), self.rules), self._book))
        if shown is not None:
            self._holding(self._open().show)
            self._commit_as(replace(shown, offsets=at.offsets))
        log.warning("history_cut", extra={"sink": self.name, "topics": sorted(cut)})

    def _placed(self, topic: str) -> Mapping[int, int]:
        place = self._holding(lambda: self._open().places.read(self._shapes[topic]))
        return place.offsets if place is not None and place.topic_id == self.captured.ids[topic] else {}

    def _go_back(self) -> None:
        """Where an epoch began below what the store has read, it is read again from there: a view's documents are
        published anew in each."""
        shown, epochs = self.shown, self._around.facts.epochs()
        back = rewound(shown.offsets, epochs.behind(shown.epoch)) if shown is not None else {}
        if shown is not None and back != shown.offsets:
            self._commit_as(replace(shown, offsets=back))
            log.warning("store_goes_back", extra={"sink": self.name, "reason": "an epoch began before its place"})

    def require_same(self, topics: Collection[str]) -> None:
        """See :meth:`spark.stores.place_check.TopicLooks.require_same`."""
        self._looks.require_same(topics)

    def set_floors(self, floors: pa.Table) -> Outcome:
        """Apply a batch's floor records, alone, before its rows go to several tasks at once."""
        applied = self._holding(lambda: self._open().sink.apply(unheld(floors, self.rules), self._book))
        return Outcome(applied=applied, letters=refused_letters(applied.refused))

    def settle(self, records: pa.Table, at: Claim) -> Outcome:
        """Apply a batch's records, write a dead letter for each refused one, and note both in the watermark."""
        found = sort_out(records, self.rules)
        if found.needs:
            self.learn(found.needs)
            found = sort_out(records, self.rules)
        self._lead(at)
        crash_point("sink_before_apply")
        act = partial(apply_sorted, sink=self._open().sink, book=self._book)
        return self.conclude(self._holding(lambda: act(found.unheld(self._holds.now))), at)

    def settle_events(self, events: pa.Table, before: Outcome, at: Claim, history: History) -> Outcome:
        """Apply the events that executors left over. ``before``: their findings about the records that they dropped."""
        free, behind = split_parked(unheld(events, self.rules), self._parked.firsts())
        again = replayed(behind, self._parked.firsts(), self.offsets)
        if again:
            before_parked = split_parked(history(again), self._parked.firsts())[0]
            free = pa.concat_tables([before_parked, free])
        needs = unknown(free, self.rules)
        if needs:
            self.learn(needs)
            free = unheld(free, self.rules)
        self._lead(at, before.letters)
        crash_point("sink_before_apply")
        applied = self._holding(lambda: apply_events(unheld(free, self.rules), self._open().sink, self._book, history))
        letters = (*refused_letters(applied.refused), *behind_letters(behind))
        return self.conclude(before + Outcome(applied=applied, letters=letters), at)

    def conclude(self, outcome: Outcome, at: Claim) -> Outcome:
        """After the data: dead letters, then the watermark. Returns the letters that were really written."""
        crash_point("sink_after_apply")
        late = partial(without_released, parked=self._parked, sink=self._open().sink, book=self._book)
        outcome = self._holding(lambda: late(unheld_letters(outcome, self._holds.now)))
        letters = self._parked.fresh(replace(letter, sink=self.name) for letter in outcome.letters)
        if letters:
            self._around.dead.write(letters)
            self._parked.add(letters)
        crash_point("sink_after_letters")
        if self._led is not at:
            self._lead(at)
        self._commit(at)
        crash_point("sink_after_watermark")
        done = replace(outcome, letters=tuple(letters))
        self._count(done)
        return done

    def idle(self) -> None:
        """Queue a look at the watermark, unless there is work: its LSN moves while the tables rest."""
        if not self.busy and self._opened is not None and self.fault is None:
            self.submit(self._commit_when_idle)

    def hear(self, letters: list[DeadLetter]) -> None:
        """Take new records of the dead letters' topic, from any thread. An order is carried out between two batches."""
        mine = [letter for letter in letters if letter.sink == self.name and not letter.why.is_letter]
        if mine:
            self.submit(partial(self._hear, mine))

    def close(self) -> None:
        """Close the store when what is queued is done. The thread stays for another :meth:`begin`."""
        self._last(self._close).result()

    def end(self) -> bool:
        """Close for good. Whether it did. A call into the store that does not end is left behind: what it does may be
        repeated."""
        self.halt.set()
        self._last(self._close)
        return self._ended()

    def _commit_when_idle(self) -> None:
        if not self.behind():
            self._figures.failing = None
        with self._faults_kept():
            self._holds.try_again(self._open().sink.prepare, self._around.facts)
            wanted, shown = self._claim(self._place), self.shown
            moved = moves(shown, wanted)
            beat = self._beats.shown(self._around.view.beat, wanted) if not self.behind() else None
            if moved or outdated(shown, wanted, self.captured):
                self._commit(self._place)
                self._tell()
            elif beat is not None or self._around.clock.monotonic() - self._looked_s >= _LOOK_S:
                self._looked_s = self._around.clock.monotonic()
                self._check_place()
            if beat is not None:
                self._beats.note(self._figures, beat, self._now_ms(), self._around.clock.monotonic())

    def _hear(self, letters: list[DeadLetter]) -> None:
        self._orders.add(letters)
        self._carry_out_orders()

    def _carry_out_orders(self) -> None:
        """Carry out what was asked of the dead letters. An order that is not answered in the end comes again."""
        if self._opened is None or self.fault is not None:
            return
        with self._faults_kept():
            every = self._orders.open()
            if not every:
                return
            letters = Waiting(letter for letter in self._around.dead.read() if letter.sink == self.name)
            if any(one.why is Why.RETRY for one in every):
                # A client keeps what it knew of tables and mappings: they have been repaired since.
                self._close()
                if self._open().watermarks.read() != self.shown:
                    raise StoreMoved(f"the store of {self.name} is another one than it was")
                self._absent = frozenset()
                self._unseen.update(self.captured.ids)
                self.learn(frozenset())
            for first in range(0, len(every), _ORDERS_AT_ONCE):
                asked = every[first : first + _ORDERS_AT_ONCE]
                answers = carry_out(queues(asked, letters), self._retried)
                # Shown before it is answered: killed in between, the same is applied once more.
                self._commit(self._place)
                crash_point("sink_after_retry")
                self._around.dead.write(answers)
                self._parked.add(answers)
                self._orders.add(answers)
                letters.add(answers)
                crash_point("sink_after_answers")
                log.info("orders_answered", extra={"sink": self.name, "orders": len(asked), "left": len(self._parked)})
        self._tell()

    def _retried(self, letters: Sequence[DeadLetter]) -> Refusals:
        sink = self._open().sink
        return self._holding(lambda: apply_letters(letters, sink=sink, book=self._book, holds=self._holds.now))

    def _commit(self, at: Claim) -> None:
        wanted = self._claim(at)
        check_reach(self.name, wanted, self.captured, self._now_ms())
        self.require_same(grown(self._place.offsets, at.offsets))
        held = self._holds.now
        self._holding(self._open().show)
        self._commit_as(wanted if self._holds.now is held else self._claim(at))
        self._place = at

    def _claim(self, at: Claim) -> Watermark:
        wanted = claim(self._around.view, self.shown, at, self.captured, self._holds.now, self._now_ms())
        return self._ids.named(wanted)

    def _count(self, outcome: Outcome) -> None:
        filled_ms = self._fill.filled_ms(self.offsets, self.topics.ids, self._now_ms())
        note_outcome(self._figures, outcome, self._now_ms(), self._around.clock.monotonic(), filled_ms)
        self._tell()

    def _tell(self) -> None:
        figures = self._figures
        figures.begin(self._around.clock.monotonic())
        figures.lsn, figures.parked = self.lsn, len(self._parked)
        figures.held = tuple(sorted(hold.table for hold in self._holds.now.values()))


def apply_letters(
    letters: Sequence[DeadLetter], *, sink: Sink, book: SchemaBook, holds: Mapping[str, Hold]
) -> Refusals:
    """Apply the newest of each key. The letters that the store refused, each with the reason. A held table takes
    nothing."""
    held = {place(one): holds[one.topic].reason for one in letters if one.topic in holds}
    events = events_of_letters([one for one in letters if one.topic not in holds])
    refused = sink.apply(events, book).refused
    return held | {(one.topic, one.partition, one.offset): one.reason for one in refused}


def unheld_letters(outcome: Outcome, holds: Mapping[str, Hold]) -> Outcome:
    """An outcome less the letters of held tables: their records are read again when they are held no more."""
    return replace(outcome, letters=tuple(one for one in outcome.letters if one.topic not in holds))


def without_released(outcome: Outcome, parked: Parked, sink: Sink, book: SchemaBook) -> Outcome:
    """Tasks of a batch know the keys that were parked when it began. Those that were released since have their
    events here: they are applied now, instead of parking the key behind nothing."""
    refused = {(one.topic, one.key) for one in outcome.letters if one.why is Why.REFUSED}
    late = {
        place(one): one
        for one in outcome.letters
        if one.why is Why.BEHIND and (one.topic, one.key) not in refused and not parked.waits(one.topic, one.key)
    }
    if not late:
        return outcome
    applied = apply_events(events_of_letters(list(late.values())), sink, book)
    kept = tuple(one for one in outcome.letters if place(one) not in late)
    return replace(outcome, letters=(*kept, *refused_letters(applied.refused)), applied=outcome.applied + applied)
