"""Debezium's records in a store: the same sinks, unchanged, whatever form the records have."""

from __future__ import annotations

import orjson
import pytest

from cdc.schema import TableSchema
from cdc.topic import TableName
from cdc.wire.debezium.reading import DebeziumChange
from cdc.wire.format import UNAVAILABLE
from sinks.batch import Event, events_of
from sinks.memory import MemoryStore
from tests.contract.topics import Shapes
from tests.unit.cdc.wire.debezium.recorded import Recorded, read_all, recorded


def applied(records: list[Recorded], batch: int) -> MemoryStore:
    """A store that was given the records in batches of this size, and every batch twice."""
    store = MemoryStore()
    sink = store.open()
    shapes: dict[tuple[str, int], TableSchema] = {}
    events = []
    for record, found in zip(records, read_all(records), strict=True):
        if isinstance(found, DebeziumChange):
            assert found.schema is not None
            shapes[record.topic, found.ver] = found.schema
            place = (record.topic, record.partition, record.offset)
            events.append(Event(*place, found.key, found.value, found.pos.text(), found.op, found.ver))
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


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_h38_unchanged_values_are_taken_from_the_store(batch: int) -> None:
    created, update = recorded("toast_schemas")[:2]
    numbers = orjson.loads(created.value or b"")["payload"]["after"]
    said = with_after(update, n=numbers["n"], na=numbers["na"])
    (row,) = rows(applied([created, said], batch), TableName("public", "toasty")).values()
    assert row is not None
    assert row["x"] == 2
    assert row["t"] == "t" * 3000
    assert "debezium_unavailable" not in str(row)


def with_after(record: Recorded, **values: object) -> Recorded:
    document = orjson.loads(record.value or b"")
    document["payload"]["after"] |= values
    return record._replace(value=orjson.dumps(document))


@pytest.mark.parametrize("batch", [1, 100])
def test_h125_a_numbers_null_for_an_unchanged_value_is_refused(batch: int) -> None:
    """As the connector wrote it: a large numeric in the default encoding."""
    with pytest.raises(AssertionError, match="became NULL or did not chan"):
        applied(recorded("toast_schemas"), batch)


def lacking(record: Recorded, **envelope: object) -> Recorded:
    """The record as one that lacks its value v: flat, or in an envelope."""
    document = orjson.loads(record.value or b"")
    row = document["payload"] | {"v": UNAVAILABLE}
    if envelope:
        fields = document["schema"]["fields"]
        after = {"type": "struct", "fields": fields, "field": "after"}
        named = [after, {"type": "struct", "field": "source"}, {"type": "string", "field": "op"}]
        document["schema"] |= {"fields": named}
        row = {"before": None, "after": row, **envelope}
    return record._replace(value=orjson.dumps({**document, "payload": row}))


ORACLE = {"connector": "oracle", "schema": "public", "table": "flat", "scn": "7", "commit_scn": "9"}


@pytest.mark.parametrize("envelope", [{}, {"source": ORACLE, "op": "u"}])
def test_h586_a_row_whose_value_nobody_has_is_refused(envelope: dict[str, object]) -> None:
    """A flat row, or one of Oracle's: it was taken for one that the log says more of, and was missing in the store."""
    first = recorded("flat_schemas")[0]
    with pytest.raises(AssertionError, match="the value of v did not change and nothing here holds it"):
        applied([lacking(first, **envelope)], 1)


@pytest.mark.parametrize("batch", [1, 100])
def test_flat_rows(batch: int) -> None:
    held = rows(applied(recorded("flat_schemas"), batch), TableName("public", "flat"))
    assert held == {
        "1": {"id": 1, "v": "c", "at": "2020-01-01T10:00:00Z"},
        "2": None,
        "3": {"id": 3, "v": "x", "at": None},
    }


@pytest.mark.parametrize("name", ["key_schemas", "key_plain"])
def test_a_truncate_removes_what_came_before_it(name: str) -> None:
    held = rows(applied(recorded(name), 100), TableName("public", "k"))
    assert not [row for row in held.values() if row]
    before = [r for r in recorded(name) if b'"op":"t"' not in (r.value or b"")]
    assert [row and row["v"] for row in rows(applied(before, 100), TableName("public", "k")).values()] == ["again"]
