from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.state import ChunkState, SlotState
from snapshot.first.manifest import Manifest
from snapshot.first.summary import Tally, covered_s, summarise
from snapshot.source.planned_tables import table_chunks
from tests.unit.snapshot.source.example_forms import BLOCK, leaf, look

SECOND = 1_000_000_000


def chunk(number: int, start_s: float = 0, end_s: float = 0, rows: int = 0) -> ChunkState:
    return ChunkState(
        table="public.orders",
        leaf="public.leaf1",
        number=number,
        filenode=1,
        low=0,
        high=None,
        rows=rows,
        started_ns=int(start_s * SECOND),
        finished_ns=int(end_s * SECOND),
    )


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_time_that_several_workers_share_counts_once(spans: list[tuple[int, int]]) -> None:
    chunks = [chunk(n, start, start + length) for n, (start, length) in enumerate(spans)]
    ticks = {tick for start, length in spans for tick in range(start, start + length)}
    assert covered_s(chunks) == len(ticks)


def planned() -> Manifest:
    manifest = Manifest()
    orders = look(leaf(1, 40), name="orders")
    manifest.plan(orders, table_chunks(orders, chunk_bytes=10 * BLOCK, server_version=180_000))
    slot = SlotState(
        epoch=1,
        system_identifier="7",
        timeline=1,
        database="shop",
        database_oid=5,
        slot="s",
        publication="p",
        consistent_point=0x16B3D48,
    )
    manifest.open(slot, ["public.orders"])
    return manifest


def test_the_summary_adds_up_what_the_manifest_has() -> None:
    manifest = planned()
    for place, left in enumerate(manifest.left()[:2]):
        manifest.finish(
            replace(left, rows=100, size_bytes=1000, started_ns=place * SECOND, finished_ns=(place + 2) * SECOND)
        )
    manifest.cut(0x2000000)
    found = summarise(manifest, elapsed_s=9.0, already_complete=False, requests=["orders was rewritten"])
    [orders] = found.tables
    assert (orders.rows, orders.size_bytes, orders.chunks, orders.duration_s) == (200, 2000, 2, 3.0)
    assert orders.rows_per_s == pytest.approx(66.67, abs=0.01)
    document = found.document()
    assert document["consistent_point"] == "0/16B3D48"
    assert document["last_cut_lsn"] == "0/2000000"
    assert document["tables"][0]["rows_per_s"] == 66.7
    assert document["requests"] == ("orders was rewritten",)


def test_there_is_no_summary_before_the_slot() -> None:
    with pytest.raises(ValueError, match="not begun"):
        summarise(Manifest(), elapsed_s=0, already_complete=False, requests=())


def test_progress_counts_blocks_and_reaches_one_at_the_end_only() -> None:
    manifest = planned()
    orders = replace(look(replace(leaf(1, 40), row_estimate=400)), leaves=(replace(leaf(1, 40), row_estimate=400),))
    tally = Tally(manifest, {"public.orders": orders})
    first, *rest = manifest.left()
    assert tally.share("public.orders") == 0
    tally.reading(first, 50)
    assert tally.share("public.orders") == pytest.approx(0.125)
    assert tally.rows("public.orders") == 50
    tally.reading(first, 100_000)
    assert tally.share("public.orders") == 0.99, "the planner's estimate was wrong"
    tally.dropped(first)
    assert tally.share("public.orders") == 0
    for left in (first, *rest):
        assert tally.share("public.orders") < 1
        tally.done(replace(left, rows=100))
    assert tally.share("public.orders") == 1.0
    assert tally.rows("public.orders") == 400


def test_progress_goes_on_from_what_an_earlier_run_read() -> None:
    manifest = planned()
    first, *_ = manifest.left()
    manifest.finish(replace(first, rows=77))
    tally = Tally(manifest, {"public.orders": look(leaf(1, 40))})
    assert tally.rows("public.orders") == 77
    assert tally.share("public.orders") == pytest.approx(0.25)
