"""The executors' side: a share read, brought down, and reported, over a log in memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from cdc.process.errors import CdcError, LogError, SinkError, TopicError
from cdc.record.topic_names import TableName
from cdc.wire.dead_letter import Why
from cdc.wire.records import Span
from sinks.contract.kinds import spec_for
from sinks.contract.port import CannotCarry, PlaceMissing, StoreAway
from sinks.contract.sink_spec import open_sink
from sinks.contract.table_places import SchemaBook
from spark.queries.micro_batch import shares, spans_between
from spark.queries.task_reports import REPORT_SCHEMA, TaskReport, read_report
from spark.queries.tasks import Task, run_task
from spark.records.source import EARLIEST
from spark.stores.apply import Outcome, Rules
from tests.memory_log import MemoryReading
from tests.unit.cdc.wire.debezium.recorded import recorded
from tests.unit.spark.doubles import orders
from tests.unit.spark.records import TOPIC, KafkaRecord, lot_of, sound
from tests.unit.spark.translating import Registry, translating

SPAN = Span(TOPIC, 0, 0, 1000)
PAD = "x" * 1000
TASK = Task(spec=None, rules=Rules(book=SchemaBook([orders()])), mode="compact", read_rows=1)


def row(number: int, offset: int, status: Any = "new", **headers: Any) -> KafkaRecord:
    value = orjson.dumps({"before": None, "after": {"id": number, "status": status}, "op": "u"})
    return KafkaRecord(b'{"id":%d}' % number, value, sound(8 * (offset + 1), **headers), offset)


def size(record: KafkaRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")


def of_two(record: KafkaRecord) -> Task:
    """A task whose slice has room for two such records."""
    return replace(TASK, slice_bytes=5 * size(record) // 2, narrow_bytes=5 * size(record) // 2)


def report_of(task: Task, *records: KafkaRecord, failure: CdcError | None = None, span: Span = SPAN) -> TaskReport:
    reading = MemoryReading(tuple(lot_of(one) for one in records), failure)
    numbers = pa.RecordBatch.from_pydict({"id": pa.array([0], pa.int64())})
    batches = list(run_task(task, reading, [[span]], [numbers]))
    return read_report(pa.Table.from_batches(batches, schema=REPORT_SCHEMA))


def winners(report: TaskReport) -> Mapping[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for event in report.winners.sort_by("offset").to_pylist():
        found.setdefault(event["key"], []).append(event["offset"])
    return found


@pytest.mark.parametrize("fold_rows", [1, 3, 1000])
def test_the_newest_of_each_key_is_left_however_often_folded(fold_rows: int) -> None:
    records = [row(number % 4, number) for number in range(20)]
    report = report_of(replace(TASK, fold_rows=fold_rows), *records)
    assert winners(report) == {b'{"id":%d}' % number: [16 + number] for number in range(4)}
    assert report.outcome.records == 20
    assert report.outcome.read.size_bytes == sum(len(one.key or b"") + len(one.value or b"") for one in records)


def test_h102_a_task_reads_no_more_than_a_slice_and_says_how_far() -> None:
    records = [row(number, number, PAD) for number in range(6)]
    first = report_of(of_two(records[0]), *records)
    assert (first.reached, first.outcome.records) == ({(TOPIC, 0): 2}, 2)
    rest = report_of(TASK, *records, span=Span(TOPIC, 0, 2, 1000))
    assert (rest.reached, rest.outcome.records) == ({(TOPIC, 0): 1000}, 4), "gaps before the end are read too"


def test_h102_a_missing_stretch_is_named_with_its_read_part() -> None:
    records = (row(1, 0, PAD), row(2, 1, PAD, ver=7), row(3, 2, PAD))
    report = report_of(of_two(records[0]), *records)
    assert report.needs == {(TOPIC, 7)}
    assert report.reached == {(TOPIC, 0): 2}


def test_h255_what_came_again_leaves_room_in_a_slice() -> None:
    records = [row(number % 2, number, PAD) for number in range(10)]
    task = replace(TASK, slice_bytes=4 * size(records[0]), narrow_bytes=4 * size(records[0]))
    report = report_of(task, *records)
    assert (report.reached, report.outcome.records) == ({(TOPIC, 0): 1000}, 10)
    assert winners(report) == {b'{"id":0}': [8], b'{"id":1}': [9]}


@pytest.mark.parametrize(("pad", "reached"), [(100, 1000), (3000, 2)])
def test_h255_a_slice_has_more_of_narrow_records(pad: int, reached: int) -> None:
    records = [row(number, number, "x" * pad) for number in range(6)]
    task = replace(of_two(records[0]), narrow_bytes=100 * size(records[0]))
    assert report_of(task, *records).reached == {(TOPIC, 0): reached}


def test_h255_records_that_cannot_be_read_fill_a_slice() -> None:
    foreign = [KafkaRecord(b"k", PAD.encode() * 3, None, number) for number in range(6)]
    task = replace(of_two(foreign[0]), narrow_bytes=100 * size(foreign[0]))
    report = report_of(task, *foreign)
    assert report.reached[TOPIC, 0] <= 2
    assert len(report.outcome.letters) == report.reached[TOPIC, 0]


def test_h255_a_slice_that_is_read_again_is_read_whole() -> None:
    """It holds no more than before, and what was done of it is not left undone."""
    records = [row(number, number, PAD) for number in range(6)]
    task = replace(of_two(records[0]), whole=True)
    assert report_of(task, *records).reached == {(TOPIC, 0): 1000}


def test_y13_a_slice_ends_at_the_rows_that_its_store_takes() -> None:
    """A fill is seen to go on by its slices. A key that comes again is one row."""
    records = [row(number // 2, number) for number in range(12)]
    task = replace(TASK, most_rows=3, slice_bytes=4 * size(records[0]), narrow_bytes=10**9)
    report = report_of(task, *records)
    assert (report.reached, report.outcome.records) == ({(TOPIC, 0): 6}, 6)
    assert sorted(winners(report)) == [b'{"id":0}', b'{"id":1}', b'{"id":2}']


def test_h255_what_is_read_of_a_few_keys_has_a_bound() -> None:
    """All of them may have to be read again, and held."""
    records = [row(1, number, PAD) for number in range(40)]
    limit = 4 * size(records[0])
    report = report_of(replace(TASK, slice_bytes=limit, narrow_bytes=limit), *records)
    assert 8 <= report.reached[TOPIC, 0] <= 16


@pytest.mark.parametrize("fold_rows", [1, 1000])
def test_h38_a_key_whose_newest_lacks_a_value_keeps_its_events(fold_rows: int) -> None:
    lacking = row(1, 3, "__debezium_unavailable_value")
    records = (row(1, 1, "whole"), row(2, 2), lacking, row(2, 4))
    found = winners(report_of(replace(TASK, fold_rows=fold_rows), *records))
    assert found[b'{"id":2}'] == [4]
    assert found[b'{"id":1}'][-1] == 3
    assert 1 in found[b'{"id":1}']


def test_only_its_own_span_is_read() -> None:
    records = [row(number, number) for number in range(6)]
    assert len(winners(report_of(TASK, *records, span=Span(TOPIC, 0, 2, 4)))) == 2
    assert len(winners(report_of(TASK, *records, span=Span(TOPIC, 0, EARLIEST, 4)))) == 4


def test_h67_a_foreign_record_becomes_a_letter_with_its_headers() -> None:
    foreign = KafkaRecord(b"k", b"v", [("x", b"1"), ("y", None)], 1)
    report = report_of(TASK, row(1, 0), foreign)
    [letter] = report.outcome.letters
    assert (letter.why, letter.offset, letter.headers) == (Why.UNREADABLE, 1, (("x", b"1"), ("y", None)))


def test_an_unknown_shape_is_asked_for_and_nothing_else_is_told() -> None:
    report = report_of(TASK, row(1, 0), row(2, 1, ver=7))
    assert report.needs == {(TOPIC, 7)}
    assert report.winners.num_rows == 0


def test_a_floor_is_told_before_anything_is_applied() -> None:
    floor = KafkaRecord(b'{"__truncate":true}', b"{}", sound(80, op="t"), 9)
    report = report_of(replace(TASK, mode="apply"), row(1, 0), floor)
    assert report.floors["offset"].to_pylist() == [9]
    assert report.outcome.records == 0


def test_h67_a_refused_newest_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    broken = row(1, 3)._replace(value=b'{"before":null,"aft')
    spec = spec_for("sql", prefix="tasks", options={"url": f"sqlite:///{tmp_path}/tasks.db"})
    with closing(open_sink(spec)) as opened:
        opened.sink.prepare(orders())
    task = replace(TASK, mode="apply", spec=spec, fold_rows=2)
    records = (row(1, 0, "good"), row(1, 1, "better"), row(2, 2), broken, row(3, 4), row(3, 5))
    report = report_of(task, *records)
    assert [letter.offset for letter in report.outcome.letters] == [3]
    assert report.outcome.records == 6
    assert report.outcome.applied.applied >= 3


def debezium_row(
    number: int, offset: int, status: Any = "new", *, after: bool = True, snapshot: str = "false"
) -> KafkaRecord:
    source = {"connector": "postgresql", "schema": "public", "table": "orders", "snapshot": snapshot}
    found = {"id": number, "status": status} if after else "no row"
    place = {"sequence": f'["{8 * (offset + 1)}","{8 * (offset + 2)}"]'}
    value = orjson.dumps({"before": None, "after": found, "source": source | place, "op": "u"})
    return KafkaRecord(b'{"id":%d}' % number, value, None, offset)


ID = {"field": "id", "type": "int64", "optional": False}


def plan_of(task: Task) -> Task:
    """The task with what a driver gives it for topics that are Debezium's."""
    return replace(task, translation=translating(Registry(orders())).for_tasks([SPAN]))


def test_h133_nothing_undecided_is_applied(tmp_path: Path) -> None:
    spec = spec_for("sql", prefix="tasks", options={"url": f"sqlite:///{tmp_path}/tasks.db"})
    with closing(open_sink(spec)) as opened:
        opened.sink.prepare(orders())
    row = {"field": "after", "type": "struct", "fields": [ID, {"field": "status", "type": "string"}]}
    fields = [row, {"field": "source", "type": "struct"}, {"field": "op", "type": "string"}]
    payload = orjson.loads(debezium_row(1, 0).value or b"")
    value = orjson.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload})
    begins = debezium_row(1, 0)._replace(value=value)
    translation = translating()
    task = replace(TASK, mode="apply", spec=spec, translation=translation.for_tasks([SPAN]))
    asked = report_of(task, begins)
    assert (asked.reached, asked.outcome) == ({(TOPIC, 0): 1000}, Outcome())
    translation.decide(asked.told)
    done = replace(task, translation=translation.for_tasks([SPAN]))
    assert report_of(done, begins).outcome.applied.applied == 1


def test_h133_what_is_read_again_is_translated_again(tmp_path: Path) -> None:
    """All events of some keys, and those before a refused one: from the beginning of the slice."""
    spec = spec_for("sql", prefix="tasks", options={"url": f"sqlite:///{tmp_path}/tasks.db"})
    with closing(open_sink(spec)) as opened:
        opened.sink.prepare(orders())
    tombstone = KafkaRecord(b'{"id":2}', None, None, 4)
    deleted = debezium_row(2, 3)._replace(value=(debezium_row(2, 3).value or b"").replace(b'"op":"u"', b'"op":"d"'))
    records = (debezium_row(1, 0), debezium_row(2, 1), debezium_row(1, 2, {"no": "text"}), deleted, tombstone)
    task = plan_of(TASK)
    again = report_of(replace(task, only={TOPIC: [b'{"id":2}']}), *records)
    assert winners(again) == {b'{"id":2}': [1, 3, 4]}
    cut = debezium_row(3, 6, after=False)
    report = report_of(replace(task, mode="apply", spec=spec), *records, debezium_row(3, 5), cut)
    assert [letter.offset for letter in report.outcome.letters] == [6]
    assert report.outcome.applied.applied >= 2


def test_h133_a_slice_counts_records_without_their_schemas() -> None:
    rows = recorded("key_schemas")
    records = [KafkaRecord(row.key, row.value, None, row.offset, row.topic, 0) for row in rows]
    span = Span(rows[0].topic, 0, 0, 1000)
    plan = translating().for_tasks([span])
    task = replace(TASK, translation=plan, slice_bytes=2 * size(records[0]), narrow_bytes=2 * size(records[0]))
    assert report_of(task, *records, span=span).reached == {span[:2]: 1000}
    small = report_of(replace(task, slice_bytes=1, narrow_bytes=1), *records, span=span)
    assert small.reached == {span[:2]: records[0].offset + 1}


def test_all_events_of_some_keys_are_found_again() -> None:
    records = [row(number % 3, number) for number in range(9)]
    report = report_of(replace(TASK, only={TOPIC: [b'{"id":1}']}), *records)
    assert winners(report) == {b'{"id":1}': [1, 4, 7]}


@pytest.mark.parametrize(
    "failure",
    [
        TopicError("records are gone"),
        LogError("silent"),
        SinkError("away"),
        StoreAway("away"),
        PlaceMissing("gone"),
        CannotCarry.because(TableName("public", "orders"), "why"),
    ],
)
def test_h63_what_fails_is_told_as_what_it_is(failure: CdcError) -> None:
    with pytest.raises(type(failure), match=failure.message) as told:
        report_of(TASK, row(1, 0), failure=failure)
    assert type(told.value) is type(failure)
    assert told.value.retry is failure.retry


def test_shares_are_of_about_the_same_size_and_none_is_empty() -> None:
    spans = [Span(TOPIC, p, 0, size) for p, size in enumerate((900, 10, 500, 400))]
    found = shares(spans, 2)
    assert sorted(sum(span.most_records for span in share) for share in found) == [900, 910]
    assert shares(spans[:1], 4) == [spans[:1]]


def test_what_lies_between_offsets_leaves_out_what_has_nothing() -> None:
    starts = {TOPIC: {0: EARLIEST, 1: 7, 2: 7, 3: EARLIEST}}
    ends = {TOPIC: {0: 5, 1: 9, 2: 7, 3: 0}}
    assert spans_between(starts, ends) == (Span(TOPIC, 0, EARLIEST, 5), Span(TOPIC, 1, 7, 9))
