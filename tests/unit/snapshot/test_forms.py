from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdc.topic import TableName
from snapshot.forms import (
    Sizing,
    TableLook,
    block_count,
    block_ranges,
    blocks_per_chunk,
    form_change,
    largest_first,
)
from tests.unit.snapshot.example_forms import BLOCK, leaf, look

MB = 1024**2


def ranges(table: TableLook, chunk_bytes: int, server_version: int = 180_000) -> list[tuple[int, int, int | None]]:
    found = block_ranges(table, chunk_bytes=chunk_bytes, server_version=server_version)
    return [(cut.leaf.oid, cut.low, cut.high) for cut in found]


@given(
    st.lists(st.integers(0, 5000), max_size=4),
    st.integers(1, 64 * MB),
    st.integers(0, 10**9),
)
def test_ranges_cover_every_block_once_and_the_last_one_has_no_end(
    sizes: Sequence[int], chunk_bytes: int, toast_bytes: int
) -> None:
    table = look(*(leaf(oid, blocks, toast_bytes=toast_bytes) for oid, blocks in enumerate(sizes, start=1)))
    found = ranges(table, chunk_bytes)
    for oid, blocks in enumerate(sizes, start=1):
        mine = [(low, high) for leaf_oid, low, high in found if leaf_oid == oid]
        assert mine[0][0] == 0
        assert mine[-1][1] is None
        assert all(high == low for (_, high), (low, _) in itertools.pairwise(mine))
        assert all(high is None or low < high for low, high in mine)
        assert mine[-1][0] < max(blocks, 1)


def test_an_empty_table_is_one_chunk_because_rows_may_come_before_the_cut() -> None:
    assert ranges(look(leaf(1, 0)), MB) == [(1, 0, None)]


def test_a_tree_without_partitions_has_no_chunk() -> None:
    assert ranges(look(), MB) == []


def test_toasted_values_make_chunks_smaller() -> None:
    assert blocks_per_chunk(1000, 1000 * BLOCK, 100 * BLOCK) == 100
    assert blocks_per_chunk(1000, 10_000 * BLOCK, 100 * BLOCK) == 10


def test_before_14_a_leaf_is_one_chunk_because_every_range_would_read_it_whole() -> None:
    table = look(leaf(1, 5000), leaf(2, 5000))
    assert ranges(table, MB, server_version=130_020) == [(1, 0, None), (2, 0, None)]
    assert len(ranges(table, MB, server_version=140_000)) > 2


def test_a_role_with_rights_on_columns_alone_reads_a_leaf_at_once() -> None:
    table = look(replace(leaf(1, 5000), by_range=False), leaf(2, 5000))
    found = ranges(table, MB)
    assert found[0] == (1, 0, None)
    assert len(found) > 3


def test_chunks_are_small_enough_that_no_worker_idles_at_the_end_and_no_smaller() -> None:
    sizing = Sizing(workers=2, most_bytes=64 * MB, server_version=180_000)
    assert sizing.chunk_bytes(80 * MB) == 5 * MB
    assert sizing.chunk_bytes(100_000 * MB) == 64 * MB
    assert sizing.chunk_bytes(0) == 4 * MB
    assert Sizing(workers=2, most_bytes=8192, server_version=180_000).chunk_bytes(0) == 8192


def test_h71_a_change_that_no_event_tells_is_seen_in_the_form() -> None:
    planned = look(leaf(1, 10), leaf(2, 10))
    assert form_change(planned, look(leaf(2, 99), leaf(1, 0))) is None, "sizes and order say nothing"
    assert form_change(planned, look(leaf(1, 10), leaf(2, 10, filenode=77))) == "was rewritten or truncated"
    assert form_change(planned, look(leaf(1, 10))) == "has other partitions now"
    assert form_change(planned, look(leaf(1, 10), leaf(2, 10), leaf(3, 1))) == "has other partitions now"
    assert form_change(planned, replace(planned, oid=9)) == "was dropped and made anew"
    assert form_change(planned, replace(planned, version=2)) == "has other columns now"
    renamed = replace(leaf(2, 10), table=TableName("public", "leaf2_old"))
    assert form_change(planned, look(leaf(1, 10), renamed)) == "has renamed partitions now"


def test_big_tables_are_read_first() -> None:
    small, large, equal = look(leaf(1, 1), name="b"), look(leaf(2, 9), name="c"), look(leaf(3, 1), name="a")
    assert largest_first([small, large, equal]) == [large, equal, small]


def test_an_open_range_counts_to_the_leafs_end() -> None:
    assert block_count(100, 40, 60) == 20
    assert block_count(100, 40, None) == 60
    assert block_count(0, 0, None) == 1
