"""A table that a store cannot carry any more waits alone: nothing of it is lost, nothing of it is claimed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import orjson
import pyarrow as pa
import pytest

from cdc.process.clock import ManualClock
from cdc.record.progress import EpochsState, Hold, Offsets, Progress, Watermark
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import CannotCarry
from sinks.contract.table_places import SchemaBook
from spark.figures.sink_metrics import Metrics
from spark.queries.log_watch import LogWatch, TopicsChanged
from spark.records.ports import SinkTopics
from spark.records.source import EARLIEST
from spark.stores.apply import Outcome, Rules, sort_out
from spark.stores.holds import HeldAgain
from spark.stores.store_thread import Store, Surroundings
from spark.stores.watermark import Claim, LogEnds, LogView
from tests.unit.spark.doubles import MemoryDead, MemoryFeed, orders
from tests.unit.spark.records import TOPIC, KafkaRecord, records_of, sound

OTHER = "shop.public.others"
ORDERS, OTHERS = TableName("public", "orders"), TableName("public", "others")
WHY = "public.orders: column status is text in the store, and integer in the source now"


def retyped(shape: TableSchema, kind: str) -> TableSchema:
    """The next version of a shape, its last column of another type."""
    last = replace(shape.columns[-1], type=kind, kind=kind)
    return replace(shape, version=shape.version + 1, columns=(*shape.columns[:-1], last))


FIRST = orders()
BESIDE = replace(FIRST, table=OTHERS, topic=OTHER)
SECOND = retyped(FIRST, "integer")
THIRD = retyped(SECOND, "text")


@dataclass
class Facts:
    """The log of two tables."""

    shapes: list[TableSchema] = field(default_factory=lambda: [FIRST, BESIDE])
    end: Offsets = field(default_factory=lambda: {TOPIC: {0: 9}, OTHER: {0: 9}})
    captured: tuple[str, ...] = (TOPIC, OTHER)
    retention_s: float = math.inf
    noted: EpochsState = field(default_factory=EpochsState)

    def topics(self, sink: str) -> SinkTopics:
        ids = {topic: f"id of {topic}" for topic in self.captured}
        return SinkTopics(
            ids=ids, partitions=dict.fromkeys(ids, 1), compaction_lag_s=60.0, retention_s=self.retention_s
        )

    def ends(self, topics: SinkTopics) -> Offsets:
        return {topic: self.end[topic] for topic in topics.ids}

    def epochs(self) -> EpochsState:
        return self.noted

    def rekeyed(self) -> frozenset[str]:
        return frozenset()

    def looks(self, topics: Collection[str]) -> None:
        return None

    def newest(self) -> tuple[int, int] | None:
        return None

    def schemas(self) -> list[TableSchema]:
        return list(self.shapes)


@dataclass
class Bench:
    """A store that keeps the type a column had first."""

    memory: MemoryStore = field(default_factory=lambda: MemoryStore(rigid=True))
    facts: Facts = field(default_factory=Facts)
    view: LogView = field(default_factory=LogView)
    metrics: Metrics = field(default_factory=Metrics)
    stores: list[Store] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)

    def begun(self) -> Store:
        around = Surroundings(
            facts=self.facts, dead=MemoryDead(), view=self.view, metrics=self.metrics, clock=self.clock
        )
        store = Store("cache", self.memory.open, around)
        self.stores.append(store)
        store.run(store.begin)
        return store

    def settle(self, store: Store, orders_end: int, others_end: int, *records: KafkaRecord) -> None:
        table = records_of(*records)
        at = Claim({TOPIC: {0: orders_end}, OTHER: {0: others_end}}, 1.0)
        store.run(lambda: store.settle(table, at))

    def progress(self, lsn: int, orders_end: int, others_end: int) -> None:
        """All below this LSN lies below these offsets."""
        self.view.note_progress([Progress(epoch=1, lsn=lsn, offsets={TOPIC: {0: orders_end}, OTHER: {0: others_end}})])

    @property
    def mark(self) -> Watermark:
        found = self.memory.open().watermarks.read()
        assert found is not None
        return found

    def keys(self, table: TableName) -> list[str]:
        return sorted(self.memory.table(table))

    def gauge(self) -> float | None:
        return self.metrics.registry.get_sample_value("cdc_sink_held_tables", {"pipeline": "", "sink": "cache"})


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}, OTHER: {0: 0}}))
    yield made
    for store in made.stores:
        store.end()


def row(number: int, offset: int, *, topic: str = TOPIC, ver: int = 1) -> KafkaRecord:
    value = orjson.dumps({"before": None, "after": {"id": number, "status": "s"}, "op": "u"})
    return KafkaRecord(b'{"id":%d}' % number, value, sound(8 * (offset + 1), ver=ver), offset, topic)


def test_h51_a_shape_the_store_cannot_carry_holds_its_table_only(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    bench.facts.shapes.append(SECOND)
    bench.progress(64, 3, 2)
    bench.settle(store, 3, 2, row(2, 1), row(3, 2, ver=2), row(2, 1, topic=OTHER))
    assert (bench.keys(ORDERS), bench.keys(OTHERS)) == (["1"], ["1", "2"])
    assert bench.mark.offsets == {TOPIC: {0: 1}, OTHER: {0: 2}}
    assert bench.mark.held == {TOPIC: Hold(table="public.orders", reason=WHY)}
    assert bench.mark.lsn == 64
    assert bench.gauge() == 1


def test_a_hold_outlives_a_restart_and_its_topic_is_not_read(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 1, 1, row(1, 0))
    bench.facts.shapes.append(SECOND)
    bench.settle(store, 3, 2, row(3, 2, ver=2))
    again = bench.begun()
    assert again.starts == {OTHER: {0: 2}}
    bench.settle(again, 7, 3, row(7, 6, ver=2), row(5, 2, topic=OTHER))
    assert bench.mark.offsets == {TOPIC: {0: 1}, OTHER: {0: 3}}
    assert bench.keys(ORDERS) == ["1"]
    bench.facts.end = {TOPIC: {0: 9}, OTHER: {0: 3}}
    assert bench.begun().caught_up


def test_a_released_table_goes_on_where_it_stopped(bench: Bench) -> None:
    store = bench.begun()
    bench.progress(16, 1, 1)
    bench.settle(store, 1, 1, row(1, 0))
    bench.facts.shapes.append(SECOND)
    bench.progress(64, 5, 2)
    bench.settle(store, 5, 2, row(3, 2, ver=2))
    assert bench.mark.lsn == 64
    bench.facts.shapes.append(THIRD)
    assert store.holds_outgrown(bench.facts.schemas)
    again = bench.begun()
    assert again.starts == {TOPIC: {0: 1}, OTHER: {0: 2}}
    assert bench.gauge() == 0
    bench.settle(again, 3, 2, row(3, 2, ver=2))
    assert bench.mark.held == {TOPIC: Hold(table="public.orders")}, "its rows lie below the LSN and do not show yet"
    assert (bench.mark.lsn, bench.mark.offsets[TOPIC]) == (64, {0: 3})
    bench.settle(again, 5, 2, row(4, 4, ver=3))
    assert (bench.mark.held, bench.mark.lsn) == ({}, 64)
    assert bench.keys(ORDERS) == ["1", "3", "4"]


@pytest.mark.parametrize("late", [True, False])
def test_h60_what_was_held_for_too_long_is_filled_anew(bench: Bench, late: bool) -> None:
    """It may have missed deletes. Of one that was held for less the log has them."""
    bench.clock.advance(8 * 86_400.0)
    bench.progress(16, 1, 1)
    bench.settle(bench.begun(), 1, 1, row(1, 0))
    since_ms = 1 if late else bench.clock.now_ns() // 1_000_000
    long = Hold(table="public.orders", reason=WHY, since_ms=since_ms)
    bench.facts.retention_s = 7 * 86_400.0
    bench.memory.open().watermarks.write(replace(bench.mark, held={TOPIC: long}))
    again = bench.begun()
    assert again.starts == {TOPIC: {0: EARLIEST if late else 1}, OTHER: {0: 1}}
    assert bench.keys(ORDERS) == ([] if late else ["1"])
    assert (bench.mark.lsn, list(bench.mark.held)) == (16, [TOPIC])


def test_h60_what_the_store_does_not_take_keeps_its_rows(bench: Bench) -> None:
    """Also if it was held for too long: it is filled anew once it is held no more."""
    bench.clock.advance(8 * 86_400.0)
    bench.settle(bench.begun(), 1, 1, row(1, 0))
    bench.facts.retention_s = 7 * 86_400.0
    bench.memory.open().watermarks.write(
        replace(bench.mark, held={TOPIC: Hold(table="public.orders", reason=WHY, since_ms=1)})
    )
    bench.facts.shapes = [SECOND, FIRST, BESIDE]
    assert bench.begun().starts == {OTHER: {0: 1}}
    assert bench.keys(ORDERS) == ["1"]
    bench.facts.shapes = [THIRD, SECOND, FIRST, BESIDE]
    assert bench.begun().starts == {TOPIC: {0: EARLIEST}, OTHER: {0: 1}}
    assert bench.keys(ORDERS) == []


def test_a_hold_is_told_of_while_the_tables_rest(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 1, 1, row(1, 0))
    bench.facts.shapes.append(SECOND)
    bench.facts.end = {TOPIC: {0: 9}, OTHER: {0: 1}}
    again = bench.begun()
    assert (bench.mark.held, again.caught_up) == ({}, False), "who waits for it would hear of no hold"
    again.idle()
    again.run(lambda: None)
    assert (list(bench.mark.held), again.caught_up) == ([TOPIC], True)


def test_a_store_that_holds_every_table_reads_on(bench: Bench) -> None:
    bench.facts.captured = (TOPIC,)
    store = bench.begun()
    bench.settle(store, 1, 1, row(1, 0))
    bench.facts.shapes.append(SECOND)
    again = bench.begun()
    assert again.starts == {TOPIC: {0: 9}}
    bench.settle(again, 12, 0, row(9, 10, ver=2))
    assert (bench.keys(ORDERS), bench.mark.offsets) == (["1"], {TOPIC: {0: 1}})


def test_h100_a_table_that_the_store_takes_nothing_of_is_held(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    bench.memory.closed = frozenset((ORDERS,))
    bench.settle(store, 2, 2, row(2, 1), row(2, 1, topic=OTHER))
    assert (bench.keys(ORDERS), bench.keys(OTHERS)) == (["1"], ["1", "2"])
    assert bench.mark.offsets == {TOPIC: {0: 1}, OTHER: {0: 2}}
    assert bench.mark.held == {
        TOPIC: Hold(table="public.orders", reason="public.orders: the store takes nothing of it")
    }
    bench.settle(store, 3, 3, row(3, 2), row(3, 2, topic=OTHER))
    assert (bench.keys(ORDERS), bench.keys(OTHERS)) == (["1"], ["1", "2", "3"])


def test_h100_a_held_table_is_tried_again_by_itself(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 1, 1, row(1, 0))
    bench.memory.closed = frozenset((ORDERS,))
    bench.settle(store, 2, 1, row(2, 1))
    faults = []
    for seconds, closed in ((9, True), (2, True), (11, False), (11, False)):
        bench.clock.advance(seconds)
        bench.memory.closed = frozenset((ORDERS,) if closed else ())
        store.idle()
        store.run(lambda: None)
        faults.append(type(store.fault))
    assert faults == [type(None)] * 3 + [HeldAgain], "each try is twice as far from the last"
    again = bench.begun()
    assert again.starts[TOPIC] == {0: 1}
    bench.settle(again, 2, 1, row(2, 1))
    assert bench.keys(ORDERS) == ["1", "2"]


def test_h100_all_holds_are_named_once_an_unknown_table_is_none(bench: Bench) -> None:
    store = bench.begun()
    bench.memory.closed = frozenset((ORDERS, OTHERS))
    bench.settle(store, 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    assert sorted(bench.mark.held) == [TOPIC, OTHER]
    with pytest.raises(CannotCarry):
        store.run(lambda: store.hold(CannotCarry.because(ORDERS, "again")))
    with pytest.raises(CannotCarry):
        store.run(lambda: store.hold(CannotCarry.because(TableName("a", "b"), "why")))


def test_a_newer_shape_of_a_held_table_starts_its_query_again(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 1, 1, row(1, 0))
    bench.facts.shapes.append(SECOND)
    held = bench.begun()
    bench.facts.shapes.append(THIRD)
    watch = LogWatch([held], bench.facts, MemoryFeed(), bench.view)
    watch.look_at_topics()
    assert isinstance(held.fault, TopicsChanged)
    assert store.fault is None


def test_records_of_held_tables_are_left_alone_unreadable_or_not() -> None:
    broken = KafkaRecord(b"k", b"v", None, 5)
    rules = Rules(book=SchemaBook([FIRST, BESIDE]), held=frozenset((TOPIC,)))
    found = sort_out(records_of(row(1, 0), broken, row(2, 1, topic=OTHER)), rules)
    assert found.events["topic"].to_pylist() == [OTHER]
    assert (found.unreadable, found.needs) == ([], frozenset())


def test_events_that_executors_brought_down_are_held_too(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 1, 1, row(1, 0))
    bench.facts.shapes.append(SECOND)
    events = sort_out(
        records_of(row(2, 1), row(3, 2, ver=2), row(2, 1, topic=OTHER)),
        Rules(book=SchemaBook([FIRST, BESIDE, SECOND])),
    ).events

    def settle() -> None:
        before, at = Outcome(), Claim({TOPIC: {0: 3}, OTHER: {0: 2}}, 1.0)
        store.settle_events(events, before, at, lambda keys: pa.table({}))

    store.run(settle)
    assert (bench.keys(ORDERS), bench.keys(OTHERS)) == (["1"], ["2"])
    assert bench.mark.offsets == {TOPIC: {0: 1}, OTHER: {0: 2}}


def test_a_watermark_names_its_held_tables_in_json() -> None:
    mark = Watermark(epoch=1, lsn=8, offsets={TOPIC: {0: 1}}, held={TOPIC: Hold(table="public.orders", reason=WHY)})
    assert Watermark.from_json(mark.to_json()) == mark
    assert b"held" not in Watermark(epoch=1, lsn=8).to_json()
    assert Hold(table="public.orders", reason=WHY).sentence("search") == (
        f"search holds {WHY}; its changes wait in the log: cdc rebuild search"
    )
