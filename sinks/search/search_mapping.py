"""The mapping of an index from the shape of a table, with a user's own laid over it. Pure.

No legal value is refused by ours. See the manual for each kind. A user's own mapping and settings of a table's index
are read and checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import orjson

from cdc.record.schema import Column, TableSchema
from cdc.wire.types import BY_KIND, NESTED_KINDS, Search, kinds
from sinks.contract.port import CannotCarry
from sinks.contract.store_names import COLUMNS, KNN, field_names

META = "headrace"
"""Where the mapping of an index says which mapping of the user's it was made with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """A table's ``[sinks.NAME.mappings."schema.table"]``, as :class:`sinks.search.search_kind.TableMapping` has it.

    ``fields``: field -> mapping, of the columns. ``points``: field -> its one or two columns, of the fields that are
    made of columns.
    """

    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    points: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, options_text: str | None, table: str) -> Custom:
        """One table's part of the sink's option ``mappings``, a JSON text. An empty one where it says nothing."""
        said = orjson.loads(options_text).get(table, {}) if options_text else {}
        fields: dict[str, Mapping[str, Any]] = {}
        points: dict[str, tuple[str, ...]] = {}
        for name, given in said.get("properties", {}).items():
            fields[name] = {key: value for key, value in given.items() if key != COLUMNS}
            if COLUMNS in given:
                points[name] = tuple(given[COLUMNS])
        return cls(fields=fields, points=points, settings=said.get("settings", {}))

    @property
    def mark(self) -> str:
        """The mark that an index keeps. It shows whether the mapping has changed since. Empty for none. Settings are
        left out: the server has their values, and most of them may be changed there."""
        if not self.fields:
            return ""
        whole = {"fields": self.fields, "points": self.points}
        return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS).decode()

    def index_settings(self, ours: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a new index: the user's over ours. With a knn_vector, ``index.knn`` as well."""
        vectors = {"knn": True} if any(one.get("type") == KNN for one in self.fields.values()) else {}
        return {**ours, **vectors, **{name.removeprefix("index."): value for name, value in self.settings.items()}}

    def laid_over(self, ours: Mapping[str, Any], schema: TableSchema) -> dict[str, Any]:
        """The mappings of fields: the user's over ours, by the columns' names. Of one type they are merged."""
        names = field_names(column.name for column in schema.columns)
        found = dict(ours)
        for name, given in self.fields.items():
            target = name if name in self.points else names.get(name)
            if target is None:
                continue
            before = found.get(target, {})
            same = given.get("type", before.get("type", "object")) == before.get("type", "object")
            found[target] = {**before, **given} if same else dict(given)
        return found

    def check(self, schema: TableSchema) -> None:
        """Before an index is made. CannotCarry names a property that no column of the table stands for."""
        columns = {column.name: column for column in schema.columns}
        for name in self.fields:
            if name not in self.points and name not in columns:
                raise _unfit(schema, f"{name} is no column of it", "name the columns, or say columns = [...]")
        for name, of in self.points.items():
            if name in columns:
                raise _unfit(schema, f"{name} is a column, and cannot be made of others", "choose another name")
            for one in of:
                if one not in columns:
                    raise _unfit(schema, f"{name} is made of {one}, which is no column", "name columns of the table")
            if len(of) == 1 and (columns[of[0]].kind != "point" or columns[of[0]].array):
                raise _unfit(
                    schema,
                    f"{name} is made of {of[0]} alone, which is of type {columns[of[0]].type}",
                    'name a column of type point, or two: columns = ["latitude", "longitude"]',
                )

    def refused(self, schema: TableSchema, why: str) -> CannotCarry:
        """The error where the server makes no index with this mapping. ``why``: its words."""
        hint = "correct the table's section of the sink's mappings"
        if KNN in why or "index.knn" in why:
            hint = f"a {KNN} needs the server's k-NN plugin, which its minimal distribution lacks"
        message = f"{schema.table}: the server makes no index with the mapping in the settings: {_clause(why)}"
        return CannotCarry(message, hint=hint, table=schema.table)

    def require_same(self, schema: TableSchema, mappings: Mapping[str, Any]) -> None:
        """CannotCarry for an index that was made with another mapping of the user's than this one."""
        if str(mappings.get("_meta", {}).get(META, "")) == self.mark:
            return
        raise CannotCarry(
            f"{schema.table}: the mapping that the settings give it is not the one that its index was made with",
            hint="an index made anew takes it: cdc rebuild SINK",
            table=schema.table,
        )


def _clause(why: str) -> str:
    """The server's words, less the advice that it appends to an unknown setting."""
    return why.partition(" please check that")[0]


def _unfit(schema: TableSchema, why: str, hint: str) -> CannotCarry:
    message = f"{schema.table}: the mapping in the settings does not fit it: {why}"
    return CannotCarry(message, hint=hint, table=schema.table)


def geo_point(row: Mapping[str, Any], of: tuple[str, ...]) -> dict[str, float] | None:
    """The place that columns of a row say. None where they say none that is on the globe.

    >>> geo_point({"lat": "52.5", "lon": 13.25}, ("lat", "lon")), geo_point({"p": {"x": 200, "y": 1}}, ("p",))
    ({'lat': 52.5, 'lon': 13.25}, None)
    """
    if len(of) == 1:
        point = row.get(of[0])
        said = (point.get("y"), point.get("x")) if isinstance(point, Mapping) else (None, None)
    else:
        said = (row.get(of[0]), row.get(of[1]))
    try:
        latitude, longitude = (float(one) for one in said)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    on_globe = isfinite(latitude) and isfinite(longitude) and abs(latitude) <= 90 and abs(longitude) <= 180
    return {"lat": latitude, "lon": longitude} if on_globe else None


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
