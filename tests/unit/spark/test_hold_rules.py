"""When a held table is tried again, what a watermark says of it, and when it is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import Exit, Retry, SinkError
from cdc.record.progress import Hold, Progress, Watermark
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import CannotCarry
from sinks.contract.table_places import SchemaBook
from spark.records.ports import SinkTopics
from spark.stores.holds import HeldAgain, Holds, claim, make_room
from spark.stores.watermark import Claim, LogEnds, LogView
from tests.unit.spark.doubles import MemoryFacts, orders
from tests.unit.spark.records import TOPIC

OTHER, GONE = "shop.public.others", "shop.public.gone"
FIRST, SECOND = orders(), orders(2, extra=("note",))
BOOK = SchemaBook([FIRST, SECOND, replace(FIRST, table=TableName("public", "others"), topic=OTHER)])
REFUSAL = CannotCarry.because(FIRST.table, "the index is read-only")
WINDOW_S, NOW_MS = 3600.0, 10_000_000
TOPICS = SinkTopics(ids={TOPIC: "a", OTHER: "b"}, partitions={TOPIC: 1, OTHER: 1}, retention_s=WINDOW_S)
HERE = Claim({TOPIC: {0: 5}, OTHER: {0: 5}}, 1.0)
HOLD = Hold(table="public.orders", reason=REFUSAL.message)


@dataclass
class Tries:
    """A store that refuses a table's shape, or fails, and the shapes that it was asked for."""

    failure: Exception | None = REFUSAL
    asked: list[TableSchema] = field(default_factory=list)

    def __call__(self, shape: TableSchema) -> None:
        self.asked.append(shape)
        if self.failure is not None:
            raise self.failure


def refused(clock: ManualClock) -> Holds:
    holds = Holds("cache", clock)
    holds.refuse(REFUSAL, BOOK)
    return holds


def test_h100_each_try_waits_twice_as_long_up_to_ten_minutes() -> None:
    clock, store = ManualClock(0), Tries()
    holds = refused(clock)
    for number, wait_s in enumerate((10, 20, 40, 80, 160, 320, 600, 600)):
        clock.advance(wait_s - 1)
        holds.try_again(store, MemoryFacts())
        assert len(store.asked) == number, "not yet"
        clock.advance(1)
        holds.try_again(store, MemoryFacts())
        assert len(store.asked) == number + 1
    assert set(store.asked) == {SECOND}, "in the newest shape"


def test_h100_a_table_that_the_store_takes_again_ends_the_query() -> None:
    clock = ManualClock(0)
    holds = refused(clock)
    clock.advance(10)
    holds.try_again(Tries(SinkError("away")), MemoryFacts())
    with pytest.raises(HeldAgain, match=r"public\.orders, which cache holds, is tried again") as again:
        holds.try_again(Tries(None), MemoryFacts())
    assert (again.value.exit, again.value.retry) == (Exit.UNAVAILABLE, Retry.NOW)
    assert holds.now == {TOPIC: HOLD}


def test_h100_a_beginning_forgets_the_hold_and_not_the_tries() -> None:
    clock, store = ManualClock(0), Tries()
    holds = refused(clock)
    holds.begin()
    assert holds.now == {}
    clock.advance(1000)
    holds.try_again(store, MemoryFacts())
    assert store.asked == [], "it is not held"
    holds.refuse(REFUSAL, BOOK)
    clock.advance(19)
    holds.try_again(store, MemoryFacts())
    assert store.asked == []
    clock.advance(1)
    holds.try_again(store, MemoryFacts())
    assert store.asked == [SECOND]


def test_only_a_newer_shape_of_a_held_table_is_news() -> None:
    holds = refused(ManualClock(0))
    third = replace(SECOND, version=3)
    assert not holds.outgrown(lambda: [FIRST, SECOND])
    assert not holds.outgrown(lambda: [replace(third, topic=OTHER)])
    assert holds.outgrown(lambda: [FIRST, third])
    holds.begin()
    assert not holds.outgrown(lambda: [FIRST, third])


def test_a_store_that_holds_nothing_asks_for_no_shapes() -> None:
    def shapes() -> Iterable[TableSchema]:
        raise AssertionError("a look at the schema topic for nothing")

    assert not Holds("cache", ManualClock(0)).outgrown(shapes)


def test_a_watermark_speaks_of_its_own_and_of_held_tables_alone() -> None:
    """A table that left the sink's list leaves the watermark too."""
    before = Watermark(
        epoch=1,
        lsn=8,
        offsets={TOPIC: {0: 2}, OTHER: {0: 4}, GONE: {0: 7}},
        held={GONE: Hold(table="public.gone", reason="it was held", since_ms=1)},
    )
    mark = claim(LogView(), before, HERE, TOPICS, {TOPIC: HOLD})
    assert (mark.offsets, mark.held) == ({TOPIC: {0: 2}, OTHER: {0: 5}}, {TOPIC: HOLD})
    assert mark.level_ms == 0


@pytest.mark.parametrize(
    ("before", "since_ms"),
    [
        (None, NOW_MS),
        (Watermark(epoch=1, lsn=8), NOW_MS),
        (Watermark(epoch=1, lsn=8, level_ms=500), 500),
        (Watermark(epoch=1, lsn=8, level_ms=500, held={TOPIC: replace(HOLD, since_ms=400)}), 400),
        (Watermark(epoch=1, lsn=8, level_ms=500, held={TOPIC: HOLD}), NOW_MS),
    ],
)
def test_h60_a_hold_counts_from_when_the_store_was_level(before: Watermark | None, since_ms: int) -> None:
    topics = replace(TOPICS, retention_s=NOW_MS)
    assert claim(LogView(), before, HERE, topics, {TOPIC: HOLD}, NOW_MS).held[TOPIC].since_ms == since_ms


@pytest.mark.parametrize(
    ("lsn", "proven_lsn", "named"), [(0, None, False), (1, None, True), (16, 8, True), (16, 16, False)]
)
def test_a_freed_table_is_named_until_it_shows_the_lsn(lsn: int, proven_lsn: int | None, named: bool) -> None:
    log = LogView()
    if proven_lsn is not None:
        log.note_progress([Progress(epoch=1, lsn=proven_lsn, offsets=HERE.offsets)])
        log.note_ends(LogEnds(1.0, HERE.offsets))
    before = Watermark(epoch=1, lsn=lsn, offsets=HERE.offsets, held={TOPIC: HOLD})
    mark = claim(log, before, HERE, TOPICS, {})
    assert mark.held == ({TOPIC: replace(HOLD, reason="")} if named else {})
    assert mark.lsn == lsn


REKEYED = replace(SECOND, columns=tuple(replace(column, key_position=n) for n, column in enumerate(SECOND.columns, 1)))


@pytest.mark.parametrize("refused", [False, True])
def test_h230_a_table_with_rows_under_a_former_key_is_held(refused: bool) -> None:
    """Until a resnapshot has made a topic that has rows under one key alone."""
    facts = MemoryFacts(keyed_anew=frozenset({TOPIC}) if refused else frozenset())
    sink = MemoryStore().open().sink
    make_room(sink, [SECOND, FIRST], facts)  # its key is the same: nothing to say
    if not refused:
        make_room(sink, [REKEYED, FIRST], facts)
        return
    with pytest.raises(CannotCarry, match=r"public\.orders: its key is another one now") as held:
        make_room(sink, [REKEYED, FIRST], facts)
    assert "resnapshot" in held.value.hint


def test_h230_a_try_asks_for_the_key_as_well() -> None:
    clock, store = ManualClock(0), Tries(None)
    holds = refused(clock)
    facts = MemoryFacts(keyed_anew=frozenset({TOPIC}))
    clock.advance(10)
    holds.try_again(store, facts)
    assert store.asked == []
    facts.keyed_anew = frozenset()
    clock.advance(20)
    with pytest.raises(HeldAgain):
        holds.try_again(store, facts)
