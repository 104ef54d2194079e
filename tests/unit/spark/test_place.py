"""Whether a store may go on from where it is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import Exit, Retry, TopicError
from cdc.record.progress import Offsets, Progress, Watermark
from spark.figures.sink_metrics import Metrics
from spark.records.ports import SinkTopics
from spark.stores.place_check import check_reach, outdated
from spark.stores.store_thread import Store, Surroundings
from spark.stores.watermark import Claim, LogEnds, LogView
from tests.unit.spark.doubles import MemoryFacts
from tests.unit.spark.records import TOPIC
from tests.unit.spark.test_store import Bench, row

WINDOW_S = 3600.0
HELD = Watermark(epoch=1, lsn=8, offsets={TOPIC: {0: 7}}, topic_ids={TOPIC: "id1"}, level_ms=1_000)
TOPICS = SinkTopics(ids={TOPIC: "id1"}, partitions={TOPIC: 1}, compaction_lag_s=60.0, retention_s=WINDOW_S)


@dataclass
class Keeping(MemoryFacts):
    """Topics that keep deletes for an hour."""

    more: tuple[str, ...] = ()

    def topics(self, sink: str) -> SinkTopics:
        ids = dict.fromkeys((TOPIC, *self.more), "id1")
        return replace(TOPICS, ids=ids, partitions=dict.fromkeys(ids, 1))

    def ends(self, topics: SinkTopics) -> Offsets:
        return {topic: {0: self.end} for topic in topics.ids}


@dataclass
class Timed(Bench):
    """A bench whose clock is set by hand."""

    clock: ManualClock = field(default_factory=ManualClock)

    def store(self, name: str = "cache") -> Store:
        around = Surroundings(facts=self.facts, dead=self.dead, view=self.view, metrics=Metrics(), clock=self.clock)
        self.stores.append(Store(name, self._connect, around))
        return self.stores[-1]


@pytest.fixture
def timed() -> Iterator[Timed]:
    made = Timed(facts=Keeping(end=7))
    made.view.note_ends(LogEnds(1.0, {TOPIC: {0: 7}}))
    yield made
    for store in made.stores:
        store.end()


def test_h60_a_store_that_was_level_within_the_window_goes_on() -> None:
    check_reach("cache", HELD, TOPICS, 1_000 + int(WINDOW_S * 1000))
    check_reach("cache", replace(HELD, level_ms=0), TOPICS, 10**13)
    assert not outdated(HELD, replace(HELD, level_ms=2_000), TOPICS)
    assert outdated(HELD, replace(HELD, level_ms=400_000), TOPICS)


def test_h60_a_millisecond_past_the_window_is_too_late() -> None:
    with pytest.raises(TopicError, match="last level with the log 3600 s ago") as held:
        check_reach("cache", HELD, TOPICS, 1_000 + int(WINDOW_S * 1000) + 1)
    assert (held.value.exit, held.value.retry) == (Exit.TOPIC, Retry.NEVER)


@pytest.mark.parametrize(("retention_s", "pause_ms"), [(WINDOW_S, 180_000), (20.0, 1_000), (5.0, 1_000)])
def test_a_store_at_rest_writes_every_twentieth_of_the_window(retention_s: float, pause_ms: int) -> None:
    """And no more than once a second."""
    topics = replace(TOPICS, retention_s=retention_s)
    at_rest, due = (replace(HELD, level_ms=HELD.level_ms + pause_ms + more) for more in (0, 1))
    assert outdated(HELD, at_rest, topics) is False
    assert outdated(HELD, due, topics) is True


@pytest.mark.parametrize(("before", "retention_s"), [(None, WINDOW_S), (HELD, math.inf), (None, math.inf)])
def test_a_store_that_can_miss_no_delete_says_nothing_at_rest(before: Watermark | None, retention_s: float) -> None:
    assert outdated(before, replace(HELD, level_ms=10**13), replace(TOPICS, retention_s=retention_s)) is False


def test_h60_a_store_away_for_too_long_is_stopped_with_a_remedy(timed: Timed) -> None:
    timed.settle(timed.begun(), 7, row(1, 6))
    timed.facts.end = 9
    timed.clock.advance(WINDOW_S + 60)
    again = timed.store()
    with pytest.raises(TopicError, match="keep deletes for 3600 s") as held:
        again.run(again.begin)
    assert held.value.hint.startswith("cdc rebuild cache")


def test_h60_a_store_with_nothing_to_catch_up_missed_nothing(timed: Timed) -> None:
    timed.settle(timed.begun(), 7, row(1, 6))
    timed.clock.advance(WINDOW_S + 60)
    assert timed.begun().starts == {TOPIC: {0: 7}}


def test_h60_a_reader_behind_for_too_long_is_stopped_as_it_runs(timed: Timed) -> None:
    timed.facts.end = 1000
    timed.view = LogView()
    timed.view.note_ends(LogEnds(1.0, {TOPIC: {0: 1000}}))
    store = timed.begun()
    timed.settle(store, 7, row(1, 6))
    timed.clock.advance(WINDOW_S - 60)
    timed.settle(store, 8, row(1, 7))
    timed.clock.advance(120)
    with pytest.raises(TopicError, match="it may have missed some"):
        timed.settle(store, 9, row(1, 8))


def test_a_store_at_rest_says_now_and_then_that_it_is_level(timed: Timed) -> None:
    store = timed.begun()
    timed.settle(store, 7, row(1, 6))
    before = timed.watermark
    timed.clock.advance(WINDOW_S / 2)
    timed.view.note_ends(LogEnds(timed.clock.monotonic(), {TOPIC: {0: 7}}))
    store.idle()
    store.run(lambda: None)
    after = timed.watermark
    assert before is not None and after is not None
    assert after.level_ms - before.level_ms == int(WINDOW_S * 500)


def test_a_table_never_read_takes_the_lsn_away_until_it_shows(timed: Timed) -> None:
    view = LogView()
    topics = replace(TOPICS, ids={TOPIC: "id1", "shop.public.new": "id2"})
    view.note_progress([Progress(epoch=1, lsn=64, offsets={TOPIC: {0: 7}, "shop.public.new": {0: 5}})])
    view.note_ends(LogEnds(1.0, {TOPIC: {0: 7}, "shop.public.new": {0: 5}}))
    empty = view.claim(HELD, Claim({TOPIC: {0: 7}}, 1.0), topics)
    assert (empty.epoch, empty.lsn) == (1, 0)
    filled = view.claim(empty, Claim({TOPIC: {0: 7}, "shop.public.new": {0: 5}}, 1.0), topics)
    assert filled.lsn == 64


def test_the_time_a_store_was_level_comes_back_from_it() -> None:
    read = Watermark.from_json(HELD.to_json())
    assert (read, read.level_ms) == (HELD, 1_000)
