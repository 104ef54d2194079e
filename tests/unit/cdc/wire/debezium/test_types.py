"""Types and values by the embedded schema: whatever the encoding, the readable one comes out."""

from typing import Any

import pytest

from cdc.wire.debezium.connect_types import column_type
from tests.unit.cdc.wire.debezium.recorded import after, changes, recorded

READABLE = {
    "id": 1,
    "b": True,
    "i8": 9007199254740993,
    "n": "1.10",
    "nn": "10.1111",
    "m": "1234.11",
    "bp": "bp   ",
    "j": '{"a":1}',
    "jb": '{"b": [1.10]}',
    "by": "AQI=",
    "d": "2016-11-04Z",
    "ti": "13:51:30.123456Z",
    "ti3": "13:51:30.123Z",
    "ttz": "09:51:30.5Z",
    "ts": "2016-11-04T13:51:30.123456Z",
    "ts3": "2016-11-04T13:51:30.123Z",
    "tstz": "2016-11-04T13:51:30.12Z",
    "e": "ok",
    "b1": True,
    "b8": "qg==",
    "ia": [1, None, 3],
    "na": ["1.5", "2.5"],
    "tsa": ["2016-11-04T13:51:30Z"],
    "r": "[1,5)",
    "c": "(1,x)",
    "q": "'a' & 'b'",
    "o": 12,
    "xx": "7",
}
KINDS = {
    "id": "int4",
    "i2": "int2",
    "f4": "float4",
    "f8": "float8",
    "n": "numeric",
    "nn": "numeric",
    "m": "money",
    "vc": "varchar",
    "bp": "bpchar",
    "nm": "name",
    "j": "json",
    "jb": "jsonb",
    "by": "bytea",
    "d": "date",
    "ti3": "time",
    "ttz": "timetz",
    "ts": "timestamp",
    "tstz": "timestamptz",
    "iv": "interval",
    "u": "uuid",
    "ip": "inet",
    "e": "enum",
    "b1": "bool",
    "b8": "bit",
    "vb": "varbit",
    "ia": "int4",
    "ta": "text",
    "na": "numeric",
    "r": "int4range",
    "pt": "point",
    "ci": "circle",
    "c": "other",
    "o": "oid",
}


@pytest.mark.parametrize("name", ["types_readable", "types_default"])
def test_every_type_comes_out_readable(name: str) -> None:
    (change,) = changes(recorded(name))
    row = after(change)
    assert {column: row[column] for column in READABLE} == READABLE
    schema = change.schema
    assert schema is not None
    assert schema.encoding == "readable"
    columns = {column.name: column for column in schema.columns}
    assert {name: columns[name].kind for name in KINDS} == KINDS
    assert (columns["n"].precision, columns["n"].scale) == (10, 2)
    assert columns["nn"].typmod == -1
    assert (columns["vc"].precision, columns["bp"].precision) == (20, 5)
    assert (columns["ts3"].precision, columns["ts"].precision) == (3, None)
    assert (columns["b8"].precision, columns["vb"].precision) == (8, None)
    assert [c.name for c in schema.columns if c.array] == ["ia", "ta", "na", "tsa"]
    assert [c.name for c in schema.key] == ["id"]
    assert not columns["id"].nullable


def test_intervals_lose_their_months_in_the_default_encoding() -> None:
    (readable,) = changes(recorded("types_readable"))
    (default,) = changes(recorded("types_default"))
    assert after(readable)["iv"] == "P1Y2M3DT4H5M6.78S"
    assert after(default)["iv"] == "PT37091106.78S"


def test_both_encodings_have_one_shape_each_for_ever() -> None:
    once, again = changes(recorded("types_default"))[0], changes(recorded("types_default"))[0]
    assert once.ver == again.ver
    assert changes(recorded("key_plain"))[0].ver != once.ver


def field(name: str, connect: str, **more: Any) -> dict[str, Any]:
    return {"field": "c", "type": connect, "name": name, "optional": True, **more}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (field("io.debezium.time.Date", "int32"), 2147483647, "infinity"),
        (field("io.debezium.time.Date", "int32"), -719163, "0000-12-31Z"),
        (field("io.debezium.time.MicroTime", "int64"), 86_400_000_000, "24:00:00Z"),
        (field("io.debezium.time.MicroTime", "int64"), -3_600_500_000, "-01:00:00.5Z"),
        (field("io.debezium.time.NanoTime", "int64"), 1, "00:00:00.000000001Z"),
        (field("io.debezium.time.MicroTimestamp", "int64"), 9223372036825200000, "infinity"),
        (field("io.debezium.time.Timestamp", "int64"), -1, "1969-12-31T23:59:59.999Z"),
        (field("io.debezium.time.NanoTimestamp", "int64"), 1, "1970-01-01T00:00:00.000000001Z"),
        (field("org.apache.kafka.connect.data.Timestamp", "int64"), 1500, "1970-01-01T00:00:01.5Z"),
        (field("org.apache.kafka.connect.data.Time", "int32"), 1500, "00:00:01.5Z"),
        (field("org.apache.kafka.connect.data.Date", "int32"), 1, "1970-01-02Z"),
        (field("io.debezium.time.MicroDuration", "int64"), -1_500_000, "PT-1.5S"),
        (field("io.debezium.data.VariableScaleDecimal", "struct"), {"scale": 4, "value": "AYr3"}, "10.1111"),
        (
            field("org.apache.kafka.connect.data.Decimal", "bytes", parameters={"scale": "2"}),
            "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
            "__debezium_unavailable_value",
        ),
    ],
)
def test_h31_values_at_the_edges(schema: dict[str, Any], value: Any, expected: str) -> None:
    convert = column_type(schema).convert
    assert convert is not None
    assert convert(value) == expected
