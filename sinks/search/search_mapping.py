"""The mapping of an index from the shape of a table. No legal value is refused by it. See the manual for each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.record.schema import Column, TableSchema
from cdc.wire.types import BY_KIND, NESTED_KINDS, Search, kinds
from sinks.contract.port import CannotCarry
from sinks.contract.store_names import field_names
from sinks.search.search_custom import META, Custom

POS, DELETED, DELETED_AT, KEY, TEXT = "_pos", "_deleted", "_deleted_at", "_key", "_text"
"""Our own fields: position. Whether and when (ms) it was deleted. The key where the id is its hash. JSON that the
index does not take, by field, as text."""

_NONE = Custom()

LIVE = {"bool": {"must_not": [{"term": {DELETED: True}}]}}
"""The alias's filter."""

_KEYWORD_CHARACTERS = 8191
"""Longer ones are kept and not indexed: Lucene takes no term over 32,766 bytes."""
_KEYWORD: dict[str, Any] = {"type": "keyword", "ignore_above": _KEYWORD_CHARACTERS}
_SILENT: dict[str, Any] = {"type": "object", "enabled": False}
_HOLDS = {
    "short": ("int2",),
    "integer": ("int2", "int4"),
    "long": kinds(Search.LONG),
    "float": ("float4",),
    "double": kinds(Search.DOUBLE),
}
"""Field types, and the kinds all of whose values they index."""
_OBJECTS = frozenset(("object", "flat_object", "flattened"))
_DATES = "strict_date_optional_time||uuuu-MM-ddX"


def index_settings(schema: TableSchema, shards: int, replicas: int) -> dict[str, Any]:
    """Settings of a new index. Nothing refreshes by itself: a sink does, when what it wrote may be seen."""
    return {
        "number_of_shards": shards,
        "number_of_replicas": replicas,
        "refresh_interval": "-1",
        "mapping.ignore_malformed": True,
        "mapping.total_fields.limit": max(1000, 4 * len(schema.columns)),
    }


def mapping(schema: TableSchema, json_type: str, custom: Custom = _NONE) -> dict[str, Any]:
    """The mapping of a table. ``json_type``: what json, jsonb and hstore are mapped as."""
    fields = {**custom.laid_over(properties(schema, json_type), schema), **_OWN}
    return {"dynamic": False, "properties": fields, **({"_meta": {META: custom.mark}} if custom.mark else {})}


def properties(schema: TableSchema, json_type: str) -> dict[str, Any]:
    """Field -> mapping, of the table's columns."""
    names = field_names(column.name for column in schema.columns)
    return {names[column.name]: field_mapping(column, json_type) for column in schema.columns}


def changes(
    schema: TableSchema,
    json_type: str,
    known: Mapping[str, Mapping[str, Any]],
    *,
    older: bool,
    custom: Custom = _NONE,
) -> dict[str, Any]:
    """The fields to add to an index for a shape: field -> mapping.

    ``known``: the index's fields as the server returns them. CannotCarry when one of them indexes something else
    than the shape's column. With ``older`` such a one stays, and a value that it does not fit is kept, not indexed.
    """
    names = field_names(column.name for column in schema.columns)
    mapped = custom.laid_over(properties(schema, json_type), schema)
    found = {name: mapped[name] for name in custom.points if name not in known}
    for column in schema.columns:
        name = names[column.name]
        wanted = mapped[name]
        existing = known.get(name)
        if existing is None:
            found[name] = wanted
        elif column.name in custom.fields:
            # The index has the user's mapping: whether that is today's, its mark says.
            continue
        elif not older:
            if not indexes(existing, column, wanted):
                kind = str(existing.get("type", "object"))
                raise CannotCarry.column(schema.table, column.name, kind, column.type)
            if wanted.get("fields", {}).keys() - existing.get("fields", {}).keys():
                found[name] = wanted
    return found


def indexes(existing: Mapping[str, Any], column: Column, wanted: Mapping[str, Any]) -> bool:
    """Whether a field that is there indexes a column's values as a new one would."""
    there, kind = existing.get("type", "object"), wanted.get("type", "object")
    if there in _HOLDS:
        return column.kind in _HOLDS[there]
    if column.kind in NESTED_KINDS and {there, kind} <= _OBJECTS:
        return existing.get("enabled", True) is not False
    return bool(there == kind and existing.get("enabled", True) == wanted.get("enabled", True))


def field_mapping(column: Column, json_type: str) -> dict[str, Any]:
    """The field mapping of a column. An array is indexed as its elements are."""
    kind = column.kind
    if kind in NESTED_KINDS:
        return {"type": "object", "dynamic": True} if json_type == "object" else {"type": json_type}
    if kind in ("bit", "varbit"):
        return {"type": "boolean"} if column.typmod == 1 else _KEYWORD
    return _BY_KIND.get(kind, _KEYWORD)


# The text is exact. The number beside it is for ranges and sorting.
_DECIMAL: dict[str, Any] = {**_KEYWORD, "fields": {"number": {"type": "double", "ignore_malformed": True}}}
# To the millisecond, of any year. date_nanos would leave out all before 1970 and after 2262.
_DATE: dict[str, Any] = {"type": "date", "format": _DATES, "ignore_malformed": True}
_FULL_TEXT: dict[str, Any] = {"type": "text", "fields": {"keyword": _KEYWORD}}

_FIELDS: dict[Search, dict[str, Any]] = {
    # One size for all: the type of a field that is there cannot change, and a column may well grow.
    Search.LONG: {"type": "long", "ignore_malformed": True},
    Search.DOUBLE: {"type": "double", "ignore_malformed": True},
    Search.DECIMAL: _DECIMAL,
    Search.DATE: _DATE,
    Search.FULL_TEXT: _FULL_TEXT,
    Search.SILENT: _SILENT,
    Search.BOOLEAN: {"type": "boolean"},
    Search.BINARY: {"type": "binary"},
    Search.KEYWORD: _KEYWORD,
}
_BY_KIND = {kind: _FIELDS[family.search] for kind, family in BY_KIND.items() if family.search is not Search.JSON}

_OWN: dict[str, Any] = {
    POS: {"type": "keyword"},
    DELETED: {"type": "boolean"},
    DELETED_AT: {"type": "long"},
    KEY: {"type": "keyword", "index": False, "doc_values": False},
    TEXT: _SILENT,
}
