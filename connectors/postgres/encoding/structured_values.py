"""Values with a structure of their own: geometry, vectors, hstore, and arrays of anything.

Shapes are Debezium's: well-known binary in base64 for what has more than a point, numbers as Postgres prints
them (they round-trip).
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator

from cdc.wire.jsontree import quote

Encode = Callable[[bytes], bytes]

_NUMBER = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]\d+)?")
_NOT_A_NUMBER = (b"NaN", b"Infinity", b"-Infinity")
_PAIR = re.compile(rb"\(([^(),]+),([^(),]+)\)")
_HSTORE = re.compile(rb'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|(NULL))(?:, |\Z)', re.DOTALL)
_ELEMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"|[^{},"\\]+', re.DOTALL)
_BOX_ELEMENT = re.compile(rb'[^{};"]+')
_BACKSLASH = re.compile(rb"\\(.)", re.DOTALL)
_POINT, _LINE, _POLYGON = 1, 2, 3


def number(text: bytes) -> bytes:
    """A float as a JSON number, or as the strings "NaN", "Infinity", "-Infinity". Minus zero keeps its sign.

    Raises ValueError for any other text.
    """
    if text == b"-0":
        return b"-0.0"
    if _NUMBER.fullmatch(text):
        return text
    if text in _NOT_A_NUMBER:
        return b'"%b"' % text
    raise ValueError("not a number")


def point(text: bytes) -> bytes:
    """A ``point`` in Postgres's text as JSON of the wire. ValueError for any other text."""
    (place,) = _places(text, 1)
    return _point(*place)


def box(text: bytes) -> bytes:
    """The five corners of the ring in Debezium's order."""
    (x1, y1), (x2, y2) = _places(text, 2)
    return _geometry(_ring([(x1, y1), (x1, y2), (x2, y2), (x2, y1), (x1, y1)]), b'{"type":"box"}')


def lseg(text: bytes) -> bytes:
    """An ``lseg`` in Postgres's text as JSON of the wire. ValueError for any other text."""
    return _geometry(_line(_places(text, 2)), b'{"type":"lseg"}')


def path(text: bytes) -> bytes:
    """A ``path`` in Postgres's text as JSON of the wire, open or closed. ValueError for any other text."""
    closed = b"true" if text.startswith(b"(") else b"false"
    return _geometry(_line(_places(text)), b'{"type":"path","closed":"%b"}' % closed)


def polygon(text: bytes) -> bytes:
    """A ``polygon`` in Postgres's text as JSON of the wire. Its ring ends with its first point. ValueError for any
    other."""
    places = _places(text)
    return _geometry(_ring([*places, places[0]]), b'{"type":"polygon"}')


def circle(text: bytes) -> bytes:
    """A ``circle`` in Postgres's text as JSON of the wire. ValueError for any other text."""
    match = re.fullmatch(rb"<(\([^()]+\)),([^,()<>]+)>", text)
    if match is None:
        raise ValueError("not a circle")
    return b'{"center":%b,"radius":%b}' % (point(match[1]), number(match[2]))


def line(text: bytes) -> bytes:
    """A ``line`` in Postgres's text as its coefficients in JSON. ValueError for any other text."""
    parts = text[1:-1].split(b",")
    if len(parts) != 3:
        raise ValueError("not a line")
    return b'{"a":%b,"b":%b,"c":%b}' % tuple(number(part) for part in parts)


def vector(text: bytes) -> bytes:
    """``[1,2.5,-3]``: as JSON has it, once each number is seen to be one."""
    inner = text[1:-1]
    return b"[%b]" % b",".join(number(part) for part in inner.split(b",")) if inner else b"[]"


def sparsevec(text: bytes) -> bytes:
    """``{1:1,3:2.5}/5`` as its dimensions and its elements by index. Raises ValueError for any other form."""
    match = re.fullmatch(rb"\{([^{}]*)\}/(\d+)", text)
    if match is None:
        raise ValueError("not a sparsevec")
    entries = [entry.split(b":") for entry in match[1].split(b",")] if match[1] else []
    pairs = b",".join(b"[%d,%b]" % (int(index), number(value)) for index, value in entries)
    return b'{"dimensions":%b,"vector":[%b]}' % (match[2], pairs)


def hstore(text: bytes) -> bytes:
    """A string that holds a JSON object, members in Postgres's order (D22). Raises ValueError for what is no hstore."""
    at, members = 0, []
    while at < len(text):
        match = _HSTORE.match(text, at)
        if match is None:
            raise ValueError("not an hstore")
        value = b"null" if match[3] else _quoted(match[2])
        members.append(b"%b:%b" % (_quoted(match[1]), value))
        at = match.end()
    return quote(b"{%b}" % b",".join(members))


def array(element: Encode, delimiter: bytes) -> Encode:
    """An array of any dimensions as nested JSON arrays. Lower bounds other than 1 are not carried."""

    def encode(text: bytes) -> bytes:
        if text.startswith(b"["):
            text = text[text.index(b"=") + 1 :]
        encoded, end = _array(text, 0, element, delimiter)
        if end != len(text):
            raise ValueError("not an array")
        return encoded

    return encode


def _array(text: bytes, at: int, element: Encode, delimiter: bytes) -> tuple[bytes, int]:
    """The array that opens at ``at`` and the place after it. Depth is at most 6 in Postgres."""
    if text[at : at + 1] != b"{":
        raise ValueError("not an array")
    if text[at + 1 : at + 2] == b"}":
        return b"[]", at + 2
    parts = []
    pattern = _ELEMENT if delimiter == b"," else _BOX_ELEMENT
    while True:
        at += 1
        if text[at : at + 1] == b"{":
            part, at = _array(text, at, element, delimiter)
        else:
            match = pattern.match(text, at)
            if match is None:
                raise ValueError("not an array")
            part, at = _element(match, element), match.end()
        parts.append(part)
        after = text[at : at + 1]
        if after == b"}":
            return b"[%b]" % b",".join(parts), at + 1
        if after != delimiter:
            raise ValueError("not an array")


def _element(match: re.Match[bytes], element: Encode) -> bytes:
    whole = match[0]
    if whole == b"NULL":
        return b"null"
    if whole.startswith(b'"'):
        return element(_BACKSLASH.sub(rb"\1", match[1]))
    return element(whole)


def _quoted(escaped: bytes) -> bytes:
    return quote(_BACKSLASH.sub(rb"\1", escaped))


def _places(text: bytes, count: int | None = None) -> list[tuple[bytes, bytes]]:
    found = [(match[1], match[2]) for match in _PAIR.finditer(text)]
    if not found or (count is not None and len(found) != count):
        raise ValueError("not a shape")
    return found


def _point(x: bytes, y: bytes) -> bytes:
    wkb = b64encode(_header(_POINT) + _coordinates([(x, y)]))
    return b'{"x":%b,"y":%b,"wkb":"%b","srid":null}' % (number(x), number(y), wkb)


def _geometry(wkb: bytes, extensions: bytes) -> bytes:
    return b'{"wkb":"%b","srid":null,"extensions":%b}' % (b64encode(wkb), extensions)


def _line(places: list[tuple[bytes, bytes]]) -> bytes:
    return _header(_LINE) + struct.pack("<I", len(places)) + _coordinates(places)


def _ring(places: list[tuple[bytes, bytes]]) -> bytes:
    return _header(_POLYGON) + struct.pack("<II", 1, len(places)) + _coordinates(places)


def _header(kind: int) -> bytes:
    return struct.pack("<BI", 1, kind)


def _coordinates(places: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(_doubles(places))


def _doubles(places: list[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for x, y in places:
        yield struct.pack("<dd", float(x), float(y))
