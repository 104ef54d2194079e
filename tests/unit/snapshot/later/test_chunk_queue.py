"""Parts of a re-read: given out in order, taken back in any, never one forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.topic import TableName
from snapshot.chunks import Chunk
from snapshot.forms import LeafLook
from snapshot.later.chunk_queue import KEYS_PER_PART, UNRANGED_BYTES, Parts, TooLarge

BLOCK = 8192


def leaf(oid: int, blocks: int, *, by_range: bool = True, size_bytes: int | None = None) -> LeafLook:
    size = blocks * BLOCK if size_bytes is None else size_bytes
    name = TableName("public", f"t{oid}")
    return LeafLook(oid=oid, table=name, filenode=oid, heap_blocks=blocks, size_bytes=size, by_range=by_range)


def parts(*leaves: LeafLook, window_blocks: int = 4, done: dict[int, int | None] | None = None) -> Parts:
    return Parts(leaves, window_bytes=window_blocks * BLOCK, server_version=180000, done=done)


def covered(read: list[Chunk], blocks: int) -> bool:
    """Whether every block up to far behind the planned end lies in one part or another."""
    ends = [(part.low, blocks + 100 if part.high is None else part.high) for part in read]
    return all(any(low <= block < high for low, high in ends) for block in range(blocks + 100))


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    window_blocks=st.integers(1, 8),
    choices=st.lists(st.integers(0, 9), max_size=60),
)
def test_every_block_is_read_whatever_comes_back_when(sizes: list[int], window_blocks: int, choices: list[int]) -> None:
    """0-5: one of those out is done; 6, 7: again; 8, 9: the process is killed and goes on from what was noted."""
    leaves = [leaf(oid, blocks) for oid, blocks in enumerate(sizes, 1)]
    todo = parts(*leaves, window_blocks=window_blocks)
    read: dict[int, list[Chunk]] = {oid: [] for oid in range(1, len(sizes) + 1)}
    out: list[Chunk] = []
    left = list(choices)
    while todo.left:
        part = todo.take()
        if part is not None:
            out.append(part)
        if part is not None and len(out) < 3:
            continue
        choice = left.pop() if left else 0
        if choice >= 8:
            noted = {entry["oid"]: entry["next"] for entry in todo.progress()}
            todo, out = parts(*leaves, window_blocks=window_blocks, done=noted), []
            continue
        back = out.pop(choice % len(out))
        if choice >= 6:
            todo.again(back, smaller=choice == 7)
        else:
            assert back.leaf is not None
            read[back.leaf.oid].append(back)
            todo.done(back)
    assert todo.share == 1.0
    assert all(covered(read[oid], blocks) for oid, blocks in enumerate(sizes, 1))


def test_keys_are_read_in_handfuls() -> None:
    keys = [[str(number)] for number in range(KEYS_PER_PART + 1)]
    todo = Parts([], keys=keys, window_bytes=1, server_version=180000)
    first, second = todo.take(), todo.take()
    assert first is not None
    assert second is not None
    assert (len(first.keys), second.keys, todo.take()) == (KEYS_PER_PART, ((str(KEYS_PER_PART),),), None)
    todo.done(first)
    todo.again(second, smaller=True)
    assert todo.take() == second
    todo.done(second)
    assert not todo.left


def test_a_leaf_without_ranges_is_read_at_once_or_refused() -> None:
    small = parts(leaf(1, 100, by_range=False))
    assert small.take() == Chunk(leaf=leaf(1, 100, by_range=False))
    with pytest.raises(TooLarge, match=r"public\.t1"):
        parts(leaf(1, 100, by_range=False, size_bytes=UNRANGED_BYTES + 1))


def test_h86_that_a_whole_table_has_no_partition_is_a_part_of_its_own() -> None:
    todo = Parts([], window_bytes=1, server_version=180000, whole=True)
    only = todo.take()
    assert (only, todo.take(), todo.left, todo.share) == (Chunk(), None, True, 0.0)
    assert only is not None
    todo.again(only)
    assert todo.take() == only
    todo.done(only)
    assert (todo.left, todo.share, todo.progress()) == (False, 1.0, [])
    assert not Parts([], window_bytes=1, server_version=180000).left, "of a partition alone, which is gone"


def test_the_share_is_whole_only_at_the_end() -> None:
    todo = parts(leaf(1, 8), leaf(2, 0))
    assert todo.share == 0.0
    for _ in range(2):
        part = todo.take()
        assert part is not None
        todo.done(part)
    assert 0.8 < todo.share < 1.0
    last = todo.take()
    assert last == Chunk(leaf=leaf(2, 0))
    assert last is not None
    todo.done(last)
    assert todo.share == 1.0
