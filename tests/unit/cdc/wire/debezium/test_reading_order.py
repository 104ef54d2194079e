"""A reader's memory between records: epochs, the snapshot's end, later snapshots' rows, and a pickled one's."""

from __future__ import annotations

import pickle
from typing import Any

import orjson

from cdc.epochs import EpochsState
from cdc.position import Position
from cdc.wire.debezium.reading import DebeziumChange, PartitionReader, SettledRecord, UnreadableRecord
from tests.unit.cdc.wire.debezium import mongodb

TOPIC = "d.s.t"
KEY = b'{"id":1}'


def oracle(scn: int | None, snapshot: str = "false") -> bytes:
    """A row at this SCN. Without one: at none."""
    source = {"connector": "oracle", "schema": "s", "table": "t", "snapshot": snapshot, "scn": scn}
    return orjson.dumps({"before": None, "after": {"id": 1}, "source": source, "op": "u"})


def positions(reader: PartitionReader, *values: bytes) -> list[Position]:
    found = [reader.read(max(reader.next_offset, 0), KEY, value) for value in values]
    return [one.pos for one in found if isinstance(one, DebeziumChange)]


def test_a_reader_that_has_read_nothing_says_nothing() -> None:
    reader = PartitionReader(TOPIC, 0)
    assert (reader.fell, reader.moved, reader.began, reader.highest) == ("", None, "", None)
    assert (reader.over, reader.over_ms, reader.next_offset) == (0, 0, -1)


def test_a_later_snapshots_row_may_be_the_first_that_is_read() -> None:
    assert positions(PartitionReader(TOPIC, 0), oracle(9, "incremental")) == [Position(1, 9 << 3, 0)]


def test_a_later_snapshots_row_stands_as_high_as_any_before_it() -> None:
    reader = PartitionReader(TOPIC, 0)
    found = positions(reader, oracle(50), oracle(9, "incremental"), oracle(None, "incremental"), oracle(60))
    assert found == [Position(1, 50 << 3, 1)] * 3 + [Position(1, 60 << 3, 1)]


def test_a_later_snapshots_row_takes_no_place_of_an_epoch_before() -> None:
    """It names none itself, and there is no change of its own epoch yet that it could stand beside."""
    reader = PartitionReader(TOPIC, 0, epochs=EpochsState().begin({TOPIC: {0: 1}}))
    assert positions(reader, oracle(50)) == [Position(1, 50 << 3, 1)]
    found = reader.read(1, KEY, oracle(None, "incremental"))
    assert found == UnreadableRecord("not a record of Debezium's: its source block names no position of oracle")


def test_the_first_change_behind_a_snapshot_says_that_it_is_over() -> None:
    reader = PartitionReader(TOPIC, 0, epochs=EpochsState().begin({TOPIC: {0: 4}}))
    told = []
    for offset, (snapshot, time_ms) in enumerate(
        [("first", 10), ("true", 20), ("last", 30), ("false", 40), ("first", 50), ("incremental", 60), ("false", 70)]
    ):
        reader.read(offset, KEY, oracle(100 + offset, snapshot), time_ms=time_ms)
        told.append((reader.began, reader.over, reader.over_ms))
    assert told == [
        ("first", 0, 0), ("", 0, 0), ("", 1, 30), ("", 1, 30),
        ("first", 1, 30), ("", 1, 30), ("", 2, 70),
    ]  # fmt: skip


def test_h238_rows_without_a_marked_first_begin_nothing() -> None:
    """The manual says so: MongoDB's connector marks a snapshot's last row alone, and a flat row carries no mark."""
    documents, flat = PartitionReader(mongodb.TOPIC, 0), PartitionReader(TOPIC, 0)
    for offset, marker in enumerate(("true", "last", "true")):
        found = documents.read(offset, mongodb.key(), mongodb.envelope("r", after=mongodb.ANNE, snapshot=marker))
        assert isinstance(found, DebeziumChange)
        row = {"id": 1, "v": "a", "__op": "r", "__source_snapshot": marker}
        assert isinstance(flat.read(offset, KEY, orjson.dumps(row)), DebeziumChange)
        assert (documents.began, flat.began) == ("", "")


def test_what_was_said_of_one_record_is_not_said_of_the_next() -> None:
    reader = PartitionReader(TOPIC, 0)
    positions(reader, oracle(50), oracle(9, "first"))
    assert (reader.began, reader.fell) == ("first", "a new snapshot lies below changes that were streamed before it")
    reader.read(7, KEY, b"no JSON")
    assert (reader.began, reader.fell) == ("", "")


def test_the_topics_time_is_0_where_nobody_says_it() -> None:
    reader = PartitionReader(TOPIC, 0)
    reader.look_back(0, KEY, oracle(50))
    assert (reader.over, reader.over_ms) == (1, 0)
    other = PartitionReader(TOPIC, 0)
    other.read(0, KEY, oracle(50))
    assert (other.over, other.over_ms) == (1, 0)


def shaped(op: str, *columns: str) -> bytes:
    fields = [{"field": name, "type": "string"} for name in columns]
    source = {"connector": "oracle", "schema": "s", "table": "t", "snapshot": "false", "scn": 5}
    schema: list[dict[str, Any]] = [
        {"field": "after", "type": "struct", "fields": fields},
        {"field": "source", "type": "struct"},
        {"field": "op", "type": "string"},
    ]
    payload = {"before": None, "after": dict.fromkeys(columns, "1"), "source": source, "op": op}
    return orjson.dumps({"schema": {"type": "struct", "fields": schema}, "payload": payload})


def test_a_pickled_reader_takes_along_what_it_needs_alone() -> None:
    """The last schema, for tombstones; no other that it has seen, and no epochs."""
    reader = PartitionReader(TOPIC, 0, epochs=EpochsState().begin({TOPIC: {0: 7}}))
    wide = shaped("c", *(f"column_{number}" for number in range(500)))
    positions(reader, wide, shaped("d", "id"))
    text = pickle.dumps(reader)
    assert len(text) < len(wide) // 2
    again = pickle.loads(text)
    assert (again.epochs, again.highest, again.next_offset) == (EpochsState(), reader.highest, reader.next_offset)
    assert again.read(again.next_offset, KEY, None) == SettledRecord("its delete was read before it")
