"""Debezium's records translated for the queries."""

from __future__ import annotations

import orjson
import pytest

from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.wire.debezium.reading import DebeziumReader
from cdc.wire.records import Span
from spark.records.debezium_records import Translation
from spark.records.source import parse
from tests.unit.cdc.wire.debezium.recorded import Recorded, recorded
from tests.unit.spark.doubles import orders
from tests.unit.spark.translating import InSlices, InTasks, Registry, records, translating


@pytest.fixture(params=[Translation, InTasks])
def way(request: pytest.FixtureRequest) -> type[Translation]:
    """Where records are read: on the driver, or by tasks."""
    found: type[Translation] = request.param
    return found


RECORDED = ("key_schemas", "sh_operations", "sh_keys", "snapshots_schemas", "toast_schemas", "flat", "flat_schemas")


@pytest.mark.parametrize("way", [InTasks, InSlices])
@pytest.mark.parametrize("name", [*RECORDED, "mariadb", "sh_truncate_emitted"])
def test_h133_tasks_and_driver_read_alike_however_slices_are_cut(name: str, way: type[Translation]) -> None:
    rows = sorted(recorded(name), key=lambda row: (row.topic, row.partition, row.offset))
    registry = Registry()
    here = translating(registry)(records(rows))
    assert translating(registry, way=way)(records(rows)).equals(here)
    assert here.num_rows


def test_h133_shapes_that_have_no_number_are_asked_for() -> None:
    rows = recorded("key_schemas")
    translation = translating()
    span = [Span(rows[0].topic, 0, rows[0].offset, rows[-1].offset + 1)]
    task = translation.for_tasks(span).begin()
    task(records(rows))
    assert task.told.undecided
    assert translation.decide(task.told) == {(rows[0].topic, 1)}
    again = translation.for_tasks(span).begin()
    again(records(rows))
    assert not again.told.undecided


def test_records_get_the_three_headers(way: type[Translation]) -> None:
    rows = recorded("key_schemas")
    registry = Registry()
    parsed = parse(translating(registry, way=way)(records(rows)))
    # A truncate has no place beside the other partitions.
    assert [one.reason.partition(",")[0] for one in parsed.unreadable] == ["a truncate"]
    assert parsed.events["op"].to_pylist() == ["r", "u", "d", "d", "c"]
    assert parsed.events["ver"].to_pylist() == [1] * 5
    offsets = [row.offset for row in rows if row.offset != parsed.unreadable[0].offset]
    assert parsed.events["pos"].to_pylist() == [Position(0, (n + 1) << 3, 1).text() for n in offsets]
    assert len(set(parsed.events["key"].to_pylist())) == 1, "the tombstone's key is read as the rows' keys are"
    # One shape is asked for once in a run.
    assert registry.asked == 1


def test_a_record_without_a_schema_has_the_topics_newest_version(way: type[Translation]) -> None:
    rows = recorded("sh_operations")
    parsed = parse(translating(Registry(newest(rows[0].topic)), way=way)(records(rows)))
    assert set(parsed.events["ver"].to_pylist()) == {7}
    assert not parsed.unreadable


def newest(topic: str) -> TableSchema:
    """A shape that the topic has, the seventh of its table."""
    made = orders(7)
    return made.__class__(**{**{name: getattr(made, name) for name in made.__slots__}, "topic": topic})


def test_a_record_that_is_not_debeziums_becomes_a_letter(way: type[Translation]) -> None:
    foreign = Recorded("t", 0, 3, b'{"id":1}', b"what is this")
    parsed = parse(translating(way=way)(records([foreign])))
    (one,) = parsed.unreadable
    assert (one.offset, one.value) == (3, b"what is this")
    assert one.reason.startswith("not a record of Debezium's")


def test_a_record_of_ours_is_left_as_it_is(way: type[Translation]) -> None:
    headers: list[tuple[str, bytes | None]] = [("pos", b"0" * 32), ("op", b"c"), ("ver", b"3")]
    ours = Recorded("t", 0, 0, b'{"id":1}', b'{"after":{"id":1}}')
    parsed = parse(translating(way=way)(records([ours], headers)))
    assert parsed.events["ver"].to_pylist() == [3]


def test_an_empty_batch_stays_empty(way: type[Translation]) -> None:
    assert translating(way=way)(records([])).num_rows == 0


def row(offset: int) -> Recorded:
    value = orjson.dumps({"id": 1, "v": "a"})
    return Recorded("d.s.t", 0, offset, b'{"id":1}', value)


def test_h91_behind_a_handovers_end_there_are_two_writers(way: type[Translation]) -> None:
    translate = translating(Registry(newest("d.s.t")), way=way, handed_over={"d.s.t": {0: 5}})
    parsed = parse(translate(records([row(4), row(5), row(6)])))
    assert parsed.events["offset"].to_pylist() == [4]
    assert [one.offset for one in parsed.unreadable] == [5, 6]
    assert all("two writers" in one.reason for one in parsed.unreadable)


def test_a_tombstone_of_a_table_without_rows_is_none(way: type[Translation]) -> None:
    gone = row(3)._replace(value=None)
    assert translating(way=way)(records([gone])).num_rows == 0
    parsed = parse(translating(Registry(newest("d.s.t")), way=way)(records([gone])))
    assert parsed.events["op"].to_pylist() == ["d"]


def keyed(offset: int, *key: str) -> Recorded:
    """A row with its embedded schema, under these columns."""
    fields = [{"field": name, "type": "string", "optional": name not in key} for name in ("id", "v")]
    schema = [
        {"field": "after", "type": "struct", "fields": fields},
        {"field": "source", "type": "struct"},
        {"field": "op", "type": "string"},
    ]
    after = {"id": str(offset), "v": "x"}
    source = {"connector": "postgresql", "schema": "s", "table": "t"}
    payload = {"before": None, "after": after, "source": source, "op": "u"}
    value = orjson.dumps({"schema": {"type": "struct", "fields": schema}, "payload": payload})
    return Recorded("d.s.t", 0, offset, orjson.dumps({name: after[name] for name in key}), value)


def test_h230_another_key_is_noted_before_its_records_are_given(way: type[Translation]) -> None:
    noted: list[str] = []
    translate = translating(way=way, keyed_anew=noted.append)
    translate(records([keyed(0, "id"), keyed(1, "id")]))
    assert noted == []
    translate(records([keyed(2, "id", "v"), keyed(3, "id", "v")]))
    assert noted == ["d.s.t"]


def test_h230_a_topic_made_anew_may_have_another_key(way: type[Translation]) -> None:
    noted: list[str] = []
    registry = Registry()
    for topic_id, key in (("one", ("id",)), ("two", ("id", "v")), ("two", ("id", "v"))):
        translate = translating(registry, way=way, keyed_anew=noted.append, topic_ids={"d.s.t": topic_id})
        translate(records([keyed(0, *key)]))
    assert noted == []
    late = translating(registry, way=way, keyed_anew=noted.append, topic_ids={"d.s.t": "two"})
    late(records([keyed(1, "id")]))
    assert noted == ["d.s.t"]


def test_a_reader_travels_without_what_it_has_read() -> None:
    reader = DebeziumReader(documents=True, precise=True)
    assert reader.__reduce__()[1] == (True, True)
