"""The chunks of a reading: given out in order, taken back in any, never one forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.topic_names import TableName
from snapshot.later.chunk_queue import KEYS_PER_CHUNK, ChunkQueue, TooLarge
from snapshot.source.planned_tables import Chunk, LeafForm

BLOCK = 8192


def leaf(oid: int, blocks: int, *, by_range: bool = True, size_bytes: int | None = None) -> LeafForm:
    size = blocks * BLOCK if size_bytes is None else size_bytes
    name = TableName("public", f"t{oid}")
    return LeafForm(oid=oid, table=name, filenode=oid, heap_blocks=blocks, size_bytes=size, by_range=by_range)


def chunks(*leaves: LeafForm, window_blocks: int = 4, done: dict[int, int | None] | None = None) -> ChunkQueue:
    return ChunkQueue(leaves, window_bytes=window_blocks * BLOCK, server_version=180000, done=done)


def covered(read: list[Chunk], blocks: int) -> bool:
    """Whether every block up to far behind the planned end lies in one part or another."""
    ends = [(chunk.low, blocks + 100 if chunk.high is None else chunk.high) for chunk in read]
    return all(any(low <= block < high for low, high in ends) for block in range(blocks + 100))


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    window_blocks=st.integers(1, 8),
    choices=st.lists(st.integers(0, 9), max_size=60),
)
def test_every_block_is_read_whatever_comes_back_when(sizes: list[int], window_blocks: int, choices: list[int]) -> None:
    """0-5: one of those out is done; 6, 7: again; 8, 9: the process is killed and goes on from what was noted."""
    leaves = [leaf(oid, blocks) for oid, blocks in enumerate(sizes, 1)]
    todo = chunks(*leaves, window_blocks=window_blocks)
    read: dict[int, list[Chunk]] = {oid: [] for oid in range(1, len(sizes) + 1)}
    out: list[Chunk] = []
    left = list(choices)
    while todo.left:
        chunk = todo.take()
        if chunk is not None:
            out.append(chunk)
        if chunk is not None and len(out) < 3:
            continue
        choice = left.pop() if left else 0
        if choice >= 8:
            noted = {entry["oid"]: entry["next"] for entry in todo.progress()}
            todo, out = chunks(*leaves, window_blocks=window_blocks, done=noted), []
            continue
        back = out.pop(choice % len(out))
        if choice >= 6:
            todo.put_back(back, smaller=choice == 7)
        else:
            assert back.leaf is not None
            read[back.leaf.oid].append(back)
            todo.done(back)
    assert todo.share == 1.0
    assert all(covered(read[oid], blocks) for oid, blocks in enumerate(sizes, 1))


def test_keys_are_read_in_handfuls() -> None:
    keys = [[str(number)] for number in range(KEYS_PER_CHUNK + 1)]
    todo = ChunkQueue([], keys=keys, window_bytes=1, server_version=180000)
    first, second = todo.take(), todo.take()
    assert first is not None
    assert second is not None
    assert (len(first.keys), second.keys, todo.take()) == (KEYS_PER_CHUNK, ((str(KEYS_PER_CHUNK),),), None)
    todo.done(first)
    todo.put_back(second, smaller=True)
    assert todo.take() == second
    todo.done(second)
    assert not todo.left


def test_a_leaf_without_ranges_is_read_at_once_or_refused() -> None:
    small = chunks(leaf(1, 100, by_range=False))
    assert small.take() == Chunk(leaf=leaf(1, 100, by_range=False))
    largest = leaf(1, 100, by_range=False, size_bytes=64 * 1024**2)
    assert chunks(largest).take() == Chunk(leaf=largest)
    by_range = leaf(1, 100, size_bytes=64 * 1024**2 + 1)
    assert chunks(by_range).take() == Chunk(leaf=by_range, high=1)
    with pytest.raises(TooLarge, match=r"public\.t1"):
        chunks(leaf(1, 100, by_range=False, size_bytes=64 * 1024**2 + 1))


def test_h86_a_whole_table_without_partitions_is_one_part() -> None:
    todo = ChunkQueue([], window_bytes=1, server_version=180000, whole=True)
    only = todo.take()
    assert (only, todo.take(), todo.left, todo.share) == (Chunk(), None, True, 0.0)
    assert only is not None
    todo.put_back(only)
    assert todo.take() == only
    todo.done(only)
    assert (todo.left, todo.share, todo.progress()) == (False, 1.0, [])
    assert not ChunkQueue([], window_bytes=1, server_version=180000).left, "of a partition alone, which is gone"


def test_the_share_is_whole_only_at_the_end() -> None:
    todo = chunks(leaf(1, 8), leaf(2, 0))
    assert todo.share == 0.0
    for _ in range(2):
        chunk = todo.take()
        assert chunk is not None
        todo.done(chunk)
    assert 0.8 < todo.share < 1.0
    last = todo.take()
    assert last == Chunk(leaf=leaf(2, 0))
    assert last is not None
    todo.done(last)
    assert todo.share == 1.0


def test_the_share_is_that_of_blocks_and_a_leaf_has_one() -> None:
    """An empty one takes a query, too."""
    todo = chunks(leaf(1, 8), leaf(2, 0), leaf(3, 3))
    shares = []
    while (chunk := todo.take()) is not None:
        todo.done(chunk)
        shares.append(todo.share)
    assert shares == [pytest.approx(done / 12) for done in (4, 8, 9, 12)]


def test_the_share_is_not_whole_while_rows_may_lie_behind() -> None:
    todo = chunks(leaf(1, 2))
    first = todo.take()
    assert first is not None
    todo.put_back(first, smaller=True)
    block, rest = todo.take(), todo.take()
    assert block is not None
    assert rest is not None
    todo.done(block)
    todo.put_back(rest, smaller=True)
    second, behind = todo.take(), todo.take()
    assert second is not None
    todo.done(second)
    assert behind == Chunk(leaf=leaf(1, 2), low=2)
    assert (todo.left, todo.share) == (True, 0.999)


def test_a_chunk_that_is_put_back_is_left_and_comes_first() -> None:
    todo = chunks(leaf(1, 8))
    first = todo.take()
    assert first is not None
    todo.put_back(first)
    assert todo.take() == first
    assert ChunkQueue([], keys=[["1"]], window_bytes=1, server_version=180000).left, "of keys none was given out"
