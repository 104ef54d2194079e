"""Records that Spark's query carries are applied like those that our own reader reads."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.progress import Offsets
from cdc.testing import MemoryReading
from cdc.wire.records import Span
from sinks.contract.kinds import spec_for
from sinks.contract.registry import open_sink
from spark.figures.sink_metrics import Metrics
from spark.queries.checkpoint import LocalFolder
from spark.queries.micro_batch import MicroBatch
from spark.queries.query import read_part
from spark.queries.query_run import Engine
from spark.queries.report import TaskReport
from spark.queries.tasks import Task, run_on_rows
from spark.records.carried_rows import RowSizes, cut, last_place, places_behind, read_whole, records_of_rows
from spark.records.source import RECORD_SCHEMA, KafkaInput
from tests.unit.spark.carried import MemoryRows, rows_of
from tests.unit.spark.doubles import orders
from tests.unit.spark.records import TOPIC, KafkaRecord, lot_of, records_of, sound
from tests.unit.spark.test_tasks import PAD, TASK, of_two, report_of, row, winners

OTHER = "shop.public.lines"
names = st.sampled_from(["pos", "op", "ver", "x"])
headers = st.one_of(
    st.none(),
    st.just(sound()),
    st.lists(st.tuples(names, st.none() | st.binary(max_size=4)), max_size=4),
)
a_record = st.builds(
    KafkaRecord,
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=8),
    headers=headers,
    offset=st.integers(0, 2**40),
    topic=st.sampled_from([TOPIC, OTHER]),
    partition=st.integers(0, 3),
    time_ms=st.integers(0, 2**42),
)


@given(st.lists(a_record, max_size=12))
def test_a_row_of_spark_is_the_record_that_our_reader_reads(records: list[KafkaRecord]) -> None:
    assert records_of_rows(rows_of(*records)).to_pylist() == records_of(*records).to_pylist()


def test_three_headers_of_others_are_not_taken_for_ours() -> None:
    pos, op, ver = sound()
    others = [KafkaRecord(b"k", b"v", headers, number) for number, headers in enumerate([[ver, op, pos], [pos] * 3])]
    assert records_of_rows(rows_of(*others)).to_pylist() == records_of(*others).to_pylist()


def test_usual_headers_of_a_part_of_the_rows_are_its_own() -> None:
    records = [row(number, number) for number in range(5)]
    found = records_of_rows(rows_of(*records).slice(2, 2))
    assert found.schema == RECORD_SCHEMA
    assert found.to_pylist() == records_of(*records[2:4]).to_pylist()


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 40))
def test_h102_a_slice_of_carried_records_has_so_many_bytes(sizes: list[int], most: int) -> None:
    records = [KafkaRecord(None, b"v" * size, None, number) for number, size in enumerate(sizes)]
    slices = list(cut(records_of(*records), most))
    assert [one for own in slices for one in own["offset"].to_pylist()] == list(range(len(sizes)))
    for own in slices:
        parts = [sizes[offset or 0] for offset in own["offset"].to_pylist()]
        assert sum(parts) <= most or len([part for part in parts if part]) == 1


def batch_of(*records: KafkaRecord, end: int = 1000, partitions: int = 1) -> MicroBatch:
    parts = range(partitions)
    return MicroBatch(
        starts={TOPIC: dict.fromkeys(parts, 0)},
        ends={TOPIC: dict.fromkeys(parts, end)},
        reader=MemoryReading(tuple(lot_of(one) for one in records), None).open(),
        halting=Event(),
        rows=MemoryRows(records),
    )


def test_h102_a_batch_that_was_brought_is_settled_in_slices() -> None:
    records = [row(number, number, PAD) for number in range(5)]
    batch = batch_of(*records)
    found = list(batch.slices(5 * len(PAD) // 2))
    assert [own["offset"].to_pylist() for _, own in found] == [[0, 1], [2, 3], [4]]
    assert [piece.offsets for piece, _ in found] == [{TOPIC: {0: 2}}, {TOPIC: {0: 4}}, {TOPIC: {0: 1000}}]
    assert [piece.begun for piece, _ in found] == [{TOPIC: {0: 0}}, {TOPIC: {0: 2}}, {TOPIC: {0: 4}}]
    assert isinstance(batch.rows, MemoryRows) and batch.rows.asked == 1
    assert all(piece.rows is None for piece, _ in found), "a slice is not read from Spark again"


def test_a_batch_of_gaps_alone_moves_the_store_on() -> None:
    [(piece, records)] = batch_of().slices(1000)
    assert (piece.offsets, records.num_rows) == ({TOPIC: {0: 1000}}, 0)


def carried(task: Task, *records: KafkaRecord, slots: int = 2, partitions: int = 1) -> TaskReport:
    reading = MemoryReading(tuple(lot_of(one) for one in records), None)
    spans = [Span(TOPIC, partition, 0, 1000) for partition in range(partitions)]
    return run_on_rows(MemoryRows(records), reading, spans, task, slots)


def test_tasks_bring_carried_records_down_as_their_own() -> None:
    records = [row(number % 4, number) for number in range(20)]
    found, own = carried(TASK, *records), report_of(TASK, *records)
    assert winners(found) == winners(own)
    assert (found.outcome, found.reached, found.left) == (own.outcome, own.reached, False)


def test_h102_a_task_leaves_what_is_more_than_a_slice() -> None:
    records = [row(number, number, PAD) for number in range(6)]
    report = carried(of_two(records[0]), *records)
    assert (report.reached, report.outcome.records, report.left) == ({(TOPIC, 0): 2}, 2, True)


def test_h102_a_task_that_stops_read_its_first_partitions_whole() -> None:
    records = [row(number, number, PAD)._replace(partition=number // 3) for number in range(6)]
    report = carried(of_two(records[0]), *records, slots=1, partitions=3)
    assert report.left
    assert report.reached == {(TOPIC, 0): 2}
    wider = replace(of_two(records[0]), narrow_bytes=5 * len(PAD), slice_bytes=5 * len(PAD))
    report = carried(wider, *records, slots=1, partitions=3)
    assert report.reached == {(TOPIC, 0): 1000, (TOPIC, 1): 4}, "nothing is known of one that no row is of"


def writing(folder: Path, record: KafkaRecord) -> Task:
    """A task that writes slices of two such records to an SQL store."""
    spec = spec_for("sql", prefix="tasks", options={"url": f"sqlite:///{folder}/tasks.db"})
    with closing(open_sink(spec)) as opened:
        opened.sink.prepare(orders())
    return replace(of_two(record), mode="apply", spec=spec)


@pytest.mark.parametrize(("count", "taken"), [(6, 6), (8, 8), (9, 8)])
def test_a_task_writes_a_few_slices_of_what_it_was_handed(tmp_path: Path, count: int, taken: int) -> None:
    records = [row(number, number, PAD) for number in range(count)]
    task = writing(tmp_path, records[0])
    report = carried(task, *records)
    assert (report.outcome.records, report.outcome.applied.applied) == (taken, taken)
    assert report.left == (taken < count)
    assert report.reached == {(TOPIC, 0): 8 if report.left else 1000}


def test_slices_that_follow_are_told_by_partition(tmp_path: Path) -> None:
    records = [row(number, number, PAD)._replace(partition=number // 3) for number in range(12)]
    report = carried(writing(tmp_path, records[0]), *records, slots=1, partitions=4)
    assert report.left
    assert report.reached == {(TOPIC, 0): 1000, (TOPIC, 1): 1000, (TOPIC, 2): 8}


@pytest.mark.parametrize(("unknown", "whole"), [(0, True), (1, True), (2, False), (5, False)])
def test_a_later_slice_asks_as_a_batch_of_its_own(tmp_path: Path, unknown: int, whole: bool) -> None:
    records = [row(number, number, PAD, **({"ver": 7} if number == unknown else {})) for number in range(6)]
    task = writing(tmp_path, records[0])
    report = carried(task, *records)
    assert report.needs == ({(TOPIC, 7)} if whole else frozenset())
    assert report.left
    before = 0 if whole else unknown - unknown % 2
    assert report.outcome.applied.applied == before
    assert report.reached == {(TOPIC, 0): 2 if whole else before}


def test_h38_a_truncate_in_a_later_slice_waits_for_the_next(tmp_path: Path) -> None:
    floor = KafkaRecord(b'{"__truncate":true}', b"{}", sound(80, op="t"), 3)
    task = writing(tmp_path, row(0, 0, PAD))
    report = carried(task, row(0, 0, PAD), row(1, 1, PAD), row(2, 2, PAD), floor)
    assert (report.floors.num_rows, report.left, report.reached) == (0, True, {(TOPIC, 0): 2})
    assert report.outcome.applied.applied == 2


def test_rows_that_are_brought_down_are_one_slice() -> None:
    """The driver has them all in memory."""
    records = [row(number, number, PAD) for number in range(6)]
    report = carried(of_two(records[0]), *records)
    assert (report.winners.num_rows, report.left) == (2, True)


@pytest.mark.parametrize(("carries", "writers", "most"), [(True, 1, 200_000), (True, 3, 600_000), (False, 3, 10**6)])
def test_a_batch_that_is_carried_grows_with_its_writers(carries: bool, writers: int, most: int) -> None:
    kafka = KafkaInput({}, 10**6, MemoryReading((), None), carried=carries)
    assert kafka.for_writers(writers).max_offsets == most
    assert kafka.for_writers(9).max_offsets == 10**6


def test_an_unknown_shape_of_a_carried_record_is_asked_for() -> None:
    report = carried(TASK, row(1, 0), row(2, 1, ver=7))
    assert report.needs == {(TOPIC, 7)}
    assert report.winners.num_rows == 0


def test_places_and_the_last_one_of_some_records() -> None:
    records = records_of(row(1, 4), row(1, 9), row(1, 2)._replace(partition=1))
    assert places_behind(records) == {(TOPIC, 0): 10, (TOPIC, 1): 3}
    assert last_place(records) == (TOPIC, 1)


@pytest.mark.parametrize(("last", "whole"), [(None, [0, 1]), ((TOPIC, 1), [0])])
def test_the_partition_in_which_a_task_stops_is_not_whole(last: tuple[str, int] | None, whole: list[int]) -> None:
    spans = [Span(TOPIC, partition, 0, 9) for partition in range(3)]
    assert [span.partition for span in read_whole(spans, [(TOPIC, 0), (TOPIC, 1)], last)] == whole


def engine_in(folder: Path) -> Engine:
    nothing: Any = None
    return Engine(
        session=nothing,
        kafka=KafkaInput({}, 200_000, nothing, carried=True),
        folder=LocalFolder(folder),
        metrics=Metrics(),
        driver_rows=20_000,
    )


@pytest.mark.parametrize(("each", "fits"), [(100, True), (100_000, False)])
def test_h102_a_batch_of_large_records_stays_off_the_driver(tmp_path: Path, each: int, fits: bool) -> None:
    engine = engine_in(tmp_path)
    batch = batch_of(end=5_000)
    assert batch.rows is not None
    batch.rows.note(1, each)
    assert engine.fits_driver(batch) is fits
    assert engine.fits_driver(batch._replace(rows=None)), "our reader reads a slice at a time"


def test_h102_records_weigh_what_the_last_ones_did() -> None:
    sizes = RowSizes()
    before = sizes.each_bytes
    sizes.note(0, 0)
    assert sizes.each_bytes == before
    sizes.note(4, 400)
    assert sizes.each_bytes == 100


def test_h394_records_of_which_nothing_is_known_are_large(tmp_path: Path) -> None:
    """A batch that came to the driver in one piece ended its JVM, and again at each start."""
    assert not engine_in(tmp_path).fits_driver(batch_of(end=5_000))


def test_h394_a_few_small_records_say_little_of_the_next() -> None:
    sizes = RowSizes()
    sizes.note(10, 1_000_000)
    sizes.note(10, 1_000)
    assert sizes.each_bytes == 50_000
    sizes.note(10, 1_000)
    assert sizes.each_bytes == 25_000


@pytest.mark.parametrize(("left", "ends"), [(False, {TOPIC: {0: 50}}), (True, {TOPIC: {0: 7}})])
def test_a_batch_that_was_read_whole_ends_where_it_was_planned(left: bool, ends: Offsets) -> None:
    """No task says a word of a partition that has gaps alone, and behind its last record there may be some."""
    batch = batch_of(row(1, 6), end=50)
    report = replace(report_of(TASK, row(1, 6)), reached={(TOPIC, 0): 7}, left=left)
    piece = read_part(batch, report)
    assert (piece.ends, piece.rows) == (ends, None)
