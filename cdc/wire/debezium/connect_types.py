"""A column's type from the schema that JsonConverter embeds, and its values as the readable encoding has them.

``column.propagate.source.type`` puts the database's own type beside Connect's. Where it is there, it decides the
kind, and lengths and scales come with it. Without it the semantic name does (``io.debezium.time.Date``).
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from cdc.wire.format import UNAVAILABLE
from cdc.wire.plain import each, iso_date, unscaled_text
from cdc.wire.types import CATALOG_KINDS, EXTENSION_KINDS, FRACTIONAL_SECONDS, Plain, kinds

Convert = Callable[[Any], Any]

_SOURCE = "__debezium.source.column."
_UNBOUNDED = 2147483647
_UNAVAILABLE_BASE64 = binascii.b2a_base64(UNAVAILABLE.encode(), newline=False).decode()
_DAY_US = int(timedelta(days=1).total_seconds() * 1_000_000)

_KINDS = (CATALOG_KINDS | EXTENSION_KINDS) - {"char"}
"""Postgres' "char" is a byte. A char of other databases is a text."""
_NUMBERS = kinds(Plain.BOOLEAN, Plain.INTEGER, Plain.FLOAT) | {"bytea"}
_NUMERIC = frozenset(("numeric", "decimal", "number"))
_BYTES = frozenset(("bytea", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "image", "raw"))
_CONNECT_KINDS = {
    "boolean": "bool",
    "int8": "int2",
    "int16": "int2",
    "int32": "int4",
    "int64": "int8",
    "float": "float4",
    "float32": "float4",
    "double": "float8",
    "float64": "float8",
    "string": "text",
    "bytes": "bytea",
}
_INFINITE_DATES = {2146033979: "infinity", _UNBOUNDED: "infinity", -2147472691: "-infinity", -(2**31): "-infinity"}
_INFINITE_MICROS = {
    9223372036825200000: "infinity",
    9223372036854775807: "infinity",
    -9223372036832400000: "-infinity",
    -9223372036854775808: "-infinity",
}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The facts for :class:`cdc.record.schema.Column`, and the function that makes a value readable (None: it is)."""

    kind: str
    typmod: int = -1
    array: bool = False
    convert: Convert | None = None


def column_type(field: Mapping[str, Any]) -> ColumnType:
    """The type of one field of a row's struct."""
    parameters = field.get("parameters") or {}
    source = str(parameters.get(f"{_SOURCE}type") or "").lower()
    if field["type"] == "array":
        element = _scalar(field["items"], source.removeprefix("_"), parameters)
        convert = None if element.convert is None else each(element.convert)
        return ColumnType(element.kind, element.typmod, True, convert)
    return _scalar(field, source, parameters)


def _scalar(field: Mapping[str, Any], source: str, parameters: Mapping[str, Any]) -> ColumnType:
    name = field.get("name") or ""
    if name in _BY_NAME:
        return _named(name, source, parameters)
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(field.get("parameters") or {}, source)
    if field["type"] in ("struct", "map"):
        geometry = name.startswith("io.debezium.data.geometry.")
        return ColumnType(source if source in _KINDS else "other", convert=None if geometry else _text_of)
    if field["type"] == "bytes":
        # A type that Debezium does not know comes as the bytes of its text.
        known = not source or source in _BYTES
        return ColumnType("bytea") if known else ColumnType("other", convert=_or_unavailable(_decoded))
    kind = _plain_kind(field["type"], source)
    return ColumnType(kind, _typmod(kind, parameters))


def _named(name: str, source: str, parameters: Mapping[str, Any]) -> ColumnType:
    kind, convert = _BY_NAME[name]
    if (kind, source) in (("jsonb", "json"), ("varbit", "bit"), ("vector", "halfvec"), ("jsonb", "hstore")):
        kind = source
    return ColumnType(kind, _typmod(kind, parameters), False, _or_unavailable(convert))


def _decimal(parameters: Mapping[str, Any], source: str) -> ColumnType:
    if source == "money":
        # Its schema says scale 0, its values have two digits after the point.
        return ColumnType("money", convert=_or_unavailable(lambda value: unscaled_text(value, 2)))
    scale = int(parameters.get("scale", 0))
    typmod = _numeric_typmod(parameters.get("connect.decimal.precision"), scale)
    return ColumnType("numeric", typmod, False, _or_unavailable(lambda value: unscaled_text(value, scale)))


def _plain_kind(connect: str, source: str) -> str:
    """The kind of a number, a boolean or a text: the database's own word where it says more than Connect's."""
    if connect == "string":
        return "numeric" if source in _NUMERIC else source if source in _KINDS - _NUMBERS else "text"
    if source == "oid" and connect in ("int32", "int64"):
        return source
    return _CONNECT_KINDS[connect]


def _typmod(kind: str, parameters: Mapping[str, Any]) -> int:
    length, scale = parameters.get(f"{_SOURCE}length"), parameters.get(f"{_SOURCE}scale")
    if kind == "numeric":
        return _numeric_typmod(length, int(scale or 0))
    if kind in FRACTIONAL_SECONDS:
        return int(scale) if scale is not None and 0 <= int(scale) < 6 else -1
    if length is None or int(length) in (0, _UNBOUNDED):
        return -1
    if kind in ("bpchar", "varchar"):
        return int(length) + 4
    return int(length) if kind in ("bit", "varbit") else -1


def _numeric_typmod(precision: Any, scale: int) -> int:
    """As pg_attribute has it. -1 for a number of any length."""
    if precision is None or not 0 < int(precision) <= 1000:
        return -1
    return (int(precision) << 16 | scale & 0x7FF) + 4


def _or_unavailable(convert: Convert | None) -> Convert | None:
    """The placeholder of an unchanged value stays what it is, in the shape that the column's type gives it."""
    if convert is None:
        return None

    def one(value: Any) -> Any:
        return UNAVAILABLE if value in (UNAVAILABLE, _UNAVAILABLE_BASE64) else convert(value)

    return one


def _variable_scale(value: Any) -> str:
    return unscaled_text(value["value"], value["scale"])


def _text_of(value: Any) -> str:
    return orjson.dumps(value).decode()


def _decoded(value: str) -> str:
    return binascii.a2b_base64(value, strict_mode=True).decode("utf-8")


def _date(days: int) -> str:
    return _INFINITE_DATES.get(days) or f"{iso_date(days)}Z"


def _clock(nanos: int) -> str:
    """A time of day. MySQL has negative ones, and of over a day."""
    seconds, part = divmod(abs(nanos), 1_000_000_000)
    fraction = f".{part:09d}".rstrip("0") if part else ""
    sign = "-" if nanos < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def _time(unit_ns: int) -> Convert:
    return lambda value: f"{_clock(value * unit_ns)}Z"


def _timestamp(unit_ns: int) -> Convert:
    def text(value: int) -> str:
        infinite = _INFINITE_MICROS.get(value)
        if infinite is not None:
            return infinite
        days, rest = divmod(value * unit_ns, _DAY_US * 1000)
        return f"{iso_date(days)}T{_clock(rest)}Z"

    return text


def _interval(unit_ns: int) -> Convert:
    def text(value: int) -> str:
        seconds, part = divmod(abs(value) * unit_ns, 1_000_000_000)
        fraction = f".{part:09d}".rstrip("0") if part else ""
        return f"PT{'-' if value < 0 else ''}{seconds}{fraction}S"

    return text


_MS, _US, _NS = 1_000_000, 1_000, 1

_BY_NAME: Mapping[str, tuple[str, Convert | None]] = {
    "io.debezium.time.Date": ("date", _date),
    "io.debezium.time.Time": ("time", _time(_MS)),
    "io.debezium.time.MicroTime": ("time", _time(_US)),
    "io.debezium.time.NanoTime": ("time", _time(_NS)),
    "io.debezium.time.Timestamp": ("timestamp", _timestamp(_MS)),
    "io.debezium.time.MicroTimestamp": ("timestamp", _timestamp(_US)),
    "io.debezium.time.NanoTimestamp": ("timestamp", _timestamp(_NS)),
    "io.debezium.time.ZonedTimestamp": ("timestamptz", None),
    "io.debezium.time.ZonedTime": ("timetz", None),
    "io.debezium.time.IsoDate": ("date", None),
    "io.debezium.time.IsoTime": ("time", None),
    "io.debezium.time.IsoTimestamp": ("timestamp", None),
    "io.debezium.time.MicroDuration": ("interval", _interval(_US)),
    "io.debezium.time.NanoDuration": ("interval", _interval(_NS)),
    "io.debezium.time.Interval": ("interval", None),
    "io.debezium.time.Year": ("int4", None),
    "org.apache.kafka.connect.data.Date": ("date", _date),
    "org.apache.kafka.connect.data.Time": ("time", _time(_MS)),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp", _timestamp(_MS)),
    "io.debezium.data.VariableScaleDecimal": ("numeric", _variable_scale),
    "io.debezium.data.Json": ("jsonb", None),
    "io.debezium.data.Xml": ("xml", None),
    "io.debezium.data.Uuid": ("uuid", None),
    "io.debezium.data.Ltree": ("ltree", None),
    "io.debezium.data.Tsvector": ("tsvector", None),
    "io.debezium.data.Enum": ("enum", None),
    "io.debezium.data.EnumSet": ("text", None),
    "io.debezium.data.Bits": ("varbit", None),
    "io.debezium.data.DoubleVector": ("vector", None),
    "io.debezium.data.FloatVector": ("halfvec", None),
}
"""Semantic name -> kind, and how its value becomes readable."""
