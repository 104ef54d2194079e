"""Records as a reader of the log hands them over: stretches of a partition, and lots that are cut."""

from __future__ import annotations

import pytest

from cdc.wire.records import BEGINNING, RecordColumns, Span, numbered_by_slice, split_headers

FOREIGN = (("x", b"yy"), ("z", None))
LOT = RecordColumns(
    topic="shop.public.orders",
    partition=3,
    offsets=[10, 11, 14, 15],
    times_ms=[1, 2, 3, 4],
    keys=[b"a", None, b"c", b"dd"],
    values=[b"1", b"22", None, b""],
    pos=[b"p0", b"p1", None, b"p3"],
    op=[b"c", b"u", None, b"d"],
    ver=[b"1", b"1", None, b"2"],
    headers={0: FOREIGN, 2: (("x", None),)},
    at=[None, b"5", None, b"6"],
)


@pytest.mark.parametrize(
    ("start", "end", "most"),
    [(3, 10, 7), (0, 10, 10), (10, 10, 0), (11, 10, 0), (BEGINNING, 10, 10), (BEGINNING, 0, 0)],
)
def test_a_span_has_as_many_records_as_offsets_at_most(start: int, end: int, most: int) -> None:
    """From its beginning on, a partition may have a record at each offset from 0."""
    assert Span("t", 0, start, end).most_records == most


def test_a_part_of_a_lot_has_its_records_with_all_of_theirs() -> None:
    part = LOT.part(1, 3)
    assert (part.topic, part.partition) == (LOT.topic, 3)
    assert part == LOT._replace(
        offsets=[11, 14], times_ms=[2, 3], keys=[None, b"c"], values=[b"22", None], pos=[b"p1", None],
        op=[b"u", None], ver=[b"1", None], headers={1: (("x", None),)}, at=[b"5", None],
    )  # fmt: skip
    assert LOT.part(0, 2).headers == {0: FOREIGN}, "the record behind it is not its own"
    assert LOT.part(2, 4).headers == {0: (("x", None),)}


def test_h102_a_record_is_as_large_as_its_key_value_and_headers() -> None:
    assert LOT.sizes == [1 + 1 + (1 + 2) + 1, 2, 1 + 1, 2]


def test_h102_records_are_cut_into_slices_across_lots() -> None:
    lots = [LOT.part(0, 2), LOT.part(2, 4)]
    assert [(number, lot.offsets) for number, lot in numbered_by_slice(lots, 8)] == [(0, [10, 11]), (1, [14, 15])]
    assert [(number, lot.offsets) for number, lot in numbered_by_slice(lots, 10)] == [
        (0, [10, 11]),
        (0, [14]),
        (1, [15]),
    ]
    one_each = [(number, lot.offsets) for number, lot in numbered_by_slice(lots, 1)]
    assert one_each == [(0, [10]), (1, [11]), (2, [14]), (3, [15])]


def test_of_several_headers_of_a_name_the_last_counts() -> None:
    assert split_headers((("pos", b"1"), ("ver", b"7"), ("x", b"y"), ("pos", b"2"))) == (b"2", None, b"7")
    assert split_headers(()) == (None, None, None)
