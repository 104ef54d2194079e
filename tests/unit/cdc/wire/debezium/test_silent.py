"""Columns in which an unchanged value may come as NULL: by the catalog, and by a record's own schema."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.topic import TableName
from cdc.wire.debezium.shape import EMBEDDED_VERSIONS, shape_of, silent_columns
from tests.contract.topics import column, numeric, shape


@pytest.mark.parametrize(
    ("made", "readable", "debezium"),
    [
        (column("c", "text"), False, False),
        (column("c", "jsonb"), False, False),
        (column("c", "vector"), True, True),
        (column("c", "polygon"), True, True),
        (column("c", "bit", typmod=64), False, False),
        (column("c", "bit", typmod=65), True, True),
        (column("c", "varbit"), True, True),
        (column("c", "varbit", typmod=64), False, False),
        (column("c", "path"), True, True),
        (column("c", "halfvec"), True, True),
        (column("c", "sparsevec"), True, True),
        (numeric("c", 28, 2), False, False),
        (numeric("c", 29, 2), False, True),
        (column("c", "numeric"), False, True),
        (column("c", "text", array=True), False, False),
        (column("c", "varchar", array=True), False, False),
        (column("c", "bpchar", array=True), False, False),
        (column("c", "json", array=True), False, False),
        (column("c", "jsonb", array=True), False, False),
        (column("c", "bytea", array=True), False, False),
        (column("c", "uuid", array=True), False, False),
        (column("c", "numeric", array=True), True, True),
        (column("c", "time", array=True), True, True),
    ],
)
def test_an_unchanged_value_may_become_null(made: Any, readable: bool, debezium: bool) -> None:
    table = shape(column("id", "int4", key=1), made)
    assert silent_columns(table, "readable") == (["c"] if readable else [])
    assert silent_columns(table, "debezium") == (["c"] if debezium else [])


@pytest.mark.parametrize(
    ("kind", "silent"),
    [("geometry", True), ("public.geometry(Point,4326)", True), ("gis.geography", True), ("public.mood", False)],
)
def test_a_spatial_value_has_no_placeholder(kind: str, silent: bool) -> None:
    table = shape(column("id", "int4", key=1), replace(column("c", "other"), type=kind))
    assert silent_columns(table, "readable") == (["c"] if silent else [])


def test_an_enum_named_like_a_spatial_type_is_none() -> None:
    table = shape(column("id", "int4", key=1), replace(column("c", "enum"), type="public.geometry"))
    assert silent_columns(table, "debezium") == []


def field(column_name: str, kind: str, of: str = "", **more: Any) -> dict[str, Any]:
    parameters = {"__debezium.source.column.type": of} if of else {}
    return {"field": column_name, "type": kind, "optional": True, "parameters": parameters, **more}


def test_a_records_schema_says_which_values_are_silent() -> None:
    fields = [
        field("id", "int32", "INT4", optional=False),
        field("t", "string", "TEXT"),
        field("b", "bytes", "BYTEA"),
        field("bits", "bytes", "VARBIT", name="io.debezium.data.Bits"),
        field("words", "array", "_TEXT", items={"type": "string", "optional": True}),
        field("many", "array", "_INT2", items={"type": "int16", "optional": True}),
    ]
    made = shape_of(fields, ["id"], TableName("public", "t"), "shop.public.t")
    assert made.silent == ("bits", "many")
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


def test_a_custom_converters_struct_has_no_placeholder() -> None:
    fields = [field("id", "int32", "INT4"), field("s", "struct", "", fields=[])]
    assert shape_of(fields, ["id"], TableName("public", "t"), "x").silent == ("s",)


def test_a_value_that_does_not_fit_its_type_names_its_column() -> None:
    made = shape_of([field("d", "int32", name="io.debezium.time.Date")], [], TableName("public", "t"), "x")
    assert made.readable({"d": 1, "other": "x"}) == {"d": "1970-01-02Z", "other": "x"}
    assert made.readable({"d": None}) == {"d": None}
    with pytest.raises(ValueError, match=r"^the value of column d does not fit its type$"):
        made.readable({"d": "soon"})
