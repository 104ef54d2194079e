"""The watch beside the queries, with a log that says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import LogError
from cdc.record.progress import Offsets, Progress
from sinks.contract.memory_store import MemoryStore
from spark.figures.sink_metrics import SILENCE_S, Metrics
from spark.queries.log_watch import LogWatch
from spark.records.ports import SinkTopics
from spark.stores.store_thread import Store, Surroundings
from spark.stores.watermark import LogView
from tests.unit.spark.doubles import MemoryDead, MemoryFacts, MemoryFeed
from tests.unit.spark.records import TOPIC
from tests.waiting import wait_until


@dataclass
class SilentLog(MemoryFacts):
    """It answers while a store begins. Then each question takes as long as a store may be silent, for nothing."""

    clock: ManualClock = field(default_factory=ManualClock)
    silent: bool = False

    def ends(self, topics: SinkTopics) -> Offsets:
        if not self.silent:
            return super().ends(topics)
        self.clock.advance(SILENCE_S)
        raise LogError("the log does not answer")


class FewAtOnce(MemoryFeed):
    """One record a look."""

    def poll(self, timeout_s: float) -> list[Progress]:
        found, self.waiting = self.waiting[:1], self.waiting[1:]
        return found


@pytest.fixture
def silent() -> Iterator[tuple[SilentLog, Metrics, Store]]:
    facts = SilentLog()
    metrics = Metrics(facts.clock)
    around = Surroundings(facts=facts, dead=MemoryDead(), view=LogView(), metrics=metrics, clock=facts.clock)
    store = Store("cache", MemoryStore().open, around)
    store.run(store.begin)
    facts.silent = True
    yield facts, metrics, store
    store.end()


def test_h110_a_silent_log_keeps_no_store_from_its_answers(silent: tuple[SilentLog, Metrics, Store]) -> None:
    facts, metrics, store = silent
    figures, began_s = metrics.sink("cache"), facts.clock.monotonic()
    watch = LogWatch([store], facts, MemoryFeed(), LogView(), facts.clock)
    watch.start()
    with closing(watch):
        wait_until(lambda: (figures.answered_s or 0) >= began_s + 2 * SILENCE_S, 10, lambda: figures.answered_s)
    assert not metrics.log.known(facts.clock.monotonic())


def test_h443_slow_looks_fall_behind_by_no_number(silent: tuple[SilentLog, Metrics, Store]) -> None:
    facts, _, store = silent
    feed = FewAtOnce([Progress(epoch=1, lsn=8 * number, offsets={TOPIC: {0: number}}) for number in range(1, 301)])
    watch = LogWatch([store], facts, feed, LogView(), facts.clock)
    watch.start()
    with closing(watch):
        wait_until(lambda: not feed.waiting, 10, lambda: len(feed.waiting))


@dataclass
class SlowTopics(MemoryFacts):
    """A look at its topics takes some seconds, as it does with thousands of tables."""

    clock: ManualClock = field(default_factory=ManualClock)
    took_s: float = 0.0
    looks_s: list[float] = field(default_factory=list)

    def topics(self, sink: str) -> SinkTopics:
        self.looks_s.append(self.clock.monotonic())
        self.clock.advance(self.took_s)
        return super().topics(sink)


class Ticking(MemoryFeed):
    """Each look of the watch takes a second."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def poll(self, timeout_s: float) -> list[Progress]:
        self._clock.advance(1.0)
        return super().poll(timeout_s)


@pytest.mark.parametrize(("took_s", "every_s"), [(0.1, 10.0), (2.0, 40.0), (60.0, 180.0)])
def test_h536_looks_at_topics_take_little_of_the_time(took_s: float, every_s: float) -> None:
    facts = SlowTopics()
    metrics = Metrics(facts.clock)
    around = Surroundings(facts=facts, dead=MemoryDead(), view=LogView(), metrics=metrics, clock=facts.clock)
    store = Store("cache", MemoryStore().open, around)
    store.run(store.begin)
    facts.took_s = took_s
    watch = LogWatch([store], facts, Ticking(facts.clock), LogView(), facts.clock)
    watch.start()
    with closing(watch):
        wait_until(lambda: len(facts.looks_s) >= 6, 20, lambda: facts.looks_s)
    store.end()
    first_s, *_, last_s = facts.looks_s[1:6]
    assert 4 * every_s <= last_s - first_s < 4 * (every_s + 3)
