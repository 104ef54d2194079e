"""JSON read without loss: members by their own text, and numbers that no double holds by theirs."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import orjson

from cdc.json_bytes import dumped
from cdc.wire.jsontree import blank, expect, loads, value_at, written

_INEXACT = re.compile(rb"[\[:,\s]-?(?:[0-9][0-9.]{15}|[0-9]+[.]?[0-9]*[eE]|0[.]?0*[,\]}\s])|^[\s-]*[0-9]")
"""Where a number may stand that a double does not hold, or a zero whose sign it loses. Within a string it may stand
too: that costs time only."""
_string: Any = scanstring


def members(document: bytes) -> dict[str, bytes]:
    """Name -> text of each member of a JSON object. ValueError when it is no JSON object.

    >>> members(b'{"a": 1e400, "b" : [1.10, {}]}')
    {'a': b'1e400', 'b': b'[1.10, {}]'}
    """
    text = document.decode("utf-8")
    found: dict[str, bytes] = {}
    at = expect(text, 0, "{")
    at = blank(text, at)
    if text[at : at + 1] == "}":
        return found
    while True:
        at = expect(text, at, '"')
        name, at = _string(text, at, True)
        start = blank(text, expect(text, at, ":"))
        _, at = value_at(text, start, str)
        found[name] = text[start:at].encode("utf-8")
        at = blank(text, at)
        if text[at : at + 1] == "}":
            return found
        at = expect(text, at, ",")


def loads_exact(document: bytes) -> Any:
    """As ``orjson.loads``, but a number that it would not read exactly becomes an orjson.Fragment of its text.

    ValueError when it is not JSON.

    >>> orjson.dumps(loads_exact(b'{"a":1e400,"b":12345678901234567890123}'))
    b'{"a":1e400,"b":12345678901234567890123}'
    """
    if _INEXACT.search(document) is None:
        try:
            return orjson.loads(document)
        except orjson.JSONDecodeError:  # half a surrogate pair, which json may hold
            pass
    return loads(document.decode("utf-8", "surrogatepass"), _number)


def dumps_exact(value: Any) -> bytes:
    """As ``orjson.dumps``, and half a surrogate pair as the escape it was.

    >>> dumps_exact({"a": "\\ud800", "b": orjson.Fragment("1e400")})
    b'{"a":"\\\\ud800","b":1e400}'
    """
    try:
        return dumped(value)
    except TypeError:
        return written(value, _leaf).encode()


def _leaf(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else orjson.dumps(value).decode()


def _number(text: str) -> Any:
    try:
        number = orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.Fragment(text)
    return number if orjson.dumps(number) == text.encode() else orjson.Fragment(text)
