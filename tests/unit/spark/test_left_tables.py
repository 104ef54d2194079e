"""A table that is none of a store's for a while, and is named again: its rows have stood there all the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sinks.contract.table_places import TablePlace
from spark.records.source import EARLIEST
from spark.stores.store_thread import Store
from spark.stores.watermark import LogEnds, LogView
from tests.unit.spark.records import TOPIC
from tests.unit.spark.test_holds import ORDERS, OTHER, OTHERS, Bench, row

DAY_S = 86_400


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}, OTHER: {0: 0}}))
    made.facts.retention_s = 7.0 * DAY_S
    made.clock.advance(DAY_S)
    yield made
    for store in made.stores:
        store.end()


def left_behind(bench: Bench) -> None:
    """A store of two tables that is fed with one alone from now on."""
    bench.progress(16, 1, 1)
    bench.settle(bench.begun(), 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    assert bench.mark.lsn == 16
    bench.facts.captured = (OTHER,)
    others_alone(bench, 2)


def named_again(bench: Bench) -> Store:
    """Both tables once more, of which the log holds three records."""
    bench.view = LogView()
    bench.view.note_ends(LogEnds(1.0, {TOPIC: {0: 3}, OTHER: {0: 2}}))
    bench.facts.captured = (TOPIC, OTHER)
    return bench.begun()


def others_alone(bench: Bench, end: int) -> None:
    bench.clock.advance(3 * DAY_S)
    bench.progress(8 * end, end, end)
    bench.settle(bench.begun(), 1, end, row(end, end - 1, topic=OTHER))


def test_h479_a_table_left_for_too_long_is_filled_anew(bench: Bench) -> None:
    left_behind(bench)
    others_alone(bench, 3)
    others_alone(bench, 4)
    assert (bench.mark.lsn, bench.mark.held, list(bench.mark.offsets)) == (32, {}, [OTHER])
    bench.facts.captured = (TOPIC, OTHER)
    store = bench.begun()
    assert store.starts == {TOPIC: {0: EARLIEST}, OTHER: {0: 4}}
    assert bench.keys(ORDERS) == [], "its rows may be some that were deleted meanwhile"
    bench.settle(store, 4, 5, row(4, 3), row(5, 4, topic=OTHER))
    assert (bench.keys(ORDERS), bench.keys(OTHERS)) == (["4"], ["1", "2", "3", "4", "5"])


def test_h479_within_that_time_it_is_read_from_the_beginning(bench: Bench) -> None:
    left_behind(bench)
    store = named_again(bench)
    assert store.starts[TOPIC] == {0: EARLIEST}
    assert bench.keys(ORDERS) == ["1"]
    bench.settle(store, 1, 2, row(1, 0))
    assert bench.mark.lsn == 0, "it lacks rows"
    bench.progress(64, 3, 3)
    bench.settle(store, 3, 3, row(2, 2))
    assert (bench.mark.lsn, bench.mark.held) == (64, {})


def test_h479_a_topic_made_anew_meanwhile_fills_it_anew(bench: Bench) -> None:
    left_behind(bench)
    place = TablePlace(topic_id="another", offsets={0: 1}, level_ms=bench.clock.now_ns() // 1_000_000)
    bench.memory.places[ORDERS] = place.to_json()
    assert named_again(bench).starts[TOPIC] == {0: EARLIEST}
    assert bench.keys(ORDERS) == []


def test_h503_tables_beside_one_that_went_are_claimed_as_before(bench: Bench) -> None:
    bench.progress(16, 1, 1)
    bench.settle(bench.begun(), 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    del bench.memory.rows[OTHERS]
    store = bench.begun()
    assert store.starts == {TOPIC: {0: 1}, OTHER: {0: EARLIEST}}
    assert (bench.mark.lsn, bench.mark.offsets, list(bench.mark.held)) == (16, {TOPIC: {0: 1}}, [OTHER])
    bench.settle(store, 1, 1, row(1, 0, topic=OTHER))
    assert (bench.mark.lsn, bench.mark.held) == (16, {})
