"""Joining by tiers writes a row some times at most, however long a table is written to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sinks.delta.delta_files import MANY, TIERS, due_tier


def joined(sizes: list[int], below: int) -> tuple[list[int], int]:
    """What OPTIMIZE makes of files: those below a size in bins of twice that. Returns the bytes it wrote, too."""
    kept, small = [size for size in sizes if size >= below], [size for size in sizes if size < below]
    bins: list[list[int]] = [[]]
    for size in sorted(small):
        if sum(bins[-1]) + size > 2 * below:
            bins.append([])
        bins[-1].append(size)
    return [*kept, *(sum(one) for one in bins if one)], sum(sum(one) for one in bins if len(one) > 1)


@given(st.lists(st.integers(8_000, 3 * 1024**2), min_size=1, max_size=40))
def test_h373_a_byte_is_joined_a_few_times_at_most(drawn: list[int]) -> None:
    sizes, written, rewritten = list[int](), 0, 0
    for number in range(1200):
        size = drawn[number % len(drawn)]
        sizes.append(size)
        written += size
        if number % (MANY + 1) == MANY and (tier := due_tier(("", one) for one in sizes)) is not None:
            sizes, more = joined(sizes, tier.below)
            rewritten += more
    assert rewritten <= 5 * written
    assert sum(size < TIERS[-1] for size in sizes) <= (len(TIERS) + 1) * (MANY + 1)


@given(st.lists(st.integers(0, 64 * 1024**2), max_size=MANY))
def test_few_files_are_left_as_they_are(sizes: list[int]) -> None:
    assert due_tier(("", size) for size in sizes) is None


def test_partitions_are_counted_apart() -> None:
    files = [("a", 1)] * MANY + [("b", 1)] * MANY
    assert due_tier(files) is None
    assert due_tier([*files, ("b", 2)]) == (TIERS[0], ("b",))
