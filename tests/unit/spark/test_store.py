"""A store's place: found, kept, and never believed when it has changed under us."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import orjson
import pyarrow as pa
import pytest

from cdc.process.errors import ActiveError, Retry, SinkError, TopicError
from cdc.record.progress import Progress, Watermark
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.dead_letter import Why
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import Applied, OpenSink, PlaceMissing, Schemas
from spark.figures.sink_metrics import Metrics
from spark.records.source import parse
from spark.stores.apply import Outcome, with_keys
from spark.stores.store_thread import Store, StoreMoved, Surroundings
from spark.stores.watermark import Claim, LogEnds, LogView
from tests.unit.spark.doubles import MemoryDead, MemoryFacts, orders
from tests.unit.spark.records import TOPIC, KafkaRecord, records_of, sound
from tests.waiting import wait_until

TABLE = TableName("public", "orders")


def row(number: int, offset: int, *, status: str = "new", lsn: int | None = None, ver: int = 1) -> KafkaRecord:
    """An update of one row; its LSN follows its offset."""
    value = orjson.dumps({"before": None, "after": {"id": number, "status": status}, "op": "u"})
    return KafkaRecord(b'{"id":%d}' % number, value, sound(lsn or 8 * (offset + 1), ver=ver), offset)


@dataclass
class Bench:
    """A store with everything around it in memory."""

    memory: MemoryStore = field(default_factory=MemoryStore)
    facts: MemoryFacts = field(default_factory=MemoryFacts)
    dead: MemoryDead = field(default_factory=MemoryDead)
    view: LogView = field(default_factory=LogView)
    opened: list[OpenSink] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    on_prepare: Callable[[], None] = lambda: None
    """Called where room for a table is made."""

    def store(self, name: str = "cache") -> Store:
        around = Surroundings(facts=self.facts, dead=self.dead, view=self.view, metrics=self.metrics)
        store = Store(name, self._connect, around)
        self.stores.append(store)
        return store

    def begun(self) -> Store:
        store = self.store()
        store.run(store.begin)
        return store

    def settle(self, store: Store, end: int, *records: KafkaRecord) -> Outcome:
        table = records_of(*records)
        return store.run(lambda: store.settle(table, at(end)))

    @property
    def watermark(self) -> Watermark | None:
        return self.memory.open().watermarks.read()

    def status(self, number: int) -> str | None:
        stored = self.memory.table(TABLE).get(str(number))
        return orjson.loads(stored.row)["status"] if stored is not None and stored.row is not None else None

    def _connect(self) -> OpenSink:
        opened = self.memory.open()
        failing = _Failing(opened, self.failures, self.on_prepare)
        sink = replace(opened, sink=failing)
        self.opened.append(sink)
        return sink


class _Failing:
    """A sink that applies, and then fails as often as it is told to."""

    def __init__(self, opened: OpenSink, failures: list[Exception], on_prepare: Callable[[], None]) -> None:
        self._sink = opened.sink
        self._failures = failures
        self._on_prepare = on_prepare
        self.show = opened.sink.show
        self.close = opened.sink.close

    def prepare(self, schema: TableSchema, *, older: bool = False) -> None:
        self._on_prepare()
        self._sink.prepare(schema, older=older)

    def apply(self, events: pa.Table, schemas: Schemas) -> Applied:
        applied = self._sink.apply(events, schemas)
        if self._failures:
            raise self._failures.pop(0)
        return applied


def at(end: int) -> Claim:
    return Claim({TOPIC: {0: end}}, 1.0)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    yield made
    for store in made.stores:
        store.end()


def test_an_empty_store_starts_at_every_partitions_beginning(bench: Bench) -> None:
    bench.facts.partitions = 3
    store = bench.store()
    assert store.run(store.begin) == {TOPIC: {0: -2, 1: -2, 2: -2}}


def test_h84_a_store_goes_on_where_its_own_watermark_is(bench: Bench) -> None:
    bench.settle(bench.begun(), 7, row(1, 6))
    again = bench.store()
    assert again.run(again.begin) == {TOPIC: {0: 7}}


def test_the_watermark_follows_the_data_and_says_of_which_topics(bench: Bench) -> None:
    bench.view.note_progress([Progress(epoch=1, lsn=64, offsets={TOPIC: {0: 7}})])
    outcome = bench.settle(bench.begun(), 7, row(1, 5, status="old"), row(1, 6, status="paid"))
    assert (outcome.applied.applied, outcome.records) == (1, 2)
    assert bench.status(1) == "paid"
    assert bench.watermark == Watermark(epoch=1, lsn=64, offsets={TOPIC: {0: 7}}, topic_ids={TOPIC: "id1"})


def test_h63_a_store_fed_from_topics_made_anew_is_refused(bench: Bench) -> None:
    bench.settle(bench.begun(), 7, row(1, 6))
    bench.facts.topic_id = "id2"
    again = bench.store()
    with pytest.raises(TopicError, match="made anew"):
        again.run(again.begin)


def test_h222_a_store_that_claims_more_than_the_log_is_refused(bench: Bench) -> None:
    bench.facts.reaches = (1, 7)
    bench.memory.open().watermarks.write(Watermark(epoch=1, lsn=8, offsets={TOPIC: {0: 7}}, topic_ids={TOPIC: "id1"}))
    with pytest.raises(TopicError, match="and the log has the source up to 0/7 of epoch 1"):
        bench.begun()


def test_h63_a_store_that_is_further_than_its_topic_is_refused(bench: Bench) -> None:
    bench.settle(bench.begun(), 7, row(1, 6))
    bench.facts.end = 3
    again = bench.store()
    with pytest.raises(TopicError, match="made anew"):
        again.run(again.begin)


def test_h84_a_store_emptied_under_us_is_not_told_it_is_further(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 7, row(1, 6))
    bench.memory.notes.clear()
    bench.memory.rows[TABLE].clear()
    with pytest.raises(StoreMoved):
        bench.settle(store, 8, row(2, 7))
    assert bench.watermark is None
    assert store.run(store.begin) == {TOPIC: {0: -2}}


def test_h100_a_table_dropped_under_us_is_made_anew_and_filled(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 7, row(1, 6))
    del bench.memory.rows[TABLE]
    with pytest.raises(PlaceMissing) as missing:
        bench.settle(store, 8, row(2, 7))
    assert missing.value.retry is Retry.NOW
    assert store.run(store.begin) == {TOPIC: {0: -2}}
    bench.settle(store, 8, row(1, 6), row(2, 7))
    assert (bench.status(1), bench.status(2)) == ("new", "new")


def test_h84_a_restored_store_is_filled_from_where_it_is(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 7, row(1, 6))
    backup = dict(bench.memory.notes)
    bench.settle(store, 9, row(1, 8))
    bench.memory.notes.update(backup)
    with pytest.raises(StoreMoved):
        bench.settle(store, 10, row(2, 9))
    assert store.run(store.begin) == {TOPIC: {0: 7}}


def test_a_second_writer_ends_the_first(bench: Bench) -> None:
    first = bench.begun()
    bench.settle(first, 7, row(1, 6))
    second = bench.begun()
    bench.settle(second, 8, row(1, 7))
    with pytest.raises(ActiveError, match="another cdc sink"):
        bench.settle(first, 8, row(1, 7))
    bench.settle(second, 9, row(1, 8))


def test_a_fault_between_data_and_watermark_repeats_the_batch(bench: Bench) -> None:
    store = bench.begun()
    bench.failures.append(SinkError("away"))
    outcome = bench.settle(store, 7, row(1, 6, status="paid"))
    assert outcome.applied.applied == 1
    assert bench.status(1) == "paid"
    assert bench.watermark is not None and bench.watermark.offsets == {TOPIC: {0: 7}}


def test_h67_refused_records_become_letters_the_watermark_moves(bench: Bench) -> None:
    bench.memory.refuse = frozenset({"2"})
    foreign = KafkaRecord(b"x", b"\x00", [("who", b"me")], 8)
    outcome = bench.settle(bench.begun(), 10, row(1, 6), row(2, 7), foreign, row(3, 9))
    assert outcome.applied.applied == 2
    assert [(one.why, one.offset, one.sink) for one in bench.dead.letters] == [
        (Why.REFUSED, 7, "cache"),
        (Why.UNREADABLE, 8, "cache"),
    ]
    refused, unreadable = bench.dead.letters
    assert (refused.key, refused.headers) == (b'{"id":2}', tuple(sound(64)))
    assert unreadable.headers == (("who", b"me"),)
    assert bench.watermark is not None and bench.watermark.offsets == {TOPIC: {0: 10}}


def test_h67_a_parked_keys_later_events_wait_over_a_restart(bench: Bench) -> None:
    bench.memory.refuse = frozenset({"2"})
    store = bench.begun()
    bench.settle(store, 8, row(2, 7))
    bench.memory.refuse = frozenset()
    bench.settle(store, 10, row(1, 8), row(2, 9))
    again = bench.begun()
    bench.settle(again, 11, row(2, 10))
    assert [(one.why, one.offset) for one in bench.dead.letters] == [
        (Why.REFUSED, 7),
        (Why.BEHIND, 9),
        (Why.BEHIND, 10),
    ]
    assert (bench.status(1), bench.status(2)) == ("new", None)


def test_h67_a_refused_version_leaves_the_one_before_it(bench: Bench) -> None:
    """Batches' borders must not show: with the two in batches of their own the older one would be applied."""
    broken = row(1, 8)._replace(value=b'{"before":null,"aft')
    bench.settle(bench.begun(), 9, row(1, 6, status="old"), row(1, 7, status="good"), broken)
    assert bench.status(1) == "good"
    assert [one.offset for one in bench.dead.letters] == [8]


def test_h67_letters_are_written_before_the_watermark_passes(bench: Bench) -> None:
    bench.memory.refuse = frozenset({"2"})
    bench.dead.failures.append(SinkError("the broker is away"))
    store = bench.begun()
    held: list[object] = []
    bench.dead.look = lambda: held.append(bench.watermark)
    bench.settle(store, 8, row(2, 7))
    assert [one.offset for one in bench.dead.letters] == [7], "tried again with the whole batch, buried once"
    assert held == [None, None], "nothing was claimed before"
    assert bench.watermark is not None and bench.watermark.offsets == {TOPIC: {0: 8}}


def test_h85_a_new_version_is_fetched_and_its_column_appears(bench: Bench) -> None:
    store = bench.begun()
    bench.facts.shapes.append(orders(2, extra=("note",)))
    record = row(1, 6, ver=2)._replace(
        value=orjson.dumps({"before": None, "after": {"id": 1, "status": "new", "note": "n"}, "op": "u"})
    )
    bench.settle(store, 7, record)
    stored = bench.memory.table(TABLE)["1"]
    assert stored.row is not None and orjson.loads(stored.row) == {"id": 1, "status": "new", "note": "n"}


def test_an_unknown_version_is_fetched_once_then_letters_follow(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 7, row(1, 6, ver=9))
    asked = bench.facts.asked_shapes
    bench.settle(store, 8, row(2, 7, ver=9))
    assert bench.facts.asked_shapes == asked
    assert [one.offset for one in bench.dead.letters] == [6, 7]
    assert "version 9" in bench.dead.letters[0].reason


def test_an_idle_store_s_lsn_moves_while_its_tables_rest(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 7, row(1, 6))
    bench.view.note_progress([Progress(epoch=1, lsn=900, offsets={TOPIC: {0: 7}})])

    def moved() -> bool:
        store.idle()
        return store.lsn == 900

    wait_until(moved)
    assert bench.watermark is not None
    assert (bench.watermark.lsn, bench.watermark.offsets) == (900, {TOPIC: {0: 7}})


def test_an_idle_look_finds_out_that_the_store_was_emptied(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 7, row(1, 6))
    bench.memory.notes.clear()
    bench.view.note_progress([Progress(epoch=1, lsn=900, offsets={TOPIC: {0: 7}})])

    def found() -> object:
        store.idle()
        return store.fault

    assert isinstance(wait_until(found), StoreMoved)


def test_it_is_caught_up_when_it_shows_what_the_start_found(bench: Bench) -> None:
    bench.facts.end = 7
    store = bench.begun()
    assert not store.caught_up
    bench.settle(store, 7, row(1, 6))
    assert store.caught_up


def test_h421_a_store_that_still_begins_has_not_caught_up(bench: Bench) -> None:
    """What the rest of a beginning may find: a table that is gone, settings that the store was not made by."""
    bench.facts.end = 7
    bench.settle(bench.begun(), 7, row(1, 6))
    store, seen = bench.store(), list[bool]()
    bench.on_prepare = lambda: seen.append(store.caught_up)
    for _ in range(2):
        store.run(store.begin)
        assert store.caught_up
    assert seen == [False, False]


def test_h110_a_table_not_looked_at_yet_is_not_level(bench: Bench) -> None:
    """The watch looks every few seconds, and a store begins between two looks."""
    bench.facts.end = 7
    bench.view.note_ends(LogEnds(1.0, {}))
    store = bench.begun()
    assert store.behind() == 7
    bench.settle(store, 7, row(1, 6))
    assert store.behind() == 0
    bench.view.note_ends(LogEnds(2.0, {TOPIC: {0: 9}}))
    assert store.behind() == 2


def test_h110_what_ended_a_query_is_over_with_a_slice(bench: Bench) -> None:
    bench.facts.end = 7
    store = bench.begun()
    figures = bench.metrics.sink("cache")

    def over() -> bool:
        return figures.failing is None

    def over_at_rest() -> bool:
        store.idle()
        return over()

    figures.failing = SinkError("gone")
    bench.settle(store, 7, row(1, 6))
    assert over()
    figures.failing = SinkError("gone")
    wait_until(over_at_rest)


def test_each_beginning_opens_the_store_anew(bench: Bench) -> None:
    store = bench.begun()
    store.run(store.begin)
    assert len(bench.opened) == 2


@pytest.mark.parametrize("brought_down", [False, True])
def test_h67_a_replay_applies_what_is_before_the_parked_event(bench: Bench, brought_down: bool) -> None:
    store = bench.begun()
    bench.settle(store, 7, row(1, 6, status="good"))
    broken = row(1, 7)._replace(value=b'{"before":null,"aft')
    bench.settle(store, 8, broken)
    bench.memory.notes.clear()
    bench.memory.rows.clear()
    again = bench.begun()
    records = records_of(row(1, 6, status="good"), broken)
    events, _ = parse(records)
    if brought_down:
        again.run(lambda: again.settle_events(events.slice(1), Outcome(), at(8), lambda keys: with_keys(events, keys)))
    else:
        again.run(lambda: again.settle(records, at(8)))
    assert bench.status(1) == "good"
    assert [one.offset for one in bench.dead.letters] == [7]
