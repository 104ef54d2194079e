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

EMBEDDED_VERSIONS = 1 << 28
"""Versions from here on are numbers of embedded schemas. Those of the schema topic count from 1."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A table's schema, and for each column whose values are not readable as they stand, what makes them so."""

    schema: TableSchema
    conversions: Mapping[str, Convert]

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
    return Shape(schema, conversions)


def _type_name(field: Mapping[str, Any], kind: str, array: bool) -> str:
    source = (field.get("parameters") or {}).get("__debezium.source.column.type")
    name = str(source).lower() if source else kind
    return f"{name.removeprefix('_')}[]" if array else name
