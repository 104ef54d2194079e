"""The shared query's queues: joined, repeated, never jumped over, and each store with its own tables alone."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import cast

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Retry, SinkError
from cdc.testing import MemoryReading
from cdc.wire.dead_letter import DeadLetter, Why
from sinks.contract.batch import events_of
from sinks.contract.kinds import spec_for
from spark.figures.sink_metrics import Metrics
from spark.queries.fanout import Behind, Content, FanOut, Lane, unseen
from spark.queries.query import shapes_of
from spark.queries.query_run import Engine
from spark.records.source import KafkaInput
from spark.stores.apply import Outcome
from tests.unit.spark.doubles import orders
from tests.unit.spark.records import TOPIC, KafkaRecord, records_of
from tests.unit.spark.test_store import Bench, bench, row

__all__ = ["bench"]


def content_of(start: int, *records: KafkaRecord) -> Content:
    """A batch from an offset up to its last record."""
    return Content(
        starts={TOPIC: {0: start}},
        ends={TOPIC: {0: records[-1].offset + 1}},
        records=records_of(*records),
        events=None,
        before=Outcome(),
        read_at_s=1.0,
        started_s=1.0,
        history=lambda keys: records_of(),
    )


def test_batches_that_wait_for_a_slow_store_are_taken_as_one(bench: Bench) -> None:
    lane = Lane(bench.begun(), 1000)
    settled: list[Content] = []
    busy = Event()
    lane.store.attempt(lambda: busy.wait(30))
    for number in range(3):
        lane.offer(content_of(number, row(number, number)), settled.append)
    busy.set()
    assert lane.drained(30)
    [one] = settled
    assert one.records is not None and one.records["offset"].to_pylist() == [0, 1, 2]
    assert (one.starts, one.ends) == ({TOPIC: {0: 0}}, {TOPIC: {0: 3}})


def test_h102_what_waits_for_a_store_is_bounded_in_bytes(bench: Bench) -> None:
    one = content_of(0, row(1, 0))
    lane = Lane(bench.begun(), 1000, slice_bytes=one.rows.nbytes)
    settled: list[Content] = []
    busy = Event()
    lane.store.attempt(lambda: busy.wait(30))
    room = []
    for number in range(3):
        lane.offer(content_of(number, row(number, number)), settled.append)
        room.append(lane.has_room(0))
    busy.set()
    assert lane.drained(30)
    assert room == [True, True, False], "a slice in work, one behind it"
    assert len(settled) == 3, "joined they would be more than a slice"


def test_a_batch_that_met_a_store_away_is_repeated_not_lost(bench: Bench) -> None:
    lane = Lane(bench.begun(), 1000)
    away = [SinkError("away")]
    settled: list[Content] = []

    def settle(content: Content) -> None:
        if away:
            raise away.pop()
        settled.append(content)

    lane.offer(content_of(0, row(1, 0)), settle)
    lane.offer(content_of(1, row(2, 1)), settle)
    assert lane.drained(30)
    offsets = [offset for one in settled if one.records is not None for offset in one.records["offset"].to_pylist()]
    assert offsets == [0, 1]


def test_a_failed_batch_is_not_overtaken_by_those_behind_it(bench: Bench) -> None:
    store = bench.begun()
    fan_out = FanOut({}, cast(Engine, SimpleNamespace(clock=SYSTEM_CLOCK, metrics=Metrics())))

    def queue(start: int, record: KafkaRecord) -> Future[None]:
        return store.submit(partial(fan_out._settle, store, content_of(start, record)))

    bench.failures.append(SinkError("no", retry=Retry.NEVER))
    failed, behind = queue(0, row(1, 6)), queue(7, row(2, 7))
    assert isinstance(failed.exception(), SinkError)
    assert isinstance(behind.exception(), Behind)
    assert not store.offsets
    assert queue(0, row(1, 6)).exception() is None
    assert queue(7, row(2, 7)).exception() is None
    assert bench.watermark is not None and bench.watermark.offsets == {TOPIC: {0: 8}}


def test_a_store_writes_no_letter_of_a_table_it_does_not_keep(bench: Bench) -> None:
    store = bench.begun()
    fan_out = FanOut({}, cast(Engine, SimpleNamespace(clock=SYSTEM_CLOCK, metrics=Metrics())))
    letters = tuple(
        DeadLetter(
            sink="", why=Why.UNREADABLE, topic=topic, partition=0, offset=3, reason="none of ours", key=None, value=None
        )
        for topic in (TOPIC, "shop.public.others")
    )
    content = replace(
        content_of(0, row(1, 6)), records=None, events=events_of([]), before=Outcome(letters=letters, records=2)
    )
    store.run(partial(fan_out._settle, store, content))
    assert [letter.topic for letter in bench.dead.letters] == [TOPIC]


def test_h38_rows_for_several_stores_know_the_shapes_of_all(bench: Bench) -> None:
    other = Bench()
    other.facts.shapes = [orders(), orders(2, extra=("note",))]
    rules = shapes_of([bench.begun(), other.begun()])
    assert all((TOPIC, version) in rules.book for version in (1, 2))


def test_h77_a_store_takes_what_it_lacks_from_its_own_offset_on(bench: Bench) -> None:
    """Its offset is the next record that it reads: that one is not seen yet."""
    store = bench.begun()
    bench.settle(store, 6, row(1, 5))
    read = records_of(row(1, 4), row(1, 5), row(1, 6), row(1, 7))
    assert unseen(read, {TOPIC: {0: 4}}, store)["offset"].to_pylist() == [6, 7]


def test_h189_what_a_shared_store_met_at_the_end_is_told(bench: Bench) -> None:
    """Between the last look and the end: the application ended with 0."""
    store = bench.begun()
    engine = cast(
        Engine,
        SimpleNamespace(
            clock=SYSTEM_CLOCK, metrics=Metrics(), slots=2, kafka=KafkaInput({}, 1000, MemoryReading((), None))
        ),
    )
    fan_out = FanOut({store.name: (store, spec_for("redis", prefix="shop", options={"url": "redis://x"}))}, engine)
    lane = fan_out._lanes[store.name] = Lane(store, 1000)
    bench.failures.append(SinkError("no", retry=Retry.NEVER))
    lane.offer(content_of(0, row(1, 6)), partial(fan_out._settle, store))
    fan_out.conclude()
    failure = fan_out.alone[store.name].failure
    assert isinstance(failure, SinkError) and failure.message == "no"
