"""The shape of a table by a record's own schema."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.record.topic_names import TableName
from cdc.wire.debezium.wrapped import EMBEDDED_VERSIONS, shape_of


def field(column_name: str, kind: str, of: str = "", **more: Any) -> dict[str, Any]:
    parameters = {"__debezium.source.column.type": of} if of else {}
    return {"field": column_name, "type": kind, "optional": True, "parameters": parameters, **more}


def test_a_shape_is_made_of_a_records_schema() -> None:
    fields = [
        field("id", "int32", "INT4", optional=False),
        field("t", "string", "TEXT"),
        field("b", "bytes", "BYTEA"),
        field("bits", "bytes", "VARBIT", name="io.debezium.data.Bits"),
        field("words", "array", "_TEXT", items={"type": "string", "optional": True}),
        field("many", "array", "_INT2", items={"type": "int16", "optional": True}),
    ]
    made = shape_of(fields, ["id"], TableName("public", "t"), "shop.public.t")
    assert [c.type for c in made.schema.columns] == ["int4", "text", "bytea", "varbit", "text[]", "int2[]"]
    assert [(c.attnum, c.nullable, c.key_position) for c in made.schema.columns[:2]] == [(1, False, 1), (2, True, None)]
    assert EMBEDDED_VERSIONS <= made.schema.version < 2 * EMBEDDED_VERSIONS
    assert shape_of(fields, ["id"], TableName("public", "t"), "another").schema.version == made.schema.version
    for other in (fields[:-1], [*fields[:-1], field("many", "array", "_INT4", items={"type": "int32"})]):
        assert shape_of(other, ["id"], TableName("public", "t"), "x").schema.version != made.schema.version
    assert shape_of(fields, ["t"], TableName("public", "t"), "x").schema.version != made.schema.version


def test_a_column_is_what_the_records_schema_says_of_it() -> None:
    """Debezium leaves ``optional`` out where it is the default, and the source's type where it is not propagated."""
    fields: list[dict[str, Any]] = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "v", "type": "string", "parameters": None},
        field("mood", "string", "MOOD", name="io.debezium.data.Enum"),
        field("moods", "array", "_MOOD", items={"type": "string", "name": "io.debezium.data.Enum"}),
    ]
    made = shape_of(fields, ["id"], TableName("public", "t"), "shop.public.t").schema
    assert [(c.name, c.type, c.kind, c.nullable) for c in made.columns] == [
        ("id", "int8", "int8", False),
        ("v", "text", "text", True),
        ("mood", "mood", "enum", True),
        ("moods", "mood[]", "enum", True),
    ]
    assert (made.oid, {c.type_oid for c in made.columns}) == (0, {0})  # no catalog was read


def test_a_shapes_version_is_the_same_in_every_release() -> None:
    """Stores and state topics hold it: another number for the same columns would be a new version of each table."""
    fields = [field("id", "int32", "INT4", optional=False), field("t", "string", "TEXT")]
    assert shape_of(fields, ["id"], TableName("public", "t"), "x").schema.version == 497_342_664


def test_a_value_that_does_not_fit_its_type_names_its_column() -> None:
    made = shape_of([field("d", "int32", name="io.debezium.time.Date")], [], TableName("public", "t"), "x")
    assert made.readable({"d": 1, "other": "x"}) == {"d": "1970-01-02Z", "other": "x"}
    assert made.readable({"d": None}) == {"d": None}
    with pytest.raises(ValueError, match=r"^the value of column d does not fit its type$"):
        made.readable({"d": "soon"})
