"""Types of MySQL and MariaDB against the kinds that the log has: what is compared, how, and what is named as not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName
from connectors.mysql.columns import Readings, SourceColumn, readings_of, without

TABLE = TableName("shop", "orders")


def stored(**kinds: str) -> TableSchema:
    """A shape of the log whose key is ``id``."""
    columns = tuple(
        Column(name=name, attnum=number, type=kind, type_oid=0, kind=kind, key_position=1 if name == "id" else None)
        for number, (name, kind) in enumerate({"id": "int4", **kinds}.items(), start=1)
    )
    return TableSchema(
        table=TABLE,
        topic="shop.shop.orders",
        version=7,
        oid=0,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=columns,
    )


def source(declared: str, *, nullable: bool = True) -> SourceColumn:
    return SourceColumn("v", declared.partition("(")[0].split()[0], declared, nullable)


ID = SourceColumn("id", "int", "int(11)", False)


def readings(column: SourceColumn, kind: str) -> Readings:
    found = readings_of(TABLE, "t", [ID, column], stored(v=kind), ["id"])
    assert isinstance(found, Readings)
    return found


@pytest.mark.parametrize(
    ("declared", "kind", "value", "text"),
    [
        ("int(10) unsigned", "int8", 4294967295, 4294967295),
        ("tinyint(1)", "bool", 1, True),
        ("bigint(20) unsigned", "numeric", 2**64 - 1, "18446744073709551615"),
        ("bigint(20) unsigned", "int8", 2**64 - 1, -1),
        ("decimal(10,2)", "numeric", "12.50", "12.50"),
        ("decimal(10,2) unsigned", "text", Decimal("12.50"), "12.50"),
        ("double", "float8", 0.1, 0.1),
        ("varchar(9)", "varchar", "é😀", "é😀"),
        ("set('a','b')", "text", "a,b", "a,b"),
        ("binary(4)", "bytea", b"\x01\x02\0\0", "AQIAAA=="),
        ("date", "date", "2024-02-29", "2024-02-29Z"),
        ("date", "date", "0000-00-00", None),
        ("date", "date", "0012-05-06", "2012-05-06Z"),
        ("datetime(6)", "timestamp", "2024-01-02 03:04:05.123450", "2024-01-02T03:04:05.123450Z"),
        ("timestamp", "timestamptz", "0000-00-00 00:00:00", "1970-01-01T00:00:00Z"),
        ("time", "time", "-838:59:59", "-838:59:59Z"),
        ("year(4)", "int4", 2024, 2024),
        ("bit(1)", "bool", b"\1", True),
        ("bit(10)", "varbit", b"\2\1", "AQI="),
        ("json", "jsonb", '{"a": 1}', '{"a": 1}'),
    ],
)
def test_h132_a_value_is_as_the_connector_writes_it(declared: str, kind: str, value: Any, text: Any) -> None:
    found = readings(source(declared), kind)
    assert not found.left_out
    assert found.readings[1].readable(value) == text


def test_h132_an_impossible_day_is_1970_in_a_not_null_column() -> None:
    found = readings(source("datetime", nullable=False), "timestamp")
    assert found.readings[1].readable("2024-00-10 00:00:00") == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("declared", "kind", "why"),
    [
        ("float(7,3)", "float8", "six digits"),
        ("float", "float4", "six digits"),
        ("point", "other", "type point are not compared"),
        ("inet6", "text", "type inet6 are not compared"),
        ("date", "int4", "it is date in the source and int4 in the log"),
        ("blob", "text", "it is blob in the source and text in the log"),
    ],
)
def test_h132_a_type_not_known_to_be_written_alike_is_left_out(declared: str, kind: str, why: str) -> None:
    found = readings(source(declared), kind)
    assert why in found.left_out["v"]
    assert [column.name for column in found.shape.columns] == ["id"]
    assert [column.name for column in without(stored(v=kind), found.left_out).columns] == ["id"]


def test_h132_unknown_columns_and_dropped_ones_are_left_out() -> None:
    found = readings_of(TABLE, "t", [ID, source("int(11)")], stored(gone="text"), ["id"])
    assert isinstance(found, Readings)
    assert "no such column" in found.left_out["v"]
    assert [column.name for column in found.shape.columns] == ["id"]


def test_a_table_whose_key_cannot_be_compared_is_refused() -> None:
    shape = stored(v="float4")
    keyed = TableSchema(
        **{
            **{name: getattr(shape, name) for name in shape.__slots__},
            "columns": tuple(
                Column(name=c.name, attnum=c.attnum, type=c.type, type_oid=0, kind=c.kind, key_position=c.attnum)
                for c in shape.columns
            ),
        }
    )
    refused = readings_of(TABLE, "t", [ID, source("float")], keyed, ["id", "v"])
    assert isinstance(refused, str)
    assert refused.startswith("its key has the column v: of a float")
    assert readings_of(TABLE, "t", [ID], None, []) == "it has no primary key"


def test_of_a_table_absent_from_the_log_only_the_key_is_read() -> None:
    found = readings_of(TABLE, "t", [ID, source("point")], None, ["id"])
    assert isinstance(found, Readings)
    assert [(c.name, c.kind) for c in found.shape.columns] == [("id", "int8")]
    assert not found.left_out
