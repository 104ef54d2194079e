"""A table that is none of a store's for a while, and is named again: its rows have stood there all the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc.progress import LeftTable, Watermark
from sinks.generations import lower
from spark.source import EARLIEST
from spark.store_thread import Store
from spark.watermark import LogEnds, LogView
from tests.unit.spark.records import TOPIC
from tests.unit.spark.test_holds import ORDERS, OTHER, OTHERS, Bench, row

DAY_S = 86_400
ID = f"id of {TOPIC}"
NAMES = [f"shop.public.t{number}" for number in range(12)]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}, OTHER: {0: 0}}))
    made.facts.retention_s = 7.0 * DAY_S
    made.clock.advance(DAY_S)
    yield made
    for store in made.stores:
        store.end()


def left_behind(bench: Bench) -> int:
    """A store of two tables that is fed with one alone from now on. Returns when it last had both, in ms."""
    bench.progress(16, 1, 1)
    bench.settle(bench.begun(), 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    assert (bench.mark.lsn, bench.mark.left) == (16, {})
    level_ms = bench.mark.level_ms
    bench.facts.captured = (OTHER,)
    others_alone(bench, 2)
    return level_ms


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


def test_h479_a_table_left_for_longer_than_deletes_is_held(bench: Bench) -> None:
    level_ms = left_behind(bench)
    others_alone(bench, 3)
    others_alone(bench, 4)
    assert bench.mark.left == {TOPIC: LeftTable(topic_id=ID)}
    assert bench.mark.left[TOPIC].since_ms == level_ms
    assert (bench.mark.lsn, bench.mark.held) == (32, {})
    bench.facts.captured = (TOPIC, OTHER)
    store = bench.begun()
    assert (store.starts, bench.gauge()) == ({OTHER: {0: 4}}, 1)
    bench.settle(store, 5, 5, row(4, 3), row(5, 4, topic=OTHER))
    held = bench.mark.held[TOPIC]
    assert "public.orders: it has waited for longer than the 168 h" in held.reason
    assert held.sentence("cache").endswith("cdc rebuild cache")
    assert (bench.keys(ORDERS), bench.keys(OTHERS)) == (["1"], ["1", "2", "3", "4", "5"])
    again = bench.begun()
    assert again.starts == {OTHER: {0: 5}}, "and it stays held"
    assert TOPIC in bench.mark.left


def test_h479_within_that_time_it_is_read_from_the_beginning(bench: Bench) -> None:
    left_behind(bench)
    store = named_again(bench)
    assert TOPIC in store.starts
    bench.settle(store, 1, 2, row(1, 0))
    assert (bench.mark.lsn, list(bench.mark.left)) == (0, [TOPIC]), "it lacks rows"
    bench.progress(64, 3, 3)
    bench.settle(store, 3, 3, row(2, 2))
    assert (bench.mark.lsn, bench.mark.left, bench.mark.held) == (64, {}, {})


def test_h479_one_left_again_early_counts_from_the_first(bench: Bench) -> None:
    level_ms = left_behind(bench)
    bench.settle(named_again(bench), 1, 2, row(1, 0))
    bench.facts.captured = (OTHER,)
    others_alone(bench, 3)
    assert bench.mark.left[TOPIC].since_ms == level_ms


def test_h479_a_topic_made_anew_meanwhile_is_not_gone_on_with(bench: Bench) -> None:
    left_behind(bench)
    mark = replace(bench.mark, left={TOPIC: replace(bench.mark.left[TOPIC], topic_id="another")})
    bench.memory.open().watermarks.write(mark)
    bench.facts.captured = (TOPIC, OTHER)
    store = bench.begun()
    assert store.starts == {OTHER: {0: 2}}
    bench.settle(store, 3, 3)
    assert "public.orders: its topic was made anew while it was none of" in bench.mark.held[TOPIC].reason


def test_h479_a_watermark_keeps_what_it_knows_of_left_tables() -> None:
    mark = Watermark(epoch=1, lsn=8, offsets={OTHER: {0: 1}}, left={TOPIC: LeftTable(topic_id=ID, since_ms=5)})
    read = Watermark.from_json(mark.to_json())
    assert (read, read.left[TOPIC].since_ms) == (mark, 5)
    assert b"left" not in Watermark(epoch=1, lsn=8).to_json()
    assert lower(replace(mark, left={}), mark).left == mark.left


@pytest.mark.parametrize("killed", [True, False])
def test_h503_a_forgotten_watermark_keeps_the_left_tables(bench: Bench, killed: bool) -> None:
    """The place of another table went, so that nothing is claimed. The rows of the left one stand as they did."""
    level_ms = left_behind(bench)
    del bench.memory.rows[OTHERS]
    store = bench.begun()
    assert (bench.mark.lsn, bench.mark.offsets, bench.mark.left[TOPIC].since_ms) == (0, {}, level_ms)
    assert OTHER not in bench.mark.left, "it has no row that could be old"
    if not killed:
        bench.settle(store, 1, 2, row(1, 0, topic=OTHER), row(2, 1, topic=OTHER))
    bench.clock.advance(6 * DAY_S)
    stays_held(bench)


def test_h503_fed_tables_beside_one_that_went_are_as_old(bench: Bench) -> None:
    """The sink was killed once nothing was claimed any more, and begins a week later."""
    bench.progress(16, 1, 1)
    bench.settle(bench.begun(), 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    del bench.memory.rows[OTHERS]
    bench.begun()
    assert list(bench.mark.left) == [TOPIC]
    bench.clock.advance(8 * DAY_S)
    stays_held(bench)


def stays_held(bench: Bench) -> None:
    """The table may have missed deletes: its row is claimed by no LSN."""
    bench.facts.captured = (TOPIC, OTHER)
    store = bench.begun()
    assert store.starts.keys() == {OTHER}
    bench.progress(64, 9, 3)
    bench.view.note_ends(LogEnds(2.0, {TOPIC: {0: 9}, OTHER: {0: 3}}))
    bench.settle(store, 9, 3, row(3, 2, topic=OTHER))
    assert (bench.keys(ORDERS), bench.mark.lsn) == (["1"], 64)
    assert "may have missed some" in bench.mark.held[TOPIC].reason


def test_h503_tables_that_are_fed_within_that_time_are_read_anew(bench: Bench) -> None:
    bench.progress(16, 1, 1)
    bench.settle(bench.begun(), 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    del bench.memory.rows[OTHERS]
    store = bench.begun()
    assert store.starts == {TOPIC: {0: EARLIEST}, OTHER: {0: EARLIEST}}
    bench.settle(store, 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    assert (bench.mark.lsn, bench.mark.left, bench.mark.held) == (16, {}, {})


def test_h503_a_table_that_goes_later_is_old_no_more(bench: Bench) -> None:
    bench.settle(bench.begun(), 1, 1, row(1, 0), row(1, 0, topic=OTHER))
    del bench.memory.rows[OTHERS]
    bench.begun()
    del bench.memory.rows[ORDERS]
    bench.begun()
    assert bench.memory.open().watermarks.read() is None
