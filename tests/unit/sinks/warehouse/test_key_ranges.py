"""The ranges that a merge looks in: each key of the batch is in one, and wide gaps are in none."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sinks.warehouse.warehouse_spark import MOST, key_ranges, within_ranges

keys = st.lists(
    st.one_of(
        st.integers(0, 10**9).map(str),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        st.uuids().map(str),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        st.uuids().map(str),
    ),
    max_size=80,
)


@given(keys, st.integers(1, MOST))
def test_each_key_is_in_one_range_in_the_order_of_bytes(some: list[str], most: int) -> None:
    ranges = [(low.encode(), high.encode()) for low, high in key_ranges(some, most)]
    assert len(ranges) <= min(most, len(set(some)))
    assert ranges == sorted(ranges)
    assert all(first[1] < second[0] for first, second in pairwise(ranges))
    for key in some:
        assert sum(low <= key.encode() <= high for low, high in ranges) == 1
    assert {end.decode() for pair in ranges for end in pair} <= set(some)


def test_a_few_old_keys_beside_many_new_ones_leave_the_gap_out() -> None:
    old, new = ["17", "2044", "30001"], [str(number) for number in range(900_000, 910_000)]
    ranges = key_ranges(old + new)
    assert ranges[:3] == [("17", "17"), ("2044", "2044"), ("30001", "30001")]
    assert ranges[3][0] == "900000" and ranges[-1][1] == "909999"


def test_what_all_keys_begin_with_does_not_hide_their_gaps() -> None:
    names = [f"customer/eu-central-1/{number:06}" for number in (1, 2, 500_000, 500_001)]
    assert key_ranges(names, most=2) == [(names[0], names[1]), (names[2], names[3])]


def test_the_condition_is_sql_of_spark() -> None:
    assert within_ranges("t.`a`", ["it's"]) == r"t.`a` between 'it\'s' and 'it\'s'"
    assert within_ranges("t.a", ["1", "\\"]) == r"t.a between '1' and '1' or t.a between '\\' and '\\'"
