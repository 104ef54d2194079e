"""JSON Schema, as much of it as our schemas use; a keyword that is not known here is refused, not passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS = """
$schema $defs $ref title description type required properties additionalProperties enum const pattern minimum maximum
oneOf anyOf items minItems minProperties examples
"""
_KNOWN = frozenset(_WORDS.split())


def faults(schema: Any, value: Any, root: Mapping[str, Any] | None = None, at: str = "$") -> list[str]:
    """What of ``value`` the schema refuses, each with its place; empty when it is valid."""
    if isinstance(schema, bool):
        return [] if schema else [f"{at} must not be there"]
    assert schema.keys() <= _KNOWN, f"unknown keywords: {sorted(schema.keys() - _KNOWN)}"
    return list(_faults(schema, value, schema if root is None else root, at))


def _faults(schema: Mapping[str, Any], value: Any, root: Mapping[str, Any], at: str) -> Iterator[str]:
    if "$ref" in schema:
        yield from faults(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root, at)
    yield from _alternatives(schema, value, root, at)
    yield from _of_the_value(schema, value, at)
    if "items" in schema and isinstance(value, list):
        for number, one in enumerate(value):
            yield from faults(schema["items"], one, root, f"{at}[{number}]")
    if isinstance(value, dict):
        yield from _members(schema, value, root, at)


def _alternatives(schema: Mapping[str, Any], value: Any, root: Mapping[str, Any], at: str) -> Iterator[str]:
    for word in ("oneOf", "anyOf"):
        found = [faults(one, value, root, at) for one in schema.get(word, ())]
        fitting = sum(not one for one in found)
        if found and (fitting == 0 or (word == "oneOf" and fitting > 1)):
            yield f"{at} fits {fitting} of the alternatives: {min(found, key=len)}"


def _of_the_value(schema: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    if "type" in schema and not _is(value, schema["type"]):
        yield f"{at} is no {schema['type']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{at} is not {schema['const']}"
    if "pattern" in schema and isinstance(value, str) and re.search(schema["pattern"], value) is None:
        yield f"{at} does not match {schema['pattern']}"
    if isinstance(value, list) and len(value) < schema.get("minItems", 0):
        yield f"{at} has too few items"
    if isinstance(value, dict) and len(value) < schema.get("minProperties", 0):
        yield f"{at} has too few members"
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at} is out of its range"


def _members(schema: Mapping[str, Any], value: Mapping[str, Any], root: Mapping[str, Any], at: str) -> Iterator[str]:
    yield from (f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value)
    known = schema.get("properties", {})
    for name, member in value.items():
        yield from faults(known.get(name, schema.get("additionalProperties", True)), member, root, f"{at}.{name}")


def _is(value: Any, wanted: str | list[str]) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)
