"""What Debezium leaves unsaid of a value that did not change and is stored out of line (H125)."""

from __future__ import annotations

import pickle
from typing import Any

import orjson
import pytest

from cdc.wire.debezium.reading import DebeziumChange, PartitionReader
from cdc.wire.unavailable import NULL_OR_UNCHANGED, UUID, is_unavailable, may_be_unavailable
from tests.unit.cdc.wire.debezium.recorded import after

ID = {"type": "int32", "optional": False, "field": "id"}
SOURCE = {"connector": "postgresql", "schema": "s", "table": "t", "snapshot": "false", "sequence": '["4096","4120"]'}


def field(type_: str, source: str, **more: Any) -> dict[str, Any]:
    parameters = {"__debezium.source.column.type": source.upper()} | more.pop("parameters", {})
    return {"type": type_, "optional": True, "field": "v", "parameters": parameters, **more}


def array(items: str, source: str, **more: Any) -> dict[str, Any]:
    return field("array", f"_{source}", items={"type": items, "optional": True, **more})


SILENT = {
    "date[]": array("string", "date", name="io.debezium.time.IsoDate"),
    "timestamp[]": array("string", "timestamp", name="io.debezium.time.IsoTimestamp"),
    "numeric[]": array("string", "numeric"),
    "bool[]": array("boolean", "bool"),
    "inet[]": array("string", "inet"),
    "enum[]": array("string", "mood", name="io.debezium.data.Enum"),
    "varbit": field("bytes", "varbit", name="io.debezium.data.Bits"),
    "path": field("struct", "path", name="io.debezium.data.geometry.Geometry", fields=[]),
    "polygon": field("struct", "polygon", name="io.debezium.data.geometry.Geometry", fields=[]),
    "numeric": field("bytes", "numeric", name="org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}),
}
DECIMAL = "org.apache.kafka.connect.data.Decimal"
LENGTH = "__debezium.source.column.length"
LARGE = {
    "numeric(29,2)": field("bytes", "numeric", name=DECIMAL, parameters={"connect.decimal.precision": "29"}),
    "varbit(65)": field("bytes", "varbit", name="io.debezium.data.Bits", parameters={LENGTH: "65"}),
}
SMALL = {
    "numeric(28,2)": field("bytes", "numeric", name=DECIMAL, parameters={"connect.decimal.precision": "28"}),
    "varbit(64)": field("bytes", "varbit", name="io.debezium.data.Bits", parameters={LENGTH: "64"}),
    "bit(8)": field("bytes", "bit", name="io.debezium.data.Bits", parameters={LENGTH: "8"}),
}
SAID = {
    "text": field("string", "text"),
    "text[]": array("string", "text"),
    "int4[]": array("int32", "int4"),
    "int8[]": array("int64", "int8"),
    "uuid[]": array("string", "uuid", name="io.debezium.data.Uuid"),
    "bytea": field("bytes", "bytea"),
    "jsonb": field("string", "jsonb", name="io.debezium.data.Json"),
    "int4": field("int32", "int4"),
    "timestamptz": field("string", "timestamptz", name="io.debezium.time.ZonedTimestamp"),
}


def record(column: dict[str, Any], value: Any, *, op: str = "u", before: Any = None, **source: Any) -> bytes:
    row = {"type": "struct", "fields": [ID, column], "optional": True, "field": "after"}
    fields = [row, {"type": "struct", "field": "source"}, {"type": "string", "field": "op"}]
    payload = {"before": before, "after": {"id": 1, "v": value}, "source": SOURCE | source, "op": op}
    return orjson.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload})


def read(column: dict[str, Any], value: Any, **more: Any) -> tuple[Any, DebeziumChange]:
    found = PartitionReader("d.s.t", 0).read(0, b'{"id":1}', record(column, value, **more))
    assert isinstance(found, DebeziumChange), found
    return after(found)["v"], found


@pytest.mark.parametrize("kind", SILENT)
def test_h125_a_null_of_a_type_without_placeholder_is_marked(kind: str) -> None:
    marked, change = read(SILENT[kind], None)
    assert marked == NULL_OR_UNCHANGED
    assert is_unavailable(marked)
    # The sink looks at the columns that may lack a value.
    assert change.schema is not None and may_be_unavailable(change.schema.columns[1])


@pytest.mark.parametrize("kind", SMALL | LARGE)
def test_h577_a_null_of_what_is_never_out_of_line_is_one(kind: str) -> None:
    """Else each update to NULL of a price went to the dead letters, and its key waited."""
    assert read((SMALL | LARGE)[kind], None)[0] == (None if kind in SMALL else NULL_OR_UNCHANGED)


@pytest.mark.parametrize("kind", SAID)
def test_h125_a_null_of_a_type_with_placeholder_is_one(kind: str) -> None:
    assert read(SAID[kind], None)[0] is None


def test_h125_a_row_before_or_a_new_row_leaves_nothing_unsaid() -> None:
    varbit = SILENT["varbit"]
    assert read(varbit, None, before={"id": 1, "v": None})[0] is None
    assert read(varbit, None, op="c")[0] is None
    assert read(varbit, None, op="r", snapshot="true")[0] is None
    place: dict[str, Any] = {"connector": "mysql", "file": "bin.1", "pos": 4, "db": "s"}
    assert read(varbit, None, **place)[0] is None


def test_h125_the_placeholder_of_a_uuid_array_is_known() -> None:
    assert read(SAID["uuid[]"], [UUID])[0] == ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]
    assert is_unavailable([UUID])


def test_h125_a_connector_that_asks_again_says_every_null() -> None:
    """Debezium's ReselectColumnsPostProcessor: what is NULL behind it is NULL in the database."""
    reader = PartitionReader("d.s.t", 0, reselected=True)
    found = reader.read(0, b'{"id":1}', record(SILENT["varbit"], None))
    assert isinstance(found, DebeziumChange)
    assert after(found)["v"] is None


def moved_to(reader: PartitionReader, value: Any = None, column: dict[str, Any] = SILENT["numeric[]"]) -> Any:
    """The value of a row that has come from another key."""
    found = reader.read(reader.next_offset, b'{"id":1}', record(column, value, op="c"), moved=True)
    assert isinstance(found, DebeziumChange), found
    return after(found)["v"]


def test_h585_a_row_from_another_key_may_hold_an_unchanged_value() -> None:
    """Debezium writes an update of the key as a delete and a create, and the create has the new row alone."""
    array = SILENT["numeric[]"]
    reader = PartitionReader("d.s.t", 0)
    assert moved_to(reader) == NULL_OR_UNCHANGED
    assert moved_to(reader, ["1.0"]) == ["1.0"]
    assert moved_to(PartitionReader("d.s.t", 0), column=SAID["text[]"]) is None
    assert moved_to(PartitionReader("d.s.t", 0, reselected=True)) is None
    created = reader.read(3, b'{"id":1}', record(array, None, op="c"))
    assert isinstance(created, DebeziumChange)
    assert after(created)["v"] is None, "of a new row it is one"


@pytest.mark.parametrize("op", ["u", "d"])
def test_h585_the_changes_before_it_say_whose_null_it_is(op: str) -> None:
    """With REPLICA IDENTITY FULL Debezium takes the value from the row before. One change without it ends that."""
    array = SILENT["numeric[]"]
    reader = pickle.loads(pickle.dumps(PartitionReader("d.s.t", 0)))
    reader.read(0, b'{"id":7}', record(array, None, op="d", before={"id": 7, "v": None}))
    assert moved_to(reader) == NULL_OR_UNCHANGED, "the key alone"
    reader.read(2, b'{"id":7}', record(array, None, op=op, before={"id": 7, "v": ["1.0"]}))
    assert moved_to(pickle.loads(pickle.dumps(reader))) is None
    reader.read(3, b'{"id":8}', record(array, ["1.0"]))
    assert moved_to(reader) == NULL_OR_UNCHANGED


def test_h585_a_default_is_no_row_before() -> None:
    """Debezium writes it in the place of a value that it does not have."""
    array = SILENT["numeric[]"] | {"default": ["0"]}
    reader = PartitionReader("d.s.t", 0)
    reader.read(0, b'{"id":7}', record(array, None, op="d", before={"id": 7, "v": ["0"]}))
    assert moved_to(reader, column=array) == NULL_OR_UNCHANGED
