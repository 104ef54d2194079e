"""Debezium's records in a store: the same sinks, unchanged, whatever form the records have."""

from __future__ import annotations

import orjson
import pytest

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.debezium.reading import DebeziumChange
from sinks.contract.batch import Event, events_of
from sinks.contract.memory_store import MemoryStore
from tests.contract.topics import Shapes
from tests.unit.cdc.wire.debezium.recorded import Recorded, read_all, recorded


def applied(records: list[Recorded], batch: int) -> MemoryStore:
    """A store that was given the records in batches of this size, and every batch twice."""
    store = MemoryStore()
    sink = store.open()
    shapes: dict[tuple[str, int], TableSchema] = {}
    newest: dict[str, TableSchema] = {}
    events = []
    for record, found in zip(records, read_all(records), strict=True):
        if isinstance(found, DebeziumChange):
            if found.schema is not None:
                newest[record.topic] = found.schema
            shape = newest[record.topic]  # of a tombstone the newest
            shapes[record.topic, shape.version] = shape
            place = (record.topic, record.partition, record.offset)
            events.append(Event(*place, found.key, found.value, found.pos.text(), found.op, shape.version))
    schemas = Shapes(*shapes.values())
    for start in range(0, len(events), batch):
        for _ in range(2):
            done = sink.sink.apply(events_of(events[start : start + batch]), schemas)
            assert not done.refused
    return store


def rows(store: MemoryStore, table: TableName) -> dict[str, dict[str, object] | None]:
    return {key: orjson.loads(held.row) if held.row else None for key, held in store.table(table).items()}


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_snapshots_streams_and_later_snapshots_end_as_the_source(batch: int) -> None:
    held = rows(applied(recorded("snapshots_schemas"), batch), TableName("public", "a"))
    assert {key: row and row["v"] for key, row in held.items()} == {"1": "e2c", "3": "t2", "10": "ten"}
    assert {row and row["n"] for row in held.values()} == {"3.00"}


@pytest.mark.parametrize("batch", [1, 100])
def test_flat_rows(batch: int) -> None:
    held = rows(applied(recorded("flat_schemas"), batch), TableName("public", "flat"))
    assert held == {
        "1": {"id": 1, "v": "c", "at": "2020-01-01T10:00:00Z"},
        "2": None,
        "3": {"id": 3, "v": "x", "at": None},
    }


@pytest.mark.parametrize("name", ["key_schemas", "key_plain"])
def test_a_truncate_removes_nothing_from_a_store(name: str) -> None:
    """It has no place beside the other partitions. ``cdc verify`` finds the rows."""
    held = rows(applied(recorded(name), 100), TableName("public", "k"))
    assert [row and row["v"] for row in held.values()] == ["again"]
