"""JSON as Postgres writes it: the text of ``json`` functions to the letter, ``jsonb`` in its own order.

After src/backend/utils/adt/json.c, jsonb.c and jsonb_util.c of Postgres 18.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from cdc.views.decimals import numeric_of, numeric_text
from cdc.views.refused import NotComputable

quoted = encode_basestring
"""A text as JSON, with the escapes of Postgres: ``"`` and ``\\``, control characters, and no others."""


def json_number(text: str) -> str:
    """A number's text, quoted where JSON has no such number.

    >>> json_number("1.50"), json_number("NaN")
    ('1.50', '"NaN"')
    """
    return f'"{text}"' if text[-1] in "Nyn" else text


class _Numeral(str):
    """A JSON number by its text."""

    __slots__ = ()


def parsed(text: str) -> Any:
    """JSON text as Python's values. A number stays the text that it is, so none is changed.

    Raises NotComputable for text that is not JSON.
    """
    try:
        return json.loads(text, parse_int=_Numeral, parse_float=_Numeral, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise NotComputable("invalid input syntax for type json") from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def jsonb_text(text: str) -> str:
    """JSON text as ``jsonb`` prints it: members by length and then by bytes, the last of equal names kept.

    >>> jsonb_text('{"bb":1.10,"a":[1e2,null],"bb":2}')
    '{"a": [100, null], "bb": 2}'
    """
    return written(parsed(text))


def written(value: Any) -> str:
    """The text of a value that :func:`parsed` has read, as ``jsonb`` prints it."""
    if isinstance(value, _Numeral):
        return numeric_text(numeric_of(value))
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(k)}: {written(value[k])}" for k in sorted(value, key=jsonb_order)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return {True: "true", False: "false", None: "null"}[value]


def as_written(value: Any) -> str:
    """The text of a value that :func:`parsed` has read, with numbers as they were, and no blanks."""
    if isinstance(value, _Numeral):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(k)}:{as_written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_written, value)) + "]"
    return {True: "true", False: "false", None: "null"}[value]


def jsonb_order(name: str) -> tuple[int, bytes]:
    """The place of a member among the others of its object: shorter names first."""
    encoded = name.encode()
    return len(encoded), encoded


def equal_form(text: str) -> Any:
    """A value that is equal for two ``jsonb`` values that are. Hashable."""
    return _comparable(parsed(text))


def _comparable(value: Any) -> Any:
    if isinstance(value, _Numeral):
        return ("number", Decimal(value).normalize())
    if isinstance(value, dict):
        return ("object", tuple(sorted((k, _comparable(v)) for k, v in value.items())))
    if isinstance(value, list):
        return ("array", tuple(map(_comparable, value)))
    return ("scalar", type(value).__name__, value)


def json_object(members: Iterable[tuple[str, str]]) -> str:
    """``json_build_object``: names and values that are JSON text.

    >>> json_object([("a", "1"), ("b", '"x"')])
    '{"a" : 1, "b" : "x"}'
    """
    return "{" + ", ".join([f"{quoted(name)} : {value}" for name, value in members]) + "}"


def jsonb_object(members: Iterable[tuple[str, str]]) -> str:
    """``jsonb_build_object``: the values are text of ``jsonb``. The last of equal names stays."""
    last = dict(members)
    return "{" + ", ".join([f"{quoted(name)}: {last[name]}" for name in sorted(last, key=jsonb_order)]) + "}"


def json_array(values: Iterable[str]) -> str:
    """``json_build_array``, ``json_agg`` and each array of ``jsonb``: values that are JSON text."""
    return "[" + ", ".join(values) + "]"


def aggregated_array(values: Sequence[str]) -> str | None:
    """``json_agg`` of rows, which stand on a line each. NULL without any."""
    return "[" + ", \n ".join(values) + "]" if values else None


def object_aggregate(members: Sequence[tuple[str | None, str]]) -> str | None:
    """``json_object_agg``. NULL without any member. Raises NotComputable for a NULL name."""
    if any(name is None for name, _ in members):
        raise NotComputable("null value not allowed for object key")
    if not members:
        return None
    return "{ " + ", ".join([f"{quoted(name or '')} : {value}" for name, value in members]) + " }"


def jsonb_object_aggregate(members: Sequence[tuple[str | None, str]]) -> str | None:
    """``jsonb_object_agg``. NULL without any member. Raises NotComputable for a NULL name."""
    if any(name is None for name, _ in members):
        raise NotComputable("field name must not be null")
    return jsonb_object([(name or "", value) for name, value in members]) if members else None


def row_json(names: Sequence[str], values: Sequence[str]) -> str:
    """``row_to_json``: values that are JSON text.

    >>> row_json(["a", "b"], ["1", "null"])
    '{"a":1,"b":null}'
    """
    return "{" + ",".join([f"{quoted(n)}:{v}" for n, v in zip(names, values, strict=True)]) + "}"


def array_json(values: Sequence[Any], member: Any) -> str:
    """``array_to_json``: an array, nested as it is, whose elements ``member`` writes."""
    return "[" + ",".join(array_json(v, member) if isinstance(v, list) else member(v) for v in values) + "]"


def got(text: str, path: Sequence[str | int]) -> Any:
    """The value at a path, as :func:`parsed` reads it, or :data:`NOTHING`."""
    value = parsed(text)
    for step in path:
        value = _step(value, step)
        if value is NOTHING:
            return NOTHING
    return value


NOTHING = object()
"""No such member."""


def _step(value: Any, step: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(step, NOTHING) if isinstance(step, str) else NOTHING
    if isinstance(value, list):
        if isinstance(step, str):
            digits = step.lstrip("-")
            if not (digits.isascii() and digits.isdecimal()):
                return NOTHING
            step = int(step)
        return value[step] if -len(value) <= step < len(value) else NOTHING
    return NOTHING


def member_json(text: str, step: str | int, binary: bool) -> str | None:
    """``->``"""
    found = _member(text, step, binary)
    return None if found is NOTHING else written(found) if binary else as_written(found)


def member_text(text: str, step: str | int, binary: bool) -> str | None:
    """``->>``"""
    return _as_text(_member(text, step, binary), binary)


def _member(text: str, step: str | int, binary: bool) -> Any:
    """Names are found in objects alone. A ``jsonb`` that is no array and no object is an array of itself."""
    value = parsed(text)
    if isinstance(step, str):
        return value.get(step, NOTHING) if isinstance(value, dict) else NOTHING
    return _step([value] if binary and not isinstance(value, dict | list) else value, step)


def path_json(text: str, path: Sequence[str | None], binary: bool) -> str | None:
    """``#>``. Without a step ``json`` is returned as it was written."""
    if not path and not binary:
        return text.strip(" \t\n\r")
    steps = [step for step in path if step is not None]
    found = got(text, steps) if len(steps) == len(path) else NOTHING
    return None if found is NOTHING else written(found) if binary else as_written(found)


def path_text(text: str, path: Sequence[str | None], binary: bool) -> str | None:
    """``#>>``. Without a step ``json`` is returned as it was written, unless it is a text or null."""
    if not path and not binary and isinstance(parsed(text), dict | list | _Numeral | bool):
        return text.strip(" \t\n\r")
    steps = [step for step in path if step is not None]
    return _as_text(got(text, steps) if len(steps) == len(path) else NOTHING, binary)


def _as_text(found: Any, binary: bool) -> str | None:
    if found is NOTHING or found is None:
        return None
    if isinstance(found, str) and not isinstance(found, _Numeral):
        return found
    return written(found) if binary else as_written(found)
