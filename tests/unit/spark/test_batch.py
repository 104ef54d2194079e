"""A micro-batch read in slices: bounded in bytes, whole together, each with where it ends."""

from __future__ import annotations

from itertools import pairwise
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.wire.records import RecordColumns, numbered_by_slice
from spark.queries.micro_batch import MOST_ROWS, MicroBatch, SlicePace, noting
from spark.records.source import EARLIEST
from spark.session.failures import Halted
from tests.memory_log import MemoryReading
from tests.unit.spark.records import TOPIC, KafkaRecord, lot_of, sound

SIZE = 10


def record(offset: int, size: int = SIZE, partition: int = 0) -> KafkaRecord:
    return KafkaRecord(b"k", b"v" * (size - 1), sound(8 * (offset + 1)), offset, partition=partition)


def batch_of(records: list[KafkaRecord], ends: dict[int, int], starts: dict[int, int] | None = None) -> MicroBatch:
    return MicroBatch(
        starts={TOPIC: starts or dict.fromkeys(ends, EARLIEST)},
        ends={TOPIC: ends},
        reader=MemoryReading(tuple(lot_of(one) for one in records)).open(),
        halting=Event(),
    )


def lot(*sizes: int) -> RecordColumns:
    count = len(sizes)
    keys: list[bytes | None] = [b"k"] * count
    values: list[bytes | None] = [b"v" * (size - 1) for size in sizes]
    none: list[bytes | None] = [None] * count
    return RecordColumns(TOPIC, 0, list(range(count)), [0] * count, keys, values, none, none, none, {})


@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), max_size=6), st.integers(1, 40))
def test_h102_no_slice_is_larger_unless_it_is_one_record(lots: list[list[int]], most: int) -> None:
    slices: dict[int, list[int]] = {}
    for number, part in numbered_by_slice((lot(*sizes) for sizes in lots), most):
        slices.setdefault(number, []).extend(part.sizes)
    assert [size for sizes in slices.values() for size in sizes] == [size for sizes in lots for size in sizes]
    assert list(slices) == list(range(len(slices)))
    for sizes in slices.values():
        assert sum(sizes) <= most or len(sizes) == 1
    together = list(slices.values())
    assert all(sum(a) + b[0] > most for a, b in pairwise(together)), "and none is too small"


def test_h102_headers_of_others_count_and_go_with_their_record() -> None:
    foreign = lot_of(KafkaRecord(b"k", b"v" * 9, [("x", b"y" * 99)], 0))
    assert foreign.sizes == [110]
    assert foreign.part(0, 1) == foreign
    assert foreign.part(1, 1).headers == {}


def test_h102_a_slice_names_its_end_and_the_last_the_batchs_end() -> None:
    records = [record(n) for n in range(5)] + [record(n, partition=1) for n in range(2)]
    slices = list(batch_of(records, {0: 9, 1: 9}).slices(3 * SIZE))
    assert [table.num_rows for _, table in slices] == [3, 3, 1]
    assert [piece.offsets[TOPIC] for piece, _ in slices] == [{0: 3}, {0: 5, 1: 1}, {0: 9, 1: 9}]
    assert [piece.starts[TOPIC] for piece, _ in slices] == [
        {0: EARLIEST, 1: EARLIEST},
        {0: 3, 1: EARLIEST},
        {0: 5, 1: 1},
    ]


def test_h102_no_slice_claims_a_partition_that_nobody_has_begun() -> None:
    """As 0 it would be read from there on: below a first record that is no longer 0 nothing can be read."""
    records = [record(n) for n in range(4)] + [record(7, partition=1)]
    first, *_ = batch_of(records, {0: 4, 1: 8, 2: 0}).slices(2 * SIZE)
    assert first[0].offsets[TOPIC] == {0: 2, 2: 0}


def test_a_batch_counts_its_gaps_and_begins_at_each_start() -> None:
    batch = batch_of([], {0: 4, 1: 6, 2: 0, 3: 1}, {0: 1, 1: EARLIEST, 2: EARLIEST, 3: 0})
    assert batch.most_rows == 3 + 6 + 1
    assert [tuple(span) for span in batch.spans] == [(TOPIC, 0, 1, 4), (TOPIC, 1, EARLIEST, 6), (TOPIC, 3, 0, 1)]


def test_h102_the_last_offset_read_is_the_one_to_go_on_behind() -> None:
    """A lot of several records: the next slice begins behind the last of them."""
    reached: dict[tuple[str, int], int] = {}
    lots = [lot(1, 2, 3), lot_of(record(7, partition=1))]
    assert list(noting(reached, lots)) == lots
    assert reached == {(TOPIC, 0): 3, (TOPIC, 1): 8}


def test_a_partition_nobody_has_begun_is_no_place_of_a_store() -> None:
    """Kafka's words for its ends, -1 and -2, are no offsets."""
    assert batch_of([], {0: 4, 1: -1, 2: EARLIEST, 3: 0}).offsets == {TOPIC: {0: 4, 3: 0}}


def test_a_batch_of_gaps_is_one_empty_slice() -> None:
    [(piece, records)] = batch_of([], {0: 9}).slices(SIZE)
    assert (records.num_rows, piece.offsets) == (0, {TOPIC: {0: 9}})


def test_h102_a_query_told_to_end_ends_between_two_slices() -> None:
    batch = batch_of([record(n) for n in range(4)], {0: 4})
    slices = batch.slices(SIZE)
    next(slices)
    batch.halting.set()
    with pytest.raises(Halted):
        next(slices)


def test_what_is_left_behind_a_slice_is_nothing_in_the_end() -> None:
    batch = batch_of([], {0: 4, 1: 6}, {0: 1, 1: 6})
    piece = batch.upto({(TOPIC, 0): 3})
    rest = batch.behind(piece)
    assert rest is not None and [tuple(span) for span in rest.spans] == [(TOPIC, 0, 3, 4)]
    assert rest.behind(rest.upto({(TOPIC, 0): 4})) is None


def test_y13_a_slice_has_what_its_store_takes_in_15_s() -> None:
    pace = SlicePace()
    assert pace.rows(2) == 20_000, "nothing is known yet"
    pace.note(10, 8.0)
    assert pace.rows(2) == 20_000, "a small slice says nothing"
    pace.note(100_000, 25.0)
    assert (pace.rows(1), pace.rows(2)) == (60_000, 30_000)
    pace.note(100_000, 2.0)
    assert pace.rows(2) == MOST_ROWS
    pace.note(5_000, 100.0)
    assert pace.rows(8) == 5_000
