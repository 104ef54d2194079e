"""Ranges: packed into tasks, cut to a batch's size, never split between two tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.progress import Offsets
from cdc.wire.records import BEGINNING, Span
from spark.frames.frame import packed, spans_of, trimmed

PARTITIONS = st.dictionaries(st.integers(0, 7), st.integers(0, 1000), max_size=8)
ENDS = st.dictionaries(st.sampled_from(["a", "b", "c"]), PARTITIONS, max_size=3)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    ends = draw(ENDS)
    starts = {
        topic: {p: draw(st.one_of(st.just(BEGINNING), st.integers(0, end))) for p, end in parts.items()}
        for topic, parts in ends.items()
    }
    return starts, ends


@given(ranges(), st.integers(0, 20))
def test_each_range_is_in_one_task_and_whole(both: tuple[Offsets, Offsets], slots: int) -> None:
    spans = spans_of(*both)
    tasks = packed(spans, slots)
    assert sorted(span for task in tasks for span in task) == sorted(spans)
    assert all(task for task in tasks)
    assert len(tasks) <= max(1, slots)


@given(ranges())
def test_only_ranges_that_may_hold_a_record_are_read(both: tuple[Offsets, Offsets]) -> None:
    starts, ends = both
    spans = spans_of(starts, ends)
    assert all(span.end > max(0, span.start) for span in spans)
    lacking = sum(max(0, end - max(0, starts[t][p])) for t, parts in ends.items() for p, end in parts.items())
    assert sum(span.most_records for span in spans) == lacking


@given(ranges(), st.integers(1, 10))
def test_tasks_are_of_about_one_size(both: tuple[Offsets, Offsets], slots: int) -> None:
    tasks = packed(spans_of(*both), slots)
    loads = [sum(span.most_records for span in task) for task in tasks]
    largest = max((span.most_records for task in tasks for span in task), default=0)
    if loads:
        assert max(loads) - min(loads) <= largest


@given(ranges(), st.integers(0, 3000))
def test_a_batch_has_no_more_than_it_may(both: tuple[Offsets, Offsets], most: int) -> None:
    starts, ends = both
    reached = trimmed(starts, ends, most)
    total = sum(span.most_records for span in spans_of(starts, ends))
    taken = sum(span.most_records for span in spans_of(starts, reached))
    assert taken == (min(total, most) if most else total)
    for topic, parts in reached.items():
        for partition, offset in parts.items():
            assert starts[topic][partition] <= offset <= max(ends[topic][partition], starts[topic][partition])


@given(ranges(), st.integers(1, 500))
@pytest.mark.slow
def test_batch_after_batch_reads_each_record_once(both: tuple[Offsets, Offsets], most: int) -> None:
    at, ends = both
    total = sum(span.most_records for span in spans_of(at, ends))
    read = 0
    while spans_of(at, ends):
        reached = trimmed(at, ends, most)
        read += sum(span.most_records for span in spans_of(at, reached))
        at = reached
    assert read == total


def test_a_partition_that_is_new_is_read_whole() -> None:
    assert spans_of({"t": {0: 5}}, {"t": {0: 7, 1: 3}}) == [Span("t", 0, 5, 7), Span("t", 1, BEGINNING, 3)]


def test_8000_partitions_make_no_more_tasks_than_cores() -> None:
    ends = {f"shop.public.t{number}": dict.fromkeys(range(4), number % 50) for number in range(2000)}
    reached = trimmed({}, ends, 10_000)
    tasks = packed(spans_of({}, reached), 16)
    assert len(tasks) == 16
    assert sum(len(task) for task in tasks) > 5000
