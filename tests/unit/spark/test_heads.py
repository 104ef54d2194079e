"""Which first records the watch beside the queries reads for the figures, and which it keeps."""

from __future__ import annotations

from collections.abc import Collection
from threading import Event
from typing import Any, cast

import pytest

from cdc.figures.measures import Head, Heads
from cdc.process.clock import ManualClock
from cdc.process.errors import CdcError, TopicError
from cdc.record.progress import Offsets
from spark.queries.log_watch import LogWatch, Measuring, TopicsChanged
from spark.records.ports import SinkTopics
from spark.stores.watermark import LogView
from tests.unit.spark.doubles import MemoryFacts, MemoryFeed
from tests.unit.spark.records import TOPIC
from tests.waiting import wait_until

T = "shop.public.orders"


class Reading:
    """A reader of first records: each was committed at its offset."""

    def __init__(self) -> None:
        self.asked: list[set[tuple[str, int, int]]] = []
        self.silent = False
        self.closed = False

    def read(self, places: Collection[tuple[str, int, int]], ends: Offsets) -> Heads:
        self.asked.append(set(places))
        return {} if self.silent else {place: Head(place[2], 1000 + place[2]) for place in places}

    def close(self) -> None:
        self.closed = True


class Standing:
    """A store that stands somewhere."""

    def __init__(self, offset: int) -> None:
        self.offsets: Offsets = {T: {0: offset}}
        self.topics = self.captured = SinkTopics({T: "id"}, {T: 1})
        self.name = "cache"
        self.fault: CdcError | None = None

    def holds_outgrown(self, shapes: object) -> bool:
        """It holds nothing."""
        return False

    def idle(self) -> None:
        """It rests."""


def test_h110_each_first_record_is_read_once() -> None:
    reading, view = Reading(), LogView()
    stores = [Standing(3), Standing(3), Standing(9)]
    watch = LogWatch(cast(Any, stores), MemoryFacts(), MemoryFeed(), view, measuring=Measuring(reading))

    def look(end: int) -> Heads:
        ends = {T: {0: end}}
        found = watch._read_heads(ends)
        view.note_heads(ends, found)
        return found

    assert look(9) == {(T, 0, 3): Head(3, 1003)}
    assert view.lacking(stores[0].offsets, [T]) == (True, 6, 1003)
    assert view.lacking(stores[2].offsets, [T]) == (True, 0, None)
    look(12)
    assert reading.asked == [{(T, 0, 3)}, {(T, 0, 9)}], "what was read stays"
    stores[0].offsets = {T: {0: 5}}
    reading.silent = True
    look(12)
    assert view.lacking(stores[0].offsets, [T]) == (True, 7, 1003), "never too new"
    reading.silent = False
    look(12)
    assert view.lacking(stores[0].offsets, [T]) == (True, 7, 1005)
    stores[:] = []
    assert look(12) == {}


def test_h110_what_was_never_read_leaves_the_lag_unknown() -> None:
    view = LogView()
    view.note_heads({T: {0: 9}}, {})
    assert view.lacking({T: {0: 3}}, [T]) == (False, 6, None)
    assert view.lacking({T: {0: 9}}, [T]) == (True, 0, None)


def test_h110_a_slow_first_record_keeps_no_end_of_the_log() -> None:
    answer, view = Event(), LogView()

    class Slow(Reading):
        def read(self, places: Collection[tuple[str, int, int]], ends: Offsets) -> Heads:
            assert answer.wait(30)
            return super().read(places, ends)

    looked: list[float] = []
    store = Standing(3)
    store.offsets, store.topics = {TOPIC: {0: 3}}, SinkTopics({TOPIC: "id1"}, {TOPIC: 1})
    clock, measuring = ManualClock(), Measuring(Slow(), looked.append)
    watch = LogWatch(cast(Any, [store]), MemoryFacts(end=9), MemoryFeed(), view, clock, measuring=measuring)
    watch.look_at_ends()
    clock.sleep(10)
    watch.look_at_ends()
    assert not looked, "the reader has not answered, and the watch goes on"
    answer.set()
    wait_until(lambda: looked)
    assert view.heads == {(TOPIC, 0, 3): Head(3, 1003)}


def test_h298_a_store_that_begins_after_the_look_is_looked_at() -> None:
    """Its first batch may be done before the next look is due: without an end it claims no LSN."""
    asked: list[list[str]] = []

    class Noting(MemoryFacts):
        def ends(self, topics: SinkTopics) -> Offsets:
            asked.append(list(topics.ids))
            return super().ends(topics)

    store, view, clock = Standing(9), LogView(), ManualClock()
    store.offsets, store.topics = {TOPIC: {0: 9}}, SinkTopics()
    watch = LogWatch(cast(Any, [store]), Noting(end=9), MemoryFeed(), view, clock, measuring=Measuring())
    watch._look()
    store.topics = SinkTopics({TOPIC: "id1"}, {TOPIC: 1})
    watch._look()
    watch._look()
    assert asked == [[], [TOPIC]], "once for what is new, and then when it is due"


def test_h411_a_topic_that_another_one_replaced_ends_nobody() -> None:
    """A store follows the former topic of a view until the topics are looked at, every ten seconds."""

    class Gone(MemoryFacts):
        def ends(self, topics: SinkTopics) -> Offsets:
            raise TopicError("the topic does not exist")

    store, facts = Standing(9), Gone(topic_id="id2")
    store.topics = store.captured = SinkTopics({TOPIC: "id1"}, {TOPIC: 1})
    watch = LogWatch(cast(Any, [store]), facts, MemoryFeed(), LogView(), ManualClock(), measuring=Measuring())
    watch._look()
    assert isinstance(store.fault, TopicsChanged)
    watch._look()  # the store has not begun again yet
    store.captured, store.fault = facts.topics("cache"), None
    watch._due_s["ends"] = 0.0
    with pytest.raises(TopicError):
        watch._look()
