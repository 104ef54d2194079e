"""The watch beside the queries, with a log that says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from cdc.clock import ManualClock
from cdc.errors import LogError
from cdc.progress import Offsets, Progress
from sinks.memory import MemoryStore
from spark.log_watch import LogWatch
from spark.ports import SinkTopics
from spark.sink_metrics import SILENCE_S, Metrics
from spark.store_thread import Store, Surroundings
from spark.watermark import LogView
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
