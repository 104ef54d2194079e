"""Records that embed their schema, ``{"schema":…,"payload":…}`` as JsonConverter writes them, and a table's shape
from it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.debezium.connect_types import Convert, column_type

_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'
_FLAT_FIELDS = frozenset(("__op", "__deleted", "__table", "__schema", "__db", "__lsn", "__ts_ms", "__ts_us", "__ts_ns"))
_ESCAPES = re.compile(rb"""(\\u[dD][89abAB][0-9a-fA-F]{2}(?="))|\\.""", re.DOTALL)
"""An escape. Its group: the first half of a character beyond U+FFFF where the text ends."""
_SHAPES = 64


class Embedded:
    """A schema as it stands in records: ``fields`` of the row, None where the row is no struct."""

    def __init__(self, schema: Any) -> None:
        self.fields = _row_fields(schema)
        self._shapes: dict[tuple[tuple[str, ...], TableName, str], Shape] = {}

    def shaped(self, key: tuple[str, ...], table: TableName, topic: str) -> Shape:
        """The row's shape, one for each ``key``: where every column of both keys may not be null, the schema of the
        rows says nothing of the change. KeyError or TypeError for what is no struct."""
        made_of = (key, table, topic)
        found = self._shapes.get(made_of)
        if found is None:
            found = self._shapes[made_of] = shape_of(self.fields or (), key, table, topic)
        return found


class Wrapped(NamedTuple):
    """``text``: the payload's own bytes. ``embedded``: the schema, None where there is none."""

    payload: Any
    text: bytes
    embedded: Embedded | None


class Wrappings:
    """Takes records apart. A schema is read once, however many records embed it."""

    def __init__(self) -> None:
        self._known: dict[bytes, Embedded | None] = {}

    def unwrap(self, value: bytes) -> Wrapped:
        """A record's value. ValueError where it is no JSON. Texts that were cut within a character end before it."""
        try:
            return self._unwrapped(value)
        except orjson.JSONDecodeError:
            whole = without_halves(value)
            if whole == value:
                raise
            return self._unwrapped(whole)

    def _unwrapped(self, value: bytes) -> Wrapped:
        at = value.find(_PAYLOAD) if value.startswith(_SCHEMA) else -1
        if at < 0:
            return Wrapped(orjson.loads(value), value, None)
        prefix, text = value[:at], value[at + len(_PAYLOAD) : -1]
        if prefix not in self._known:
            document = orjson.loads(value)
            if not is_wrapped(document):
                return Wrapped(document, value, None)
            if len(self._known) >= _SHAPES:
                self._known.clear()
            schema = document["schema"]
            self._known[prefix] = None if schema is None else Embedded(schema)
        return Wrapped(orjson.loads(text), text, self._known[prefix])


def without_halves(text: bytes) -> bytes:
    r"""JSON without halves of characters at the ends of its texts, which no reader of UTF-8 takes.

    Debezium truncates by units of UTF-16, and may leave the first of a character's two.

    >>> without_halves(rb'["x\ud83d","\ud83d\ude00","\\ud83d"]') == rb'["x","\ud83d\ude00","\\ud83d"]'
    True
    """
    return _ESCAPES.sub(lambda found: b"" if found[1] is not None else found[0], text)


def is_wrapped(document: Any) -> bool:
    """Whether it is a schema and what it describes. A key or a row may have columns of these names.

    >>> is_wrapped({"schema": {"type": "struct", "fields": []}, "payload": {"id": 1}})
    True
    >>> is_wrapped({"schema": "public", "payload": 7}), is_wrapped({"schema": None, "payload": "text"})
    (False, False)
    """
    if not isinstance(document, dict) or document.keys() != {"schema", "payload"}:
        return False
    schema, payload = document["schema"], document["payload"]
    typed = schema is None or (isinstance(schema, dict) and "type" in schema)
    return typed and (payload is None or isinstance(payload, dict))


def is_flat_field(name: str) -> bool:
    """Whether a column of a flat row is none of the table's: ExtractNewRecordState adds it."""
    return name in _FLAT_FIELDS or name.startswith("__source_")


def _row_fields(schema: Any) -> Sequence[Mapping[str, Any]] | None:
    """The row's fields of an envelope's schema or of a flat row's."""
    fields = {field["field"]: field for field in schema["fields"]}
    if "op" in fields and "after" in fields and fields.get("source", {}).get("type") == "struct":
        found: Sequence[Mapping[str, Any]] | None = fields["after"].get("fields")
        return found
    return [field for name, field in fields.items() if not is_flat_field(name)]


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
