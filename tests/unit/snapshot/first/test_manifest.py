from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.state import ChunkState, SlotIntent, SlotState
from snapshot.first.manifest import COMPLETE, DONE, Manifest, Records
from snapshot.source.planned_tables import TableForm, form_change, table_chunks
from tests.memory_log import MemoryCompactedTopic
from tests.unit.snapshot.source.example_forms import leaf, look

SLOT = SlotState(
    epoch=1,
    system_identifier="7",
    timeline=1,
    database="shop",
    database_oid=5,
    slot="cdc_shop",
    publication="cdc_shop",
    consistent_point=1000,
)
INTENT = SlotIntent(epoch=1, system_identifier="7", database="shop", slot="cdc_shop")


def plan(manifest: Manifest, table: TableForm, chunks: int) -> Records:
    blocks = sum(part.heap_blocks for part in table.leaves)
    size = max(sum(part.size_bytes for part in table.leaves), 1)
    ranges = list(table_chunks(table, chunk_bytes=max(size // chunks, size // max(blocks, 1)), server_version=180_000))
    assert len(ranges) >= chunks or not blocks
    return manifest.plan(table, ranges)


def read(chunk: ChunkState, rows: int = 10) -> ChunkState:
    return replace(chunk, rows=rows, size_bytes=rows * 100, started_ns=1, finished_ns=2)


def begun(*tables: TableForm, chunks: int = 4) -> tuple[Manifest, MemoryCompactedTopic]:
    manifest, topic = Manifest(), MemoryCompactedTopic()
    for table in tables:
        topic.write(plan(manifest, table, chunks))
    topic.write(manifest.open(SLOT, [str(table.table) for table in tables]))
    return manifest, topic


ORDERS = look(leaf(1, 40), name="orders", oid=1)
ITEMS = look(leaf(2, 20), leaf(3, 20), name="items", oid=9)


def test_what_was_written_is_what_is_read() -> None:
    manifest, topic = begun(ORDERS, ITEMS)
    again = Manifest(topic.read())
    assert again.left() == manifest.left()
    assert again.tables() == ["public.orders", "public.items"]
    assert again.slot == SLOT
    assert again.head == manifest.head
    assert not again.complete


def test_h20_finished_chunks_stay_and_the_rest_is_left() -> None:
    manifest, topic = begun(ORDERS)
    first, *rest = manifest.left()
    topic.write(manifest.finish(read(first)))
    again = Manifest(topic.read())
    assert again.left() == rest
    assert [chunk.rows for chunk in again.chunks("public.orders") if chunk.state == DONE] == [10]


def test_the_last_record_says_complete_with_the_sums() -> None:
    manifest, topic = begun(ORDERS, ITEMS)
    for chunk in manifest.left():
        topic.write(manifest.finish(read(chunk, rows=3)))
    topic.write(manifest.cut(5000))
    topic.write(manifest.close())
    again = Manifest(topic.read())
    assert again.complete
    assert again.head is not None
    assert again.head.rows == 3 * (len(again.chunks("public.orders")) + len(again.chunks("public.items")))
    assert again.head.last_cut_lsn == 5000, "the stores are whole once the stream has passed the last cut"
    assert again.head.consistent_point == SLOT.consistent_point


def test_a_later_cut_never_moves_the_lsn_back() -> None:
    manifest, _ = begun(ORDERS)
    manifest.cut(5000)
    manifest.cut(4000)
    assert manifest.head is not None
    assert manifest.head.last_cut_lsn == 5000


def test_h71_a_new_plan_voids_the_chunks_of_the_one_before() -> None:
    manifest, topic = begun(ORDERS, chunks=4)
    old = manifest.left()
    topic.write(manifest.finish(read(old[0])))
    rewritten = look(leaf(1, 20, filenode=99), name="orders", oid=1)
    topic.write(plan(manifest, rewritten, 2))
    assert manifest.finish(read(old[1])) == [], "a chunk of the old file came home late"
    again = Manifest(topic.read())
    assert again.left() == manifest.left()
    assert {chunk.filenode for chunk in again.left()} == {99}
    assert len(again.left()) == 2
    form = again.form("public.orders")
    assert form is not None
    assert form_change(form, rewritten) is None
    assert form_change(form, ORDERS) is not None


def test_a_table_that_is_gone_leaves_nothing_to_read() -> None:
    manifest, topic = begun(ORDERS, ITEMS)
    topic.write(manifest.give_up("public.orders"))
    again = Manifest(topic.read())
    assert {chunk.table for chunk in again.left()} == {"public.items"}
    state = again.table("public.orders")
    assert state is not None
    assert state.gone


def test_the_head_needs_the_slot() -> None:
    with pytest.raises(ValueError, match="no slot"):
        Manifest().cut(1)


@given(st.data(), st.integers(1, 6), st.integers(1, 6), st.integers(0, 6))
def test_a_crash_within_a_new_plan_leaves_no_partial_plan(
    data: st.DataObject, before: int, after: int, done: int
) -> None:
    """Whatever part of the records arrived: each plan that counts is whole, all of one generation."""
    manifest, topic = begun(ORDERS, chunks=before)
    for chunk in manifest.left()[:done]:
        topic.write(manifest.finish(read(chunk)))
    rewritten = look(leaf(1, 40, filenode=99), leaf(4, 8, filenode=100), name="orders", oid=1)
    records = plan(manifest, rewritten, after)
    arrived = data.draw(st.integers(0, len(records)))
    topic.write(records[:arrived])

    again = Manifest(topic.read())
    state = again.table("public.orders")
    if state is None:
        topic.write(plan(again, rewritten, after))
        state = again.table("public.orders")
    assert state is not None
    chunks = again.chunks("public.orders")
    assert [chunk.number for chunk in chunks] == list(range(1, state.chunks + 1))
    assert {chunk.generation for chunk in chunks} == {state.generation}
    files = {part["filenode"] for part in state.leaves}
    assert {chunk.filenode for chunk in chunks} == files
    for node in files:
        mine = sorted((chunk for chunk in chunks if chunk.filenode == node), key=lambda chunk: chunk.low)
        assert mine[0].low == 0
        assert mine[-1].high is None
        assert all(one.high == two.low for one, two in itertools.pairwise(mine))
    if 99 in files:
        assert all(chunk.state != DONE for chunk in chunks), "nothing of the new file has been read"


def test_complete_is_a_word_of_the_head_alone() -> None:
    manifest, topic = begun(ORDERS)
    topic.write(manifest.cut(0, state=COMPLETE))
    assert Manifest(topic.read()).complete
