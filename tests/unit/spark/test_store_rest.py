"""What a store says of itself before its beginning, while it is filled and at rest, and what ends it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from threading import Event

import pytest

from cdc.process.errors import CdcError, Exit, Retry, SinkError, TopicError
from cdc.record.progress import Progress, Watermark
from cdc.record.topic_names import TableName
from sinks.contract.port import CannotCarry, StoreAway
from sinks.contract.table_places import SchemaBook
from spark.figures.sink_metrics import FillStand, Lacking
from spark.session.failures import Halted, QueryFailed
from spark.stores.apply import Outcome, Rules, sort_out, with_keys
from spark.stores.place_check import StoreMoved
from spark.stores.store_calls import StoreCalls
from spark.stores.watermark import LogEnds
from tests.unit.spark.doubles import orders
from tests.unit.spark.noted_store import Noted
from tests.unit.spark.records import TOPIC, KafkaRecord, records_of, sound
from tests.unit.spark.test_store import TABLE, at, row
from tests.waiting import wait_until

SECONDS = 10
SHOWN = Watermark(epoch=1, lsn=64, offsets={TOPIC: {0: 7}}, topic_ids={TOPIC: "id1"})
OTHERS = replace(orders(), table=TableName("public", "others"), topic="shop.public.others")


@pytest.fixture
def bench() -> Iterator[Noted]:
    made = Noted()
    made.view.note_ends(LogEnds(made.clock.monotonic(), {TOPIC: {0: 0}}))
    yield made
    for store in made.stores:
        store.end()


def progress(lsn: int, end: int = 7, heartbeat_ms: int = 0) -> Progress:
    return Progress(epoch=1, lsn=lsn, offsets={TOPIC: {0: end}}, heartbeat_ms=heartbeat_ms)


def told(bench: Noted, lsn: int, heartbeat_ms: int = 0) -> None:
    bench.view.note_progress([progress(lsn, heartbeat_ms=heartbeat_ms)])


def test_a_store_that_was_not_begun_knows_nothing_and_rests(bench: Noted) -> None:
    store = bench.store()
    assert (store.captured.ids, store.topics.ids, dict(store.offsets), store.lsn) == ({}, {}, {}, 0)
    assert (store.caught_up, store.backlog, store.behind(), store.busy, store.fault) == (False, 0, 0, False, None)
    assert (store.rules.parked, store.rules.absent, store.rules.held) == ({}, frozenset(), frozenset())
    bench.rest(store)
    assert (bench.opened, store.fault) == ([], None)


@pytest.mark.parametrize(("first", "fill"), [(None, FillStand(3, 9)), (replace(SHOWN, offsets={TOPIC: {0: 1}}), None)])
def test_a_store_without_an_lsn_is_filled_to_its_first_goal(
    bench: Noted, first: Watermark | None, fill: FillStand | None
) -> None:
    """Its query may begin again on the way, and the log grows meanwhile."""
    bench.facts.end = 9
    if first is not None:
        bench.shows(first)
    store = bench.begun()
    assert store.backlog == (9 if first is None else 8)
    bench.settle(store, 3, row(1, 2))
    assert bench.figures.fill() == fill
    bench.facts.end = 20
    store.run(store.begin)
    assert (bench.figures.fill(), store.backlog, store.caught_up) == (fill, 6, False)
    bench.settle(store, 9, row(1, 8))
    assert (bench.figures.fill(), store.backlog, store.caught_up) == (None, 0, True)
    bench.settle(store, 10, row(1, 9))
    assert bench.figures.fill() is None


def test_h110_a_store_s_figures_are_those_of_its_place(bench: Noted) -> None:
    bench.facts.end = 9
    bench.view.note_heads({TOPIC: {0: 9}}, {})
    store = bench.begun()
    assert bench.figures.answered_s == bench.clock.monotonic()
    told(bench, 64)
    bench.settle(store, 7, row(1, 6))
    assert bench.figures.lacks() == Lacking(*bench.view.lacking({TOPIC: {0: 7}}, [TOPIC]))
    assert (bench.figures.behind(), bench.figures.lacks().records, bench.figures.lsn) == (2, 2, 64)
    told(bench, 72)
    bench.rest(store)
    assert bench.figures.lsn == store.lsn == 72


def test_an_empty_store_at_rest_says_where_it_is(bench: Noted) -> None:
    bench.facts.end = 0
    store = bench.begun()
    before = bench.watermark
    bench.rest(store)
    after = bench.watermark
    assert (before, store.fault) == (None, None)
    assert after is not None and (after.lsn, after.topic_ids) == (0, {TOPIC: "id1"})


def test_a_store_that_begins_again_rests_where_it_was(bench: Noted) -> None:
    bench.shows(SHOWN)
    store = bench.begun()
    told(bench, 72)
    bench.rest(store)
    assert bench.watermark == replace(SHOWN, lsn=72)


def test_h84_a_store_at_rest_is_looked_at_every_two_seconds(bench: Noted) -> None:
    """It may be emptied while nothing changes."""
    bench.shows(SHOWN)
    told(bench, 64)
    store = bench.begun()
    bench.rest(store, 2.0)
    kept = dict(bench.memory.notes)
    bench.memory.notes.clear()
    bench.rest(store, 1.5)
    assert store.fault is None, "too soon"
    bench.memory.notes.update(kept)
    bench.rest(store, 0.5)
    bench.memory.notes.clear()
    bench.rest(store, 1.5)
    assert store.fault is None, "too soon after the last look"
    bench.rest(store, 0.5)
    assert isinstance(store.fault, StoreMoved)


def test_a_heartbeat_is_counted_once_the_store_confirms_it(bench: Noted) -> None:
    """At once, and not for the next look in two seconds; not one from before the beginning, nor by a store behind."""
    bench.facts.end = 7
    bench.shows(SHOWN)
    now_ms = bench.clock.now_ns() // 1_000_000
    told(bench, 64, heartbeat_ms=now_ms - 1)
    store = bench.begun()
    counted = bench.figures.freshness.tallies["heartbeat"]
    bench.rest(store, 0.25)
    assert counted.count == 0
    told(bench, 64, heartbeat_ms=now_ms)
    bench.view.note_ends(LogEnds(bench.clock.monotonic(), {TOPIC: {0: 8}}))
    bench.rest(store)
    assert counted.count == 0
    bench.view.note_ends(LogEnds(bench.clock.monotonic(), {TOPIC: {0: 7}}))
    bench.rest(store)
    bench.rest(store)
    assert (counted.count, counted.total) == (1, 0.25)
    seen = bench.figures.freshness.recent(bench.clock.monotonic())
    assert seen is not None and seen.p50_s == 0.25
    bench.memory.notes.clear()
    told(bench, 64, heartbeat_ms=now_ms + 1)
    bench.rest(store)
    assert isinstance(store.fault, StoreMoved), "what is counted was looked at"


def test_h162_a_watermark_that_arrived_unheard_is_our_own(bench: Noted) -> None:
    """The store went away behind the write. However often it is looked at, no other application wrote it."""
    bench.shows(SHOWN)
    store, answers = bench.begun(), [StoreAway("away before it answered")]

    def away() -> None:
        if answers:
            raise answers.pop()

    bench.on_written = away
    told(bench, 64)
    with pytest.raises(StoreAway):
        store.result(store.attempt(lambda: store.settle(records_of(row(1, 7)), at(8))))
    found = bench.watermark
    assert found is not None and (found.offsets, store.offsets) == ({TOPIC: {0: 8}}, {TOPIC: {0: 7}})
    for _ in range(3):
        bench.rest(store, 2.0)
        assert store.fault is None
    bench.settle(store, 8, row(1, 7))
    assert (store.offsets, bench.status(1)) == ({TOPIC: {0: 8}}, "new")


def committed(one: KafkaRecord, at_ms: int) -> KafkaRecord:
    value = (one.value or b"")[:-1] + b',"source":{"version":"0.1.0","ts_ms":%d}}' % at_ms
    return one._replace(value=value)


@pytest.mark.parametrize(("first", "fresh"), [(None, 0), (SHOWN, 1)])
def test_a_change_is_fresh_or_part_of_a_fill(bench: Noted, first: Watermark | None, fresh: int) -> None:
    bench.facts.end = 9
    if first is not None:
        bench.shows(first)
    store = bench.begun()
    bench.settle(store, 8, committed(row(1, 7), bench.clock.now_ns() // 1_000_000 - 250))
    counted = bench.figures.freshness.tallies["change"]
    assert (counted.count, counted.total) == (fresh, fresh * 0.25)


def test_y14_what_waited_for_a_fill_is_no_freshness(bench: Noted) -> None:
    """The batch that ends the fill, and the changes that came behind its goal while it went on."""
    bench.facts.end = 9
    store = bench.begun()
    began_ms = bench.clock.now_ns() // 1_000_000
    bench.clock.advance(135)
    bench.settle(store, 9, committed(row(1, 8), began_ms - 5))
    bench.clock.advance(1)
    bench.settle(store, 10, committed(row(1, 9), began_ms + 60_000))
    assert bench.figures.freshness.tallies["change"].count == 0
    bench.settle(store, 11, committed(row(1, 10), bench.clock.now_ns() // 1_000_000 - 250))
    counted = bench.figures.freshness.tallies["change"]
    assert (counted.count, counted.total) == (1, 0.25)


def test_a_busy_store_is_not_looked_at(bench: Noted) -> None:
    bench.shows(SHOWN)
    store, going_on, asked = bench.begun(), Event(), Event()

    def call() -> float | None:
        asked.set()
        going_on.wait(SECONDS)
        return bench.figures.asked_s

    future = store.submit(call)
    assert asked.wait(SECONDS)
    assert store.busy
    store.idle()
    told(bench, 72)
    going_on.set()
    assert future.result(SECONDS) == bench.clock.monotonic()
    store.run(lambda: None)
    wait_until(lambda: not store.busy)
    assert (store.lsn, bench.figures.asked_s) == (64, None)


def test_a_store_with_a_fault_is_left_alone_until_it_begins(bench: Noted) -> None:
    bench.shows(SHOWN)
    store = bench.begun()
    store.fault = SinkError("found before")
    told(bench, 72)
    bench.rest(store)
    assert (store.lsn, store.fault.message) == (64, "found before")
    store.run(store.begin)
    assert store.fault is None


def test_a_closed_store_rests_and_is_opened_by_its_beginning(bench: Noted) -> None:
    bench.shows(SHOWN)
    store = bench.begun()
    told(bench, 72)
    store.close()
    assert bench.calls[-1] == "close"
    bench.rest(store)
    assert (store.lsn, len(bench.opened)) == (64, 1)
    store.run(store.begin)
    bench.rest(store)
    assert (store.lsn, len(bench.opened)) == (72, 2)


def test_an_ended_store_is_closed_and_waits_for_nothing_more(bench: Noted) -> None:
    store = bench.begun()
    assert store.end() is True
    assert store.halt.is_set()
    assert bench.calls[-1] == "close"


@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        (TopicError("the topic is gone"), TopicError, Exit.TOPIC),
        (RuntimeError("row 7 is secret"), QueryFailed, Exit.BUG),
    ],
)
def test_what_a_look_finds_out_ends_the_query(
    bench: Noted, failure: Exception, kind: type[CdcError], code: Exit
) -> None:
    def fail() -> None:
        raise failure

    bench.shows(SHOWN)
    store = bench.begun()
    told(bench, 72)
    bench.on_show = fail
    bench.rest(store)
    assert isinstance(store.fault, kind)
    assert (store.fault.exit, "secret" in store.fault.message) == (code, False)


def test_a_look_at_a_store_that_is_away_is_tried_again(bench: Noted, caplog: pytest.LogCaptureFixture) -> None:
    """A cause is logged when it is another one than before, and the figures say the newest."""
    causes, said = ["away", "away", "away for another reason", "away"], list[str]()

    def away() -> None:
        said.append(bench.figures.away)
        if causes:
            raise StoreAway(causes.pop(0))

    bench.shows(SHOWN)
    store = bench.begun()
    told(bench, 72)
    bench.on_show = away
    with caplog.at_level(logging.WARNING):
        bench.rest(store)
    assert (store.fault, store.lsn) == (None, 72)
    assert [one.reason for one in caplog.records if one.getMessage() == "store_away"] == [  # type: ignore[attr-defined]
        "away", "away for another reason", "away",
    ]  # fmt: skip
    assert (said, bench.figures.away) == (["", "away", "away", "away for another reason", "away"], "")


def test_a_call_that_is_tried_once_fails_with_the_store(bench: Noted) -> None:
    store, calls = bench.begun(), []

    def away() -> None:
        calls.append(1)
        raise SinkError("away")

    with pytest.raises(SinkError, match="away"):
        store.result(store.attempt(away))
    assert (len(calls), bench.figures.asked_s) == (1, None)
    store.halt.set()
    with pytest.raises(Halted):
        store.run(away)


def test_a_call_s_own_timeout_is_its_error(bench: Noted) -> None:
    """It is not taken for one that goes on."""

    def slow() -> None:
        raise TimeoutError("of the client")

    calls: StoreCalls = bench.begun()
    with pytest.raises(TimeoutError, match="of the client"):
        calls.result(calls.attempt(slow))


def test_only_tables_of_the_sink_get_a_place(bench: Noted) -> None:
    bench.facts.shapes.append(OTHERS)
    store = bench.begun()
    assert bench.calls == ["prepare public.orders"]
    store.run(lambda: store.learn(frozenset({(TOPIC, 1), (TOPIC, 9)})))
    assert store.rules.absent == {(TOPIC, 9)}


def test_a_held_table_is_read_no_more(bench: Noted) -> None:
    store = bench.begun()
    assert list(store.topics.ids) == [TOPIC]
    store.run(lambda: store.hold(CannotCarry.because(TABLE, "the index is read-only")))
    assert (store.topics.ids, list(store.captured.ids)) == ({}, [TOPIC])
    assert store.starts == {TOPIC: {0: 1000}}
    with pytest.raises(CannotCarry) as refused:
        store.run(lambda: store.hold(CannotCarry.because(TABLE, "again")))
    assert refused.value.retry is Retry.NEVER


def test_the_rules_of_a_task_stay_as_they_were(bench: Noted) -> None:
    bench.memory.refuse = frozenset({"2"})
    store = bench.begun()
    rules = store.rules_of_now()
    bench.settle(store, 8, row(2, 7))
    key = b'{"id":2}'
    assert (rules.parked, dict(store.rules.parked)) == ({}, {TOPIC: {key: (0, 7)}})
    assert store.rules_of_now().parked == {TOPIC: {key: (0, 7)}}


def test_h67_floors_are_set_alone_and_refused_ones_are_letters(bench: Noted) -> None:
    store = bench.begun()
    bench.settle(store, 7, row(1, 6))
    floors = [
        KafkaRecord(b'{"__truncate":"public.orders"}', None, sound(800, op="t"), 8),
        KafkaRecord(b'{"__mystery":1}', None, sound(808, op="t"), 9),
    ]
    found = sort_out(records_of(*floors), Rules(book=SchemaBook([orders()])))
    outcome = store.run(lambda: store.set_floors(found.floors))
    assert [one.offset for one in outcome.letters] == [9]
    assert bench.status(1) is None


def test_h67_a_replay_from_executors_leaves_the_parked_event(bench: Noted) -> None:
    """Though the store would take it by now: it is released by an order."""
    store = bench.begun()
    bench.settle(store, 7, row(1, 6, status="good"))
    bench.memory.refuse = frozenset({"1"})
    bench.settle(store, 8, row(1, 7, status="parked"))
    bench.memory.refuse = frozenset()
    bench.memory.notes.clear()
    bench.memory.rows.clear()
    again = bench.begun()
    every = sort_out(
        records_of(row(1, 6, status="good"), row(1, 7, status="parked")), Rules(book=SchemaBook([orders()]))
    )
    again.run(
        lambda: again.settle_events(every.events.slice(1), Outcome(), at(8), lambda keys: with_keys(every.events, keys))
    )
    assert bench.status(1) == "good"
