"""Tombstones whose deletes the cleaner has taken, as the reader of a partition tells them."""

from __future__ import annotations

import pickle

import orjson
import pytest

from cdc.epochs import EpochsState
from cdc.position import Position
from cdc.wire.debezium.reading import DebeziumChange, PartitionReader, SettledRecord, UnreadableRecord
from tests.unit.cdc.wire.debezium import mongodb
from tests.unit.cdc.wire.debezium.recorded import recorded

DATE = {"field": "d", "type": "int32", "optional": False, "name": "io.debezium.time.Date", "version": 1}


def lone(key: bytes, reader: PartitionReader | None = None, offset: int = 5) -> DebeziumChange:
    found = (reader or PartitionReader("d.s.t", 0, lone=True)).read(offset, key, None)
    assert isinstance(found, DebeziumChange), found
    assert found.lone and found.op == "d" and found.value is None
    return found


def test_h570_the_first_record_stands_at_the_lowest_place() -> None:
    found = lone(b'{"id":1}')
    assert (found.pos, found.schema) == (Position(1, 0, 0), None)


def test_h570_it_stands_at_the_lowest_place_of_its_epoch() -> None:
    """All that its partition had before an epoch lies below it."""
    epochs = EpochsState().begin({"public.t": {0: 4}})
    records = [one for one in recorded("sh_operations") if b'"op":"c"' in (one.value or b"")]
    reader = PartitionReader("public.t", 0, epochs=epochs, lone=True)
    before = reader.read(0, records[0].key, records[0].value)
    assert isinstance(before, DebeziumChange) and before.pos.epoch == 1 and not before.lone
    assert lone(b'{"id":77}', reader).pos == Position(2, 0, 0)


def test_h570_a_tombstone_behind_its_delete_is_settled() -> None:
    delete = next(one for one in recorded("sh_operations") if b'"op":"d"' in (one.value or b""))
    reader = PartitionReader("d.s.t", 0, lone=True)
    assert isinstance(reader.read(0, delete.key, delete.value), DebeziumChange)
    assert isinstance(reader.read(1, delete.key, None), SettledRecord)


@pytest.mark.parametrize("first", [True, False])
def test_h570_a_key_is_read_by_the_schema_that_it_embeds(first: bool) -> None:
    """Before there was a row: a date is a number there, and a text where rows are read."""
    key = orjson.dumps({"schema": {"type": "struct", "fields": [DATE]}, "payload": {"d": 19_000}})
    reader = PartitionReader("d.s.t", 0, lone=True)
    if not first:
        lone(b'{"id":1}', reader)
    assert lone(key, pickle.loads(pickle.dumps(reader))).key == b'{"d":"2022-01-08Z"}'


@pytest.mark.parametrize("payload", [{"d": "no number"}, {"other": [1]}])
def test_h570_a_key_that_its_schema_does_not_fit_is_refused(payload: dict[str, object]) -> None:
    key = orjson.dumps({"schema": {"type": "struct", "fields": [DATE]}, "payload": payload})
    found = PartitionReader("d.s.t", 0, lone=True).read(5, key, None)
    assert isinstance(found, UnreadableRecord if "d" in payload else DebeziumChange)


def test_h570_the_key_of_a_document_is_its_id() -> None:
    reader = PartitionReader(mongodb.TOPIC, 0, lone=True, documents=True)
    assert lone(mongodb.key('"a"'), reader).key == b'{"id":"a"}'


def test_h576_it_is_no_place_that_another_row_may_take() -> None:
    """A row that comes without a place of its own takes that of a record before it."""
    source = {"connector": "oracle", "schema": "s", "table": "t", "snapshot": "incremental", "scn": None}
    value = orjson.dumps({"before": None, "after": {"id": 2}, "op": "r", "source": source})
    reader = PartitionReader("d.s.t", 0, lone=True)
    lone(b'{"id":1}', reader)
    assert reader.highest is None
    assert isinstance(reader.read(6, b'{"id":2}', value), UnreadableRecord)


@pytest.mark.parametrize("between", [0, 3])
def test_h576_a_tombstone_is_settled_right_behind_its_delete(between: int) -> None:
    """A delete that was left without a tombstone settles no later one of its key."""
    delete = next(one for one in recorded("sh_operations") if b'"op":"d"' in (one.value or b""))
    reader = PartitionReader("d.s.t", 0, lone=True)
    assert isinstance(reader.read(0, delete.key, delete.value), DebeziumChange)
    found = reader.read(1 + between, delete.key, None)
    assert isinstance(found, DebeziumChange if between else SettledRecord)
