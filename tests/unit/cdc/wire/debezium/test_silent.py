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
        (numeric("c", 28, 2), False, False),
        (numeric("c", 29, 2), False, True),
        (column("c", "numeric"), False, True),
        (column("c", "text", array=True), False, False),
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
