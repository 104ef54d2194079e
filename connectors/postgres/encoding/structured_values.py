"""Values with a structure of their own: dates, times and intervals, geometry, vectors, hstore, and arrays of anything.

Of times the text is what a session with DateStyle=ISO, TimeZone=UTC and IntervalStyle=iso_8601 prints. Years beyond
9999 and before 1 are legal in Postgres and impossible in ``datetime``: the arithmetic here is our own. Other shapes are
Debezium's: well-known binary in base64 for what has more than a point, numbers as Postgres prints them (they
round-trip).
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import lru_cache

from cdc.wire.jsontree import quote

Encode = Callable[[bytes], bytes]

_DATE = re.compile(rb"(\d{4,7})-(\d\d)-(\d\d)( BC)?")
_TIME = re.compile(rb"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ZONE = re.compile(rb"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")
_STAMP = re.compile(rb"(\d{4,7}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?)(\+00)?( BC)?")
_INTERVAL = re.compile(
    rb"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)
_DAY_US = 86_400_000_000
_MONTH_US = 2_629_800_000_000
"""365.25 / 12 days, as Debezium's MicroDuration has it."""
_INFINITE = (b"infinity", b"-infinity")
_MAX, _MIN = (1 << 63) - 1, -(1 << 63)

# What Debezium writes for infinities in streaming: limits of Java's own types.
_INFINITE_DAYS = {b"infinity": b"2146033979", b"-infinity": b"-2147472691"}
_INFINITE_MS = {b"infinity": b"9223372036825200000", b"-infinity": b"-9223372036832400000"}
_INFINITE_US = {b"infinity": b"9223372036854775807", b"-infinity": b"-9223372036854775808"}


def iso_date(text: bytes) -> bytes:
    """A date of Postgres in ISO 8601: ``+10000-01-01``, ``-0043-03-15`` (44 BC). Raises ValueError for other text."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("not a date")
    if match[4] is None and len(match[1]) == 4:
        return text
    year = _year(match)
    sign = b"+" if year > 9999 else b"-" if year < 0 else b""
    return b"%b%04d-%b-%b" % (sign, abs(year), match[2], match[3])


def readable_date(text: bytes) -> bytes:
    """A ``date`` in Postgres's text as a JSON string in ISO 8601, infinity as it stands."""
    return b'"%b"' % text if text in _INFINITE else b'"%bZ"' % iso_date(text)


def readable_time(text: bytes) -> bytes:
    """A ``time`` in Postgres's text as a JSON string that ends with Z. ValueError for any other text."""
    if _TIME.fullmatch(text) is None:
        raise ValueError("not a time")
    return b'"%bZ"' % text


def readable_timestamp(text: bytes) -> bytes:
    """Both kinds of timestamp with the fraction as Postgres prints it."""
    if text in _INFINITE:
        return b'"%b"' % text
    date, time = _stamp(text)
    return b'"%bT%bZ"' % (iso_date(date), time)


def zoned_timestamp(precision: int) -> Encode:
    """timestamptz: the fraction padded to the column's precision."""

    def encode(text: bytes) -> bytes:
        if text in _INFINITE:
            return b'"%b"' % text
        date, time = _stamp(text)
        return b'"%bT%bZ"' % (iso_date(date), padded(time, precision))

    return encode


def padded(time: bytes, precision: int) -> bytes:
    """``13:51:30.5`` at precision 3 is ``13:51:30.500``."""
    if precision == 0:
        return time
    return (time if len(time) > 8 else time + b".").ljust(9 + precision, b"0")


def zoned_time(text: bytes) -> bytes:
    """timetz in UTC, the fraction trimmed. 24:00 stays where UTC has it so. Raises ValueError for any other text."""
    match = _TIME.match(text)
    zone = _ZONE.fullmatch(text, match.end()) if match else None
    if match is None or zone is None:
        raise ValueError("not a time with time zone")
    offset_s = int(zone[2]) * 3600 + int(zone[3] or 0) * 60 + int(zone[4] or 0)
    second = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
    second -= offset_s if zone[1] == b"+" else -offset_s
    if second != 86_400:
        second %= 86_400
    fraction = (match[4] or b"").rstrip(b"0")
    clock = b"%02d:%02d:%02d" % (second // 3600, second // 60 % 60, second % 60)
    return b'"%b.%bZ"' % (clock, fraction) if fraction else b'"%bZ"' % clock


def epoch_days(text: bytes) -> bytes:
    """A ``date`` in Postgres's text as days since 1970, infinity as the value that stands for it."""
    return _INFINITE_DAYS.get(text) or b"%d" % _days(text)


def day_time(precision: int) -> Encode:
    """time as milliseconds of the day up to precision 3, microseconds above."""
    divisor = 1000 if precision <= 3 else 1
    return lambda text: b"%d" % (time_us(text) // divisor)


def epoch_time(precision: int) -> Encode:
    """timestamp, as if in UTC, in milliseconds since 1970 up to precision 3, microseconds above."""
    milli = precision <= 3
    infinite = _INFINITE_MS if milli else _INFINITE_US

    def encode(text: bytes) -> bytes:
        if text in _INFINITE:
            return infinite[text]
        date, time = _stamp(text)
        micros = _days(date) * _DAY_US + time_us(time)
        return b"%d" % (micros // 1000 if milli else micros)

    return encode


def readable_interval(text: bytes) -> bytes:
    """Every part written, as Debezium does: ``P0Y-1M0DT0H0M0S``."""
    if text in _INFINITE:
        return b'"%b"' % text
    parts = (part or b"0" for part in _interval(text).groups())
    return b'"P%bY%bM%bDT%bH%bM%bS"' % tuple(parts)


def interval_us(text: bytes) -> bytes:
    """Microseconds, a month being 365.25/12 days. Held to 64 bits."""
    if text in _INFINITE:
        return _INFINITE_US[text]
    years, months, days, hours, minutes, seconds = _interval(text).groups(b"0")
    whole, _, fraction = seconds.partition(b".")
    micros = int(whole) * 1_000_000 + (int(fraction.ljust(6, b"0")) if fraction else 0) * (
        -1 if whole.startswith(b"-") else 1
    )
    micros += (int(hours) * 60 + int(minutes)) * 60_000_000 + int(days) * _DAY_US
    micros += (int(years) * 12 + int(months)) * _MONTH_US
    return b"%d" % min(max(micros, _MIN), _MAX)


def time_us(text: bytes) -> int:
    """Microseconds of the day. 24:00:00 is 86400000000. Raises ValueError for any other text."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time")
    hour, minute, second, fraction = match.groups(b"")
    micros = (int(hour) * 3600 + int(minute) * 60 + int(second)) * 1_000_000
    return micros + int(fraction.ljust(6, b"0")) if fraction else micros


@lru_cache(maxsize=4096)
def _days(text: bytes) -> int:
    """Days since 1970 in the proleptic Gregorian calendar (days_from_civil by H. Hinnant)."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("not a date")
    year, month, day = _year(match), int(match[2]), int(match[3])
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _year(match: re.Match[bytes]) -> int:
    """Astronomical: 1 BC is 0."""
    year = int(match[1])
    return 1 - year if match[4] else year


def _stamp(text: bytes) -> tuple[bytes, bytes]:
    match = _STAMP.fullmatch(text)
    if match is None:
        raise ValueError("not a timestamp")
    date, time, _, era = match.groups(b"")
    return date + era, time


def _interval(text: bytes) -> re.Match[bytes]:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError("not an interval")
    return match


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
