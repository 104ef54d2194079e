"""JSON as Postgres writes it: the text of ``json`` functions to the letter, ``jsonb`` in its own order.

After src/backend/utils/adt/json.c, jsonb.c and jsonb_util.c of Postgres 18.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any

from cdc.views.decimals import numeric_of, numeric_text
from cdc.views.syntax import NotComputable
from cdc.wire.canonical import number_text
from cdc.wire.jsontree import loads, value_at
from cdc.wire.jsontree import written as tree_text

quoted = encode_basestring
"""A text as JSON, with the escapes of Postgres: ``"`` and ``\\``, control characters, and no others."""


def json_number(text: str) -> str:
    """A number's text, quoted where JSON has no such number.

    >>> json_number("1.50"), json_number("NaN")
    ('1.50', '"NaN"')
    """
    return f'"{text}"' if text[-1] in "Nyn" else text


_BLANKS = " \t\n\r"
_ESCAPES = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|.)", re.DOTALL).finditer


class _Numeral(str):
    """A JSON number by its text."""

    __slots__ = ()


def parsed(text: str) -> Any:
    """JSON text as Python's values. A number stays the text that it is, so none is changed.

    Raises NotComputable for text that is not JSON.
    """
    try:
        return loads(text, _Numeral)
    except ValueError:
        raise NotComputable("invalid input syntax for type json") from None


def jsonb_text(text: str) -> str:
    """JSON text as ``jsonb`` prints it: members by length and then by bytes, the last of equal names kept.

    >>> jsonb_text('{"bb":1.10,"a":[1e2,null],"bb":2}')
    '{"a": [100, null], "bb": 2}'
    """
    if "\\u" in text:
        require_characters(text)
    return written(parsed(text))


def written(value: Any) -> str:
    """The text of a value that :func:`parsed` has read, as ``jsonb`` prints it."""
    return tree_text(value, _leaf, order=jsonb_order, comma=", ", colon=": ")


def _leaf(value: Any) -> str:
    if isinstance(value, _Numeral):
        return numeric_text(numeric_of(value))
    return quoted(value) if isinstance(value, str) else {True: "true", False: "false", None: "null"}[value]


def jsonb_order(name: str) -> tuple[int, bytes]:
    """The place of a member among the others of its object: shorter names first."""
    encoded = name.encode()
    return len(encoded), encoded


def equal_form(text: str) -> Any:
    """A value that is equal for two ``jsonb`` values that are. Hashable."""
    return tree_text(parsed(text), _equal_leaf, order=jsonb_order)


def _equal_leaf(value: Any) -> str:
    return number_text(value) if isinstance(value, _Numeral) else _leaf(value)


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
    """``json_agg`` of rows and arrays, which begin a line each. NULL without any.

    >>> aggregated_array(['{"a":1}', "null", '{"a":2}'])
    '[{"a":1}, null, \\n {"a":2}]'
    """
    if not values:
        return None
    return f"[{values[0]}" + "".join(f", {value}" if value == "null" else f", \n {value}" for value in values[1:]) + "]"


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


def _spans(text: str) -> Iterator[tuple[str | int, int, int]]:
    """The members of an object by their names, or of an array by their numbers, and where each stands in the text."""
    at = _past_blanks(text, 0)
    kind = text[at]
    if kind not in "[{":
        return
    at = _past_blanks(text, at + 1)
    number = 0
    while text[at] not in "]}":
        name: str | int = number
        if kind == "{":
            name, at = value_at(text, at, str)
            at = _past_blanks(text, _past_blanks(text, at) + 1)
        end = value_at(text, at, str)[1]
        yield name, at, end
        number += 1
        at = _past_blanks(text, end)
        if text[at] == ",":
            at = _past_blanks(text, at + 1)


def _past_blanks(text: str, at: int) -> int:
    while text[at] in _BLANKS:
        at += 1
    return at


def _member(text: str, step: str | int, binary: bool) -> str | None:
    """The text of a member as it stands there. None for none.

    Names are found in objects alone. A ``jsonb`` that is no array and no object is an array of itself.
    """
    first = text.lstrip(_BLANKS)[:1]
    if first not in "{[":
        return text if binary and step in (0, -1) else None
    if (first == "{") != isinstance(step, str):
        return None
    found = [(at, end) for name, at, end in _spans(text) if name == step or isinstance(step, int)]
    if isinstance(step, int):
        return text[slice(*found[step])] if -len(found) <= step < len(found) else None
    return text[slice(*found[-1])] if found else None


def _at(text: str, path: Sequence[str]) -> str | None:
    found: str | None = text
    for step in path:
        if found is None:
            return None
        if found.lstrip(_BLANKS)[:1] == "[":
            digits = step.lstrip("-")
            if not (digits.isascii() and digits.isdecimal()):
                return None
            found = _member(found, int(step), False)
        else:
            found = _member(found, step, False)
    return found


def _whole(text: str, binary: bool) -> str:
    """The same. NotComputable where Postgres would not read what is escaped in it, which ``json`` keeps as it came."""
    if not binary and "\\u" in text:
        require_characters(text)
    return text


def require_characters(text: str) -> None:
    """NotComputable for JSON whose escapes stand for no text: NUL, and halves of a pair of surrogates."""
    half = -1
    for escape in _ESCAPES(text):
        code = int(escape[1], 16) if escape[1] else -1
        low = 0xDC00 <= code < 0xE000
        if code == 0 or low != (escape.start() == half) or (half >= 0 and not low):
            raise NotComputable("unsupported Unicode escape sequence")
        half = escape.end() if 0xD800 <= code < 0xDC00 else -1
    if half >= 0:
        raise NotComputable("unsupported Unicode escape sequence")


def _safely(function: Callable[[], str | None]) -> str | None:
    try:
        return function()
    except NotComputable:
        raise
    except (ValueError, IndexError):
        raise NotComputable("invalid input syntax for type json") from None


def member_json(text: str, step: str | int, binary: bool) -> str | None:
    """``->``. Of ``json`` the member as it was written, with its blanks, its escapes and members that come twice."""
    return _safely(lambda: _member(_whole(text, binary), step, binary))


def member_text(text: str, step: str | int, binary: bool) -> str | None:
    """``->>``"""
    return _as_text(member_json(text, step, binary))


def path_json(text: str, path: Sequence[str | None], binary: bool) -> str | None:
    """``#>``. Without a step ``json`` is returned as it was written."""
    if None in path:
        return None
    return _safely(lambda: _at(_whole(text, binary).strip(_BLANKS), [step for step in path if step is not None]))


def path_text(text: str, path: Sequence[str | None], binary: bool) -> str | None:
    """``#>>``. Without a step ``json`` is returned as it was written, unless it is a text or null."""
    return _as_text(path_json(text, path, binary))


def _as_text(found: str | None) -> str | None:
    if found is None or found == "null":
        return None
    return str(value_at(found, 0, str)[0]) if found[:1] == '"' else found
