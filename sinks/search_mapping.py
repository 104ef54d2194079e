"""The mapping of an index from the shape of a table. No legal value is refused by it; see the manual for each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.plain import NESTED_KINDS
from cdc.schema import Column, TableSchema
from sinks.names import field_names
from sinks.port import CannotCarry

POS, DELETED, DELETED_AT, KEY, TEXT = "_pos", "_deleted", "_deleted_at", "_key", "_text"
"""Our own fields: position; whether and when (ms) it was deleted; the key where the id is its hash; JSON that the
index does not take, by field, as text."""

LIVE = {"bool": {"must_not": [{"term": {DELETED: True}}]}}
"""The alias's filter."""

_KEYWORD_CHARACTERS = 8191
"""Longer ones are kept and not indexed: Lucene takes no term over 32,766 bytes."""
_KEYWORD: dict[str, Any] = {"type": "keyword", "ignore_above": _KEYWORD_CHARACTERS}
_SILENT: dict[str, Any] = {"type": "object", "enabled": False}
# One size for all: the type of a field that is there cannot change, and a column may well grow.
_NUMBERS = {
    "int2": "long",
    "int4": "long",
    "int8": "long",
    "oid": "long",
    "float4": "double",
    "float8": "double",
}
_HOLDS = {
    "short": ("int2",),
    "integer": ("int2", "int4"),
    "long": ("int2", "int4", "int8", "oid"),
    "float": ("float4",),
    "double": ("float4", "float8"),
}
"""Field types, and the kinds all of whose values they index."""
_OBJECTS = frozenset(("object", "flat_object", "flattened"))
_DATES = "strict_date_optional_time||uuuu-MM-ddX"
_TEXTS = frozenset(("text", "varchar", "bpchar", "citext", "xml"))
_GEOMETRY = ("point", "box", "lseg", "path", "polygon", "circle", "line", "geometry", "geography")
_SILENT_KINDS = frozenset((*_GEOMETRY, "vector", "halfvec", "sparsevec"))


def index_settings(schema: TableSchema, shards: int, replicas: int) -> dict[str, Any]:
    """Settings of a new index. Nothing refreshes by itself: a sink does, when what it wrote may be seen."""
    return {
        "number_of_shards": shards,
        "number_of_replicas": replicas,
        "refresh_interval": "-1",
        "mapping.ignore_malformed": True,
        "mapping.total_fields.limit": max(1000, 4 * len(schema.columns)),
    }


def mapping(schema: TableSchema, json_type: str) -> dict[str, Any]:
    """The mapping of a table. ``json_type``: what json, jsonb and hstore are mapped as."""
    return {"dynamic": False, "properties": {**_OWN, **properties(schema, json_type)}}


def properties(schema: TableSchema, json_type: str) -> dict[str, Any]:
    """Field -> mapping, of the table's columns."""
    names = field_names(column.name for column in schema.columns)
    return {names[column.name]: field_mapping(column, json_type) for column in schema.columns}


def changes(
    schema: TableSchema, json_type: str, known: Mapping[str, Mapping[str, Any]], *, older: bool
) -> dict[str, Any]:
    """What has to be added to an index's fields for a shape: field -> mapping.

    ``known``: the index's fields as the server tells of them. CannotCarry when one of them indexes something else
    than the shape's column; with ``older`` such a one stays, and a value that it does not fit is kept, not indexed.
    """
    names = field_names(column.name for column in schema.columns)
    found: dict[str, Any] = {}
    for column in schema.columns:
        name, wanted = names[column.name], field_mapping(column, json_type)
        held = known.get(name)
        if held is None:
            found[name] = wanted
        elif not older:
            if not indexes(held, column, wanted):
                kind = str(held.get("type", "object"))
                raise CannotCarry.column(schema.table, column.name, kind, column.type)
            if wanted.get("fields", {}).keys() - held.get("fields", {}).keys():
                found[name] = wanted
    return found


def indexes(held: Mapping[str, Any], column: Column, wanted: Mapping[str, Any]) -> bool:
    """Whether a field that is there indexes a column's values as a new one would."""
    there, kind = held.get("type", "object"), wanted.get("type", "object")
    if there in _HOLDS:
        return column.kind in _HOLDS[there]
    if column.kind in NESTED_KINDS and {there, kind} <= _OBJECTS:
        return held.get("enabled", True) is not False
    return bool(there == kind and held.get("enabled", True) == wanted.get("enabled", True))


def field_mapping(column: Column, json_type: str) -> dict[str, Any]:
    """What a column is indexed as. An array is indexed as its elements are."""
    kind = column.kind
    if kind in NESTED_KINDS:
        return {"type": "object", "dynamic": True} if json_type == "object" else {"type": json_type}
    if kind in ("bit", "varbit"):
        return {"type": "boolean"} if column.typmod == 1 else _KEYWORD
    return _BY_KIND.get(kind, _KEYWORD)


# The text is exact; the number beside it is for ranges and sorting.
_DECIMAL: dict[str, Any] = {**_KEYWORD, "fields": {"number": {"type": "double", "ignore_malformed": True}}}
# To the millisecond, of any year; date_nanos would leave out all before 1970 and after 2262.
_DATE: dict[str, Any] = {"type": "date", "format": _DATES, "ignore_malformed": True}
_FULL_TEXT: dict[str, Any] = {"type": "text", "fields": {"keyword": _KEYWORD}}

_BY_KIND: dict[str, dict[str, Any]] = {
    **{kind: {"type": number, "ignore_malformed": True} for kind, number in _NUMBERS.items()},
    **{kind: _DECIMAL for kind in ("numeric", "money")},
    **{kind: _DATE for kind in ("date", "timestamp", "timestamptz")},
    **{kind: _FULL_TEXT for kind in _TEXTS},
    **{kind: _SILENT for kind in _SILENT_KINDS},
    "bool": {"type": "boolean"},
    "bytea": {"type": "binary"},
}

_OWN: dict[str, Any] = {
    POS: {"type": "keyword"},
    DELETED: {"type": "boolean"},
    DELETED_AT: {"type": "long"},
    KEY: {"type": "keyword", "index": False, "doc_values": False},
    TEXT: _SILENT,
}
