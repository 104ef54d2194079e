"""A request under way: planned, gone on with after a kill, planned anew when its table is another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.state import RequestState
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.encoding.encoder import compile_table
from snapshot.later.chunk_queue import TooLarge
from snapshot.later.table_reading import (
    MOST_FAILURES,
    MOST_WAIT_S,
    RUNNING,
    RateLimit,
    TableReading,
    forgettable,
    fresh,
    next_reading,
)
from snapshot.source.planned_tables import InspectedTable, LeafForm
from tests.unit.snapshot.source.example_forms import BLOCK, leaf, look

SHAPE = TableSchema(
    table=TableName("public", "orders"),
    topic="shop.public.orders",
    version=1,
    oid=1,
    encoding="readable",
    identity=Identity.DEFAULT,
    deferrable_key=False,
    columns=(Column(name="id", attnum=1, type="integer", type_oid=23, kind="int4", key_position=0),),
)


def seen(*leaves: LeafForm) -> InspectedTable:
    return InspectedTable(form=look(*leaves), schema=SHAPE, condition=None)


def reading(**more: Any) -> TableReading:
    request = RequestState(id="r", table="public.orders", after_lsn=0, reason="asked", serial=7, **more)
    return TableReading(request, fresh(request, 1, 0))


def plan(one: TableReading, *leaves: LeafForm) -> None:
    encoder = compile_table(SHAPE, name="shop", database="shop", masks=NO_MASKS)
    one.plan(seen(*leaves), encoder, window_bytes=4 * BLOCK, server_version=180000)


def test_a_partial_reading_expires_in_an_hour_a_failure_in_a_day() -> None:
    hour_ns = 3600 * 10**9
    chunk = replace(reading(keys=[["1"]]).state, state="done", finished_ns=1)
    assert forgettable([chunk], hour_ns) == []
    assert forgettable([chunk], 2 * hour_ns) == [chunk]
    failed = replace(chunk, state="failed")
    assert forgettable([failed], 23 * hour_ns) == []
    assert forgettable([failed], 25 * hour_ns) == [failed]
    own = replace(chunk, id="snapshot:public.orders")
    lacking = replace(failed, id="snapshot:public.orders:partitions")
    assert forgettable([own, lacking, replace(chunk, state="running")], 100 * hour_ns) == []


def test_parts_that_are_held_are_not_read_again_after_a_kill() -> None:
    first = reading()
    plan(first, leaf(1, 10))
    assert first.chunks is not None
    chunk = first.chunks.take()
    assert chunk is not None
    first.written(Position(1, 80, CHUNK_SEQ))
    first.written(Position(1, 72, CHUNK_SEQ))
    first.done(chunk, 30, 2)
    second = TableReading(first.request, first.state)
    plan(second, leaf(1, 10))
    assert second.chunks is not None
    assert second.chunks.take() != chunk
    assert second.state == first.state
    assert (second.state.rows, second.state.left_out, second.state.state) == (30, 2, RUNNING)
    assert second.state.floor == Position(1, 72, CHUNK_SEQ).text()


def test_a_table_made_anew_is_read_from_its_start_at_a_new_floor() -> None:
    first = reading()
    plan(first, leaf(1, 10))
    assert first.chunks is not None
    chunk = first.chunks.take()
    assert chunk is not None
    first.written(Position(1, 80, CHUNK_SEQ))
    first.done(chunk, 30, 0)
    second = TableReading(first.request, first.state)
    plan(second, leaf(1, 10, filenode=99))
    assert (second.state.floor, second.state.rows) == ("", 0)
    second.written(Position(1, 160, CHUNK_SEQ))
    assert second.state.floor == Position(1, 160, CHUNK_SEQ).text()
    assert second.state.begun == Position(1, 80, CHUNK_SEQ).text(), "what it wrote before is compared as well"
    assert second.chunks is not None
    again = second.chunks.take()
    assert again is not None
    assert again.low == 0
    second.forget(500)
    assert second.state.leaves == []
    assert second.after_lsn == 500


def test_only_the_asked_partitions_are_read() -> None:
    one = reading(leaves=["public.leaf3"])
    plan(one, leaf(2, 1), leaf(3, 1))
    assert one.chunks is not None
    chunks = [one.chunks.take(), one.chunks.take()]
    assert [chunk and chunk.leaf and chunk.leaf.oid for chunk in chunks] == [3, None]
    assert one.partitioned
    assert not one.request.whole


def test_a_table_too_large_to_be_read_at_once_is_refused() -> None:
    whole = LeafForm(
        oid=1, table=TableName("public", "orders"), filenode=1, heap_blocks=1, size_bytes=1 << 30, by_range=False
    )
    with pytest.raises(TooLarge):
        plan(reading(), whole)


def test_rows_are_read_at_a_pace() -> None:
    free, slow = RateLimit(0), RateLimit(100)
    free.took(10**6, 0.0)
    assert free.wait_s(0.0) == 0.0
    slow.took(50, 10.0)
    assert slow.wait_s(10.0) == pytest.approx(0.5)
    slow.took(50, 10.0)
    assert slow.wait_s(10.5) == pytest.approx(0.5)
    assert slow.wait_s(12.0) == 0.0
    slow.took(100, 20.0)
    assert slow.wait_s(20.0) == pytest.approx(1.0)


def test_a_small_request_goes_between_the_parts_of_large_ones() -> None:
    """The next free reader is for the request with the fewest, then for the one that has waited longest."""
    large, other, small = reading(), reading(), reading(keys=[["1"]])
    for one in (large, other):
        one.ready = True
    given = []
    for turn in range(1, 9):
        small.ready = turn == 5
        chosen = next_reading([large, other, small])
        assert chosen is not None
        chosen.turn = turn
        given.append(chosen)
    assert given[4] is small
    assert small.small
    assert not large.small
    assert given[:4] == [large, other, large, other]
    large.out = 1
    assert next_reading([large, other]) is other
    large.ready = other.ready = small.ready = False
    assert next_reading([large, other, small]) is None


def test_a_failure_is_retried_later_and_later_then_no_more() -> None:
    one = reading()
    plan(one, leaf(1, 10))
    waits = []
    while one.failed(100.0):
        waits.append(one.not_before_s - 100.0)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert len(waits) == MOST_FAILURES
    assert one.not_before_s - 100.0 <= MOST_WAIT_S
    assert one.chunks is not None
    chunk = one.chunks.take()
    assert chunk is not None
    one.done(chunk, 1, 0)
    assert one.failures == 0
