"""The text of a MySQL or MariaDB value in the stores, and the columns that cannot be compared. Pure.

The log says of which kind a column is there (see :mod:`cdc.wire.debezium.connect_types`), the server of which type it
is here. A pair of the two that is not in the table below is left out, by name: a column counts as compared only where
both sides are known to write equal values alike.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName
from cdc.wire.types import INTEGERS

Readable = Callable[[Any], Any]
"""From what the driver gives to what the readable encoding has."""


class Form(StrEnum):
    """How a column is selected."""

    PLAIN = "as it is"
    TEXT = "cast to text"


class SourceColumn(NamedTuple):
    """A column as the catalog has it. ``type``: one word. ``declared``: all of it, as ``int(10) unsigned``."""

    name: str
    type: str
    declared: str
    nullable: bool


class ColumnReading(NamedTuple):
    """A column that is compared: how it is selected, and what makes a value readable."""

    column: SourceColumn
    form: Form
    readable: Readable


class Readings(NamedTuple):
    """A table, ready to be compared. ``left_out``: column -> why."""

    shape: TableSchema
    readings: tuple[ColumnReading, ...]
    left_out: Mapping[str, str]


def readings_of(
    table: TableName, topic: str, source: Sequence[SourceColumn], stored: TableSchema | None, key: Sequence[str]
) -> Readings | str:
    """How a table is compared. A sentence where it cannot be. ``stored``: its newest shape in the log, None where no
    record was ever read. ``key``: the names of its primary key, for that case.
    """
    known = {column.name: column for column in stored.columns} if stored is not None else None
    keyed = [column.name for column in stored.key] if stored is not None else list(key)
    if not keyed:
        return "it has no primary key"
    kept: list[tuple[ColumnReading, Column]] = []
    left_out: dict[str, str] = {}
    for number, column in enumerate(source, start=1):
        if known is None and column.name not in keyed:
            continue  # The log holds no row of the table: each is missing, with any values.
        logged = known.get(column.name) if known is not None else _unlogged(column, number)
        found = _reading(column, logged)
        if isinstance(found, str):
            left_out[column.name] = found
        elif logged is not None:
            position = keyed.index(column.name) + 1 if column.name in keyed else None
            kept.append((found, Column(**{**_members(logged), "attnum": number, "key_position": position})))
    lacking = [name for name in keyed if name not in {reading.column.name for reading, _ in kept}]
    if lacking:
        why = left_out.get(lacking[0], "the source has no such column any more")
        return f"its key has the column {lacking[0]}: {why}"
    shape = TableSchema(
        table=table,
        topic=topic,
        version=stored.version if stored is not None else 1,
        oid=0,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=tuple(column for _, column in kept),
    )
    return Readings(shape, tuple(reading for reading, _ in kept), left_out)


def without(shape: TableSchema, left_out: Mapping[str, str]) -> TableSchema:
    """The shape that the stores know, without the columns that are not compared."""
    columns = tuple(column for column in shape.columns if column.name not in left_out)
    return TableSchema(**{**_members(shape), "columns": columns})


def _members(record: Column | TableSchema) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _unlogged(column: SourceColumn, number: int) -> Column:
    """A key column of a table of which the log holds nothing."""
    forms = _TYPES.get(column.type)
    kind = next(iter(forms.readable)) if forms is not None else "other"
    return Column(name=column.name, attnum=number, type=column.declared, type_oid=0, kind=kind)


def _reading(column: SourceColumn, logged: Column | None) -> ColumnReading | str:
    if column.type == "float":
        return f"of a {column.declared} a snapshot brings six digits into the log, and the stream all of them"
    forms = _TYPES.get(column.type)
    if forms is None:
        return f"values of type {column.type} are not compared"
    if logged is None:
        return "the log's newest record of the table has no such column"
    made = forms.readable.get(logged.kind) if not logged.array else None
    if made is None:
        return f"it is {column.declared} in the source and {logged.type} in the log"
    return ColumnReading(column, forms.form, made(column))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _wrapped(value: int) -> int:
    """As the connector writes a BIGINT UNSIGNED by default: in 64 bits with a sign."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _base64(value: Any) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else bytes(value)).decode()


def _bits(column: SourceColumn) -> Readable:
    """BIT(n): as many bytes as n bits take, the lowest first."""
    length = re.search(r"\((\d+)\)", column.declared)
    count = (int(length[1]) + 7) // 8 if length is not None else 1
    return lambda value: _base64(int.from_bytes(bytes(value), "big").to_bytes(count, "little"))


def _is_set(value: Any) -> bool:
    return int.from_bytes(bytes(value), "big") != 0 if isinstance(value, bytes | bytearray) else bool(value)


def _day(column: SourceColumn) -> Readable:
    return _adjusted(column, "1970-01-01")


def _moment(column: SourceColumn) -> Readable:
    """A TIMESTAMP of zero is 1970 in the stream, whether or not the column takes NULL. A snapshot brings a NULL."""
    nullable = column.nullable and column.type != "timestamp"
    return _adjusted(column._replace(nullable=nullable), "1970-01-01T00:00:00")


def _adjusted(column: SourceColumn, epoch: str) -> Readable:
    """A date, or a date and time. Of a day that no calendar has the connector makes NULL, or 1970 where the column
    takes none, and years of two digits it takes for years of ours, as the server does in what people type."""

    def text(value: Any) -> str | None:
        found = _text(value).replace(" ", "T")
        if "-00" in found[:10]:
            return None if column.nullable else f"{epoch}Z"
        return f"{_year(int(found[:4])):04d}{found[4:]}Z"

    return text


def _year(year: int) -> int:
    """
    >>> _year(12), _year(75), _year(100), _year(2024)
    (2012, 1975, 100, 2024)
    """
    if year < 100:
        return year + (2000 if year < 70 else 1900)
    return year


def _always(readable: Readable) -> Callable[[SourceColumn], Readable]:
    return lambda _: readable


class _Forms(NamedTuple):
    """How a type is selected, and by the kind that the log has, what makes a value readable."""

    form: Form
    readable: Mapping[str, Callable[[SourceColumn], Readable]]


_INTEGER = {
    "int8": _always(_wrapped),
    **dict.fromkeys(INTEGERS, _always(_wrapped)),
    "numeric": _always(str),
    "bool": _always(bool),
    "text": _always(str),
}
_CHARACTER = {kind: _always(_text) for kind in ("text", "varchar", "bpchar", "enum", "xml", "json", "jsonb", "uuid")}
_BINARY = {"bytea": _always(_base64)}
_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "year"))

_TYPES: Mapping[str, _Forms] = {
    **{type_: _Forms(Form.PLAIN, _INTEGER) for type_ in _INTEGERS - {"year"}},
    "year": _Forms(Form.PLAIN, {kind: _always(_year) for kind in ("int4", *INTEGERS)}),
    "decimal": _Forms(Form.TEXT, {"numeric": _always(_text), "text": _always(_text), "float8": _always(float)}),
    "double": _Forms(Form.PLAIN, {"float8": _always(float)}),
    **{
        type_: _Forms(Form.PLAIN, _CHARACTER)
        for type_ in ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
    },
    "json": _Forms(Form.TEXT, {"json": _always(_text), "jsonb": _always(_text)}),
    **{
        type_: _Forms(Form.PLAIN, _BINARY)
        for type_ in ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
    },
    "date": _Forms(Form.TEXT, {"date": _day}),
    "datetime": _Forms(Form.TEXT, {"timestamp": _moment}),
    "timestamp": _Forms(Form.TEXT, {"timestamptz": _moment}),
    "time": _Forms(Form.TEXT, {"time": _always(lambda value: f"{_text(value)}Z")}),
    "bit": _Forms(Form.PLAIN, {"bool": _always(_is_set), "bit": _bits, "varbit": _bits}),
}
"""Type of the catalog -> how it is compared. A type without a row is not: spatial types, vectors, and types of one of
the two servers alone."""
