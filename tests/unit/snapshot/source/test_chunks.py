from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot.source.planned_tables import RANGES_SINCE, Chunk, TableForm, block_count, blocks_per_chunk, table_chunks
from tests.unit.snapshot.source.example_forms import BLOCK, leaf, look

MB = 1024**2


def ranges(table: TableForm, chunk_bytes: int, server_version: int = 180_000) -> list[tuple[int, int, int | None]]:
    found = table_chunks(table, chunk_bytes=chunk_bytes, server_version=server_version)
    return [(chunk.leaf.oid, chunk.low, chunk.high) for chunk in found if chunk.leaf is not None]


@given(
    st.lists(st.integers(0, 5000), max_size=4),
    st.integers(1, 64 * MB),
    st.integers(0, 10**9),
)
def test_ranges_cover_every_block_once_and_the_last_is_open(
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


def test_an_empty_table_is_one_chunk_as_rows_may_come_in_time() -> None:
    assert ranges(look(leaf(1, 0)), MB) == [(1, 0, None)]


def test_a_tree_without_partitions_has_no_chunk() -> None:
    assert ranges(look(), MB) == []


def test_toasted_values_make_chunks_smaller() -> None:
    assert blocks_per_chunk(1000, 1000 * BLOCK, 100 * BLOCK) == 100
    assert blocks_per_chunk(1000, 10_000 * BLOCK, 100 * BLOCK) == 10


def test_a_chunk_has_a_block_at_least() -> None:
    assert blocks_per_chunk(10, 10 * BLOCK, 1) == 1
    assert [blocks_per_chunk(blocks, 0, MB) for blocks in (0, 1, 10)] == [1, 1, 10], "nothing is known of its size"


TEN = leaf(1, 10)


@pytest.mark.parametrize(
    ("chunk", "halves"),
    [
        (Chunk(leaf=TEN, low=2, high=8), [(2, 5), (5, 8)]),
        (Chunk(leaf=TEN, low=2, high=5), [(2, 3), (3, 5)]),
        (Chunk(leaf=TEN, low=2, high=4), [(2, 3), (3, 4)]),
        (Chunk(leaf=TEN, low=2, high=3), []),
        (Chunk(leaf=TEN, low=2), [(2, 6), (6, None)]),
        (Chunk(leaf=TEN, low=9), [(9, 10), (10, None)]),
        (Chunk(leaf=TEN, low=10), [(10, 11), (11, None)]),
        (Chunk(leaf=TEN, low=40), [(40, 41), (41, None)]),
        (Chunk(leaf=replace(TEN, by_range=False)), []),
    ],
)
def test_a_range_is_halved_until_it_is_one_block(chunk: Chunk, halves: list[tuple[int, int | None]]) -> None:
    """How much lies behind the planned end is not known: an open range gives one block of it away at a time."""
    found = chunk.halves()
    assert chunk.divisible == bool(halves)
    assert found == ([Chunk(leaf=chunk.leaf, low=low, high=high) for low, high in halves] or [chunk])


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_handful_of_keys_is_halved_until_it_is_one(count: int) -> None:
    keys = tuple((str(number),) for number in range(count))
    chunk = Chunk(keys=keys)
    found = chunk.halves()
    assert chunk.divisible == (count > 1)
    assert tuple(key for half in found for key in half.keys) == keys
    assert [len(half.keys) for half in found] == ([count // 2, count - count // 2] if count > 1 else [1])


def test_before_14_a_leaf_is_one_chunk_as_ranges_read_it_whole() -> None:
    table = look(leaf(1, 5000), leaf(2, 5000))
    assert ranges(table, MB, server_version=130_020) == [(1, 0, None), (2, 0, None)]
    assert ranges(table, MB, server_version=RANGES_SINCE - 1) == [(1, 0, None), (2, 0, None)]
    assert len(ranges(table, MB, server_version=RANGES_SINCE)) > 2
    assert RANGES_SINCE == 140_000, "the release that reads a range of ctids alone"


def test_a_role_with_column_rights_reads_a_leaf_at_once() -> None:
    table = look(replace(leaf(1, 5000), by_range=False), leaf(2, 5000))
    found = ranges(table, MB)
    assert found[0] == (1, 0, None)
    assert len(found) > 3


def test_an_open_range_counts_to_the_leafs_end() -> None:
    assert block_count(100, 40, 60) == 20
    assert block_count(100, 40, None) == 60
    assert block_count(0, 0, None) == 1
