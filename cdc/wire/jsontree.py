"""JSON read and written without recursion: a value's depth is data, and Postgres has more of it than Python's stack."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import orjson

Number = Callable[[str], Any]
BLANKS = " \t\n\r"
INDEXED_DEPTH = 100
"""So many arrays and objects in each other are indexed by a search server, and a deeper value is text there. OpenSearch
indexes 500, and of 700 it never answers."""
# Without its last quote, too: a text that does not end is read once, not from each of its quotes.
_TEXT_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}


def loads(text: str, number: Number) -> Any:
    """As ``json.loads``, at any depth. ``number``: what the text of a number becomes. ValueError when it is no JSON.

    >>> loads('{"a": [1.10, null]}', str)
    {'a': ['1.10', None]}
    """
    value, end = value_at(text, blank(text, 0), number)
    if blank(text, end) < len(text):
        raise ValueError("there is more behind the JSON")
    return value


def value_at(text: str, at: int, number: Number) -> tuple[Any, int]:
    """The value that begins at a character, and where it ends. ValueError when none begins there."""
    read = _reader(number)
    try:
        return read(text, at)
    except RecursionError:
        return _deep(text, at, read)


def written(
    value: Any,
    leaf: Callable[[Any], str],
    *,
    order: Callable[[str], Any] | None = None,
    comma: str = ",",
    colon: str = ":",
) -> str:
    """The text of a value, at any depth. ``leaf``: that of a name, and of what is neither list nor dict. ``order``: by
    what the names of members are sorted.

    >>> written({"b": [1, []], "a": {}}, json.dumps, order=str)
    '{"a":{},"b":[1,[]]}'
    """
    texts: list[str] = []
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        before, one = todo.pop()
        texts.append(before)
        if isinstance(one, dict):
            names = list(one) if order is None else sorted(one, key=order)
            parts = [(f"{comma if n else ''}{leaf(name)}{colon}", one[name]) for n, name in enumerate(names)]
            first, last = "{", "}"
        elif isinstance(one, list):
            parts = [(comma if n else "", member) for n, member in enumerate(one)]
            first, last = "[", "]"
        else:
            texts.append("" if one is _NOTHING else leaf(one))
            continue
        texts.append(first)
        todo.append((last, _NOTHING))
        todo.extend(reversed(parts))
    return "".join(texts)


def is_deeper(text: bytes, depth: int) -> bool:
    """Whether more arrays and objects than ``depth`` stand in each other, in JSON text.

    >>> is_deeper(b'[["[[["]]', 2), is_deeper(b'[{"a":[]}]', 2)
    (False, True)
    """
    if text.count(b"[") + text.count(b"{") <= depth:
        return False
    now = 0
    for token in _TEXT_OR_BRACKET.finditer(text):
        first = token[0][:1]
        now += (first in b"[{") - (first in b"]}")
        if now > depth:
            return True
    return False


def blank(text: str, at: int) -> int:
    """The first character from ``at`` on that is no white space."""
    while text[at : at + 1] and text[at] in BLANKS:
        at += 1
    return at


def expect(text: str, at: int, expected: str) -> int:
    """The character behind ``expected``, which stands at ``at`` or behind white space. ValueError elsewhere."""
    at = blank(text, at)
    if text[at : at + 1] != expected:
        raise ValueError(f"expected {expected} at character {at} of JSON")
    return at + 1


_NOTHING = object()


@cache
def _reader(number: Number) -> Callable[[str, int], tuple[Any, int]]:
    read: Any = json.JSONDecoder(parse_int=number, parse_float=number, parse_constant=_no_constant).raw_decode
    return read  # type: ignore[no-any-return]


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _deep(text: str, at: int, scalar: Callable[[str, int], tuple[Any, int]]) -> tuple[Any, int]:
    """:func:`value_at`, with the arrays and objects that are open in a list of their own."""
    opened: list[tuple[Any, str]] = []
    while True:
        at = blank(text, at)
        if (bracket := text[at : at + 1]) in _CLOSING:
            value: Any = [] if bracket == "[" else {}
            at = blank(text, at + 1)
            if text[at : at + 1] != _CLOSING[bracket]:
                name, at = _name(text, at, scalar) if bracket == "{" else ("", at)
                opened.append((value, name))
                continue
            at += 1
        else:
            value, at = scalar(text, at)
        while opened:
            around, name = opened.pop()
            if isinstance(around, list):
                around.append(value)
            else:
                around[name] = value
            at = blank(text, at)
            if text[at : at + 1] == ",":
                name, at = _name(text, at + 1, scalar) if isinstance(around, dict) else ("", at + 1)
                opened.append((around, name))
                break
            at = expect(text, at, "]" if isinstance(around, list) else "}")
            value = around
        else:
            return value, at


def _name(text: str, at: int, scalar: Callable[[str, int], tuple[Any, int]]) -> tuple[str, int]:
    """A member's name, and where its value begins."""
    at = expect(text, at, '"') - 1
    name, at = scalar(text, at)
    return str(name), expect(text, at, ":")


# JSON strings exactly as Debezium's converter (Jackson) writes them.
#
# Keys of records are compared and partitioned by their bytes, so the escapes count: the short ones for ``\b \t \n \f
# \r " \``, upper-case hex for other controls, and a pair of surrogates for characters beyond the basic plane.
# Everything else stands as itself.

PLAIN = rb'[^\x00-\x1f"\\\xf0-\xff]'
"""A byte (as a regular expression) that stands as itself inside a JSON string."""

_SPECIAL = re.compile(rb'[\x00-\x1f"\\\xf0-\xff]').search
_RARE = re.compile(rb"\\u00|[\xf0-\xf7]").search
_REWRITTEN = re.compile(rb"\\(?:u00[01][0-9a-f]|.)|[\xf0-\xf7]...", re.DOTALL)


def quote(text: bytes) -> bytes:
    """A JSON string. Raises ValueError when the text is not UTF-8.

    >>> quote('a "b" \\N{GRINNING FACE} \\x1f'.encode()).decode()
    '"a \\\\"b\\\\" \\\\uD83D\\\\uDE00 \\\\u001F"'
    """
    if _SPECIAL(text) is None:
        if not text.isascii():
            text.decode()
        return b'"%b"' % text
    quoted = orjson.dumps(text.decode())
    # Quotes, backslashes and line ends orjson writes as Jackson does.
    return quoted if _RARE(quoted) is None else _REWRITTEN.sub(_rewrite, quoted)


def name(text: str) -> bytes:
    """A member's name with its colon."""
    return quote(text.encode()) + b":"


def _rewrite(match: re.Match[bytes]) -> bytes:
    found = match[0]
    if found[0] != 0x5C:
        units = found.decode().encode("utf-16-be")
        return b"\\u%02X%02X\\u%02X%02X" % tuple(units)
    return b"\\u00" + found[4:].upper() if len(found) == 6 else found
