"""A table's shape from a record's embedded schema, and rows of that shape in the readable encoding."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName
from cdc.wire.debezium.connect_types import Convert, column_type
from cdc.wire.unavailable import may_be_unavailable

EMBEDDED_VERSIONS = 1 << 28
"""Versions from here on are numbers of embedded schemas. Those of the schema topic count from 1."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A table's schema, and for each column whose values are not readable as they stand, what makes them so.

    ``silent``: columns of which Postgres may keep a value out of line, and Debezium has no placeholder for one that
    did not change: it writes NULL. ``lacking``: columns that are NULL in an old row of which the key alone is known.
    """

    schema: TableSchema
    conversions: Mapping[str, Convert]
    silent: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def readable(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row, or a part of one, in the readable encoding. ValueError names the column that does not fit."""
        done = dict(row)
        for name, convert in self.conversions.items():
            value = done.get(name)
            if value is not None:
                try:
                    done[name] = convert(value)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise ValueError(f"the value of column {name} does not fit its type") from error
        return done


def shape_of(fields: Sequence[Mapping[str, Any]], key: Sequence[str], table: TableName, topic: str) -> Shape:
    """The shape of a row's struct. ``key``: names of the key's columns, in key order.

    Its version is a number made of the columns: the same schema has the same one, wherever it is read.
    KeyError or TypeError for what is no struct of JsonConverter's.
    """
    columns = []
    conversions: dict[str, Convert] = {}
    for number, field in enumerate(fields, start=1):
        found = column_type(field)
        if found.convert is not None:
            conversions[field["field"]] = found.convert
        columns.append(
            Column(
                name=field["field"],
                attnum=number,
                type=_type_name(field, found.kind, found.array),
                type_oid=0,
                kind=found.kind,
                array=found.array,
                typmod=found.typmod,
                nullable=bool(field.get("optional", True)),
                key_position=key.index(field["field"]) + 1 if field["field"] in key else None,
            )
        )
    marks = orjson.dumps([[c.name, c.type, c.kind, c.array, c.typmod, c.nullable, c.key_position] for c in columns])
    schema = TableSchema(
        table=table,
        topic=topic,
        version=EMBEDDED_VERSIONS + (zlib.crc32(marks) >> 4),
        oid=0,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=tuple(columns),
    )
    silent = [c.name for c, field in zip(columns, fields, strict=True) if _is_silent(c, field)]
    lacking = [c.name for c, field in zip(columns, fields, strict=True) if _may_lack(c, field)]
    return Shape(schema, conversions, tuple(silent), tuple(lacking))


def _may_lack(column: Column, field: Mapping[str, Any]) -> bool:
    """Debezium writes a column's default there, and of one that takes no NULL an empty value."""
    return column.nullable and column.key_position is None and field.get("default") is None


_WITH_PLACEHOLDER = frozenset(("text", "varchar", "bpchar", "json", "jsonb", "bytea", "int4", "int8", "uuid"))
"""Kinds whose arrays have one: ``UnchangedToastedReplicationMessageColumn`` of Debezium 3.7."""


_SILENT = frozenset(("bit", "varbit", "path", "polygon", "vector", "halfvec", "sparsevec"))
_SPATIAL = frozenset(("geometry", "geography"))
_FITS_BITS = 64
_FITS_DIGITS = 28
"""Values of so many bits or digits are never stored out of line."""


def silent_columns(schema: TableSchema, encoding: str) -> list[str]:
    """The same by the catalog, before there is a record: the columns in which an unchanged value may become NULL.

    ``encoding``: of the log. A numeric is a text in ``readable``, and a text has a placeholder.
    """
    return [column.name for column in schema.columns if _may_be_silent(column, encoding)]


def _may_be_silent(column: Column, encoding: str) -> bool:
    if column.array:
        return column.kind not in _WITH_PLACEHOLDER
    if column.kind == "numeric":
        return encoding == "debezium" and not _fits(column)
    if column.kind in ("bit", "varbit"):
        return not _fits(column)
    spatial = column.kind == "other" and column.type.partition("(")[0].rpartition(".")[2] in _SPATIAL
    return column.kind in _SILENT or spatial


def _is_silent(column: Column, field: Mapping[str, Any]) -> bool:
    """A type that is written as text, or as bytes of no particular meaning, has a placeholder."""
    if column.array:
        return column.kind not in _WITH_PLACEHOLDER
    plain = _fits(column) or field["type"] == "string" or (field["type"] == "bytes" and not field.get("name"))
    return may_be_unavailable(column) and not plain


def _fits(column: Column) -> bool:
    """Whether every value is so short that it is never stored out of line."""
    most = {"numeric": _FITS_DIGITS, "bit": _FITS_BITS, "varbit": _FITS_BITS}.get(column.kind, 0)
    return column.precision is not None and column.precision <= most


def _type_name(field: Mapping[str, Any], kind: str, array: bool) -> str:
    source = (field.get("parameters") or {}).get("__debezium.source.column.type")
    name = str(source).lower() if source else kind
    return f"{name.removeprefix('_')}[]" if array else name
