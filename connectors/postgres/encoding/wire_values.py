"""How each kind of value stands on the wire: Postgres's text in, JSON out, in both encodings.

:func:`codec` gives, for a column, the function for any value it may hold, and a :class:`Fast` form for the
values that make up nearly all rows: a regular expression with one group per part and the text to write around
them, from which :mod:`connectors.postgres.encoding.compiled` makes a function for whole rows. A value that the fast
form does not match is not wrong. It takes the function. The wire manual has the table of all types. D-numbers
are its list of deliberate differences from Debezium.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from cdc.record.schema import Column, Encoding
from cdc.wire.jsontree import PLAIN, quote
from connectors.postgres.encoding import structured_values as shapes
from connectors.postgres.encoding import structured_values as times

Encode = Callable[[bytes], bytes]

_WHOLE = rb"(0|-?[1-9]\d*)"
"""A whole number as Postgres writes it, and as JSON takes it: without leading zeros."""
_INTEGER = re.compile(_WHOLE)
_DECIMAL = re.compile(rb"-?\d+(?:\.\d+)?")
_DIGITS = 4000
"""Below Python's limit for turning digits into an int at once. Numeric may have 131,072 and more."""
_BOOLEANS = {b"t": b"true", b"f": b"false"}
_NOT_A_NUMBER = (b"NaN", b"Infinity", b"-Infinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fast:
    """The common form of a kind's values.

    ``pattern`` has ``groups`` groups. A value's length is the groups' lengths plus ``extra``, or ``length``
    where it is fixed. ``text``: what is written, ``%b`` for each group. ``mapped``: the last group goes through
    this function first, unless ``unless_length`` is its length. ``anything``: the pattern matches every value
    of the kind. ``mapped`` raises ValueError for what is none.
    """

    pattern: bytes
    text: bytes
    groups: int = 1
    extra: int = 0
    length: int | None = None
    mapped: Encode | None = None
    unless_length: int | None = None
    anything: bool = False

    @property
    def takes_nulls(self) -> bool:
        """Whether a value may go on over markers of null behind it: ``n`` is text too."""
        return self.length is None and re.fullmatch(self.pattern, b"n") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """``encode`` raises ValueError when the text is none that the type prints. ``fast`` fits nearly all values,
    ``loose`` some more at a higher price, ``encode`` all."""

    encode: Encode
    fast: Fast
    loose: Fast


def codec(column: Column, encoding: Encoding, lost: Counter[str] | None = None) -> Codec:
    """How ``column`` is written. ``lost`` counts, by column, what ``debezium`` cannot express (D4)."""
    counter: Counter[str] = Counter() if lost is None else lost
    scalar = _scalar(column, encoding, counter)
    if not column.array:
        return scalar
    delimiter = b";" if column.kind == "box" else b","
    return _slow(shapes.array(scalar.encode, delimiter))


def integer(text: bytes) -> bytes:
    """An integer's text as a JSON number. ValueError for any other text."""
    if _INTEGER.fullmatch(text) is None:
        raise ValueError("not an integer")
    return text


def boolean(text: bytes) -> bytes:
    """``t`` or ``f`` as a JSON boolean. ValueError for any other text."""
    try:
        return _BOOLEANS[text]
    except KeyError:
        raise ValueError("not a boolean") from None


def decimal_text(text: bytes) -> bytes:
    """numeric as text: NaN and infinities keep their names (D4). Raises ValueError for any other text."""
    if text not in _NOT_A_NUMBER and _DECIMAL.fullmatch(text) is None:
        raise ValueError("not a decimal")
    return b'"%b"' % text


def money_text(text: bytes) -> bytes:
    """money without currency and grouping: ``-$1,234.56`` is ``"-1234.56"``."""
    return b'"%b"' % _money(text)


def hex_bytes(text: bytes) -> bytes:
    """``bytea`` in hex as a JSON string in base64. ValueError for any other form."""
    if not text.startswith(b"\\x"):
        raise ValueError("not bytea in hex")
    return b'"%b"' % b64encode(bytes.fromhex(text[2:].decode("ascii")))


def bit(text: bytes) -> bytes:
    """bit(1) and varbit(1). An empty varbit has no truth value."""
    return b"null" if not text else {b"1": b"true", b"0": b"false"}[text]


def bits(text: bytes) -> bytes:
    """Little-endian bytes, cut after the highest set bit, in base64. Raises ValueError for a character but 0 and 1."""
    if text.strip(b"01"):
        raise ValueError("not bits")
    value = int(text, 2) if text else 0
    return b'"%b"' % b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little"))


def decimal_bytes(value: int) -> bytes:
    """Minimal big-endian two's complement in base64, as Java's BigInteger.

    >>> decimal_bytes(110), decimal_bytes(-1), decimal_bytes(0), decimal_bytes(-128)
    (b'bg==', b'/w==', b'AA==', b'gA==')
    """
    length = ((value if value >= 0 else ~value).bit_length() + 8) // 8
    return b64encode(value.to_bytes(length, "big", signed=True))


def _unscaled(text: bytes, scale: int | None) -> tuple[int, int]:
    """A decimal as (unscaled, scale): at ``scale``, or with trailing zeros stripped and a scale of at least 0."""
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError("not a decimal")
    whole, _, fraction = text.partition(b".")
    if scale is None:
        fraction = fraction.rstrip(b"0")
        return _integer(whole + fraction), len(fraction)
    if scale < 0:
        return _divided(_integer(whole), 10**-scale), scale
    return _integer(whole + fraction.ljust(scale, b"0")), scale


def _integer(digits: bytes) -> int:
    if digits.startswith(b"-"):
        return -_integer(digits[1:])
    if len(digits) <= _DIGITS:
        return int(digits)
    low = len(digits) // 2
    return _integer(digits[:-low]) * int(10**low) + _integer(digits[-low:])


def _divided(value: int, by: int) -> int:
    quotient, rest = divmod(value, by)
    if rest:
        raise ValueError("more digits than the scale has")
    return quotient


def _money(text: bytes) -> bytes:
    plain = text.replace(b"$", b"").replace(b",", b"")
    _unscaled(plain, None)
    return plain


ANYTHING = rb"([^\x00]*)"
"""Text of Postgres never holds a NUL, which is what parts the columns of a message."""


def _slow(encode: Encode) -> Codec:
    form = _any(encode)
    return Codec(encode=encode, fast=form, loose=form)


def _any(encode: Encode) -> Fast:
    return Fast(pattern=ANYTHING, text=b"%b", mapped=encode, anything=True)


def _usual(encode: Encode, pattern: bytes, text: bytes = b"%b", **form: Any) -> Codec:
    """A kind whose other values (infinity, NaN, BC) are rare enough for the long way."""
    fast = Fast(pattern=pattern, text=text, **form)
    return Codec(encode=encode, fast=fast, loose=fast)


_TEXT = Codec(encode=quote, fast=Fast(pattern=b"(%b*)" % PLAIN, text=b'"%b"'), loose=_any(quote))
_INTEGERS = _usual(integer, _WHOLE)
# Without -0, which has to become -0.0: as an integer it would lose its sign in most readers.
_FLOATS = _usual(shapes.number, rb"(0|-?(?:[1-9]\d*(?:\.\d+)?|0\.\d+)(?:e[+-]\d+)?)")
_BOOLEAN = _usual(boolean, rb"([tf])", length=1, mapped=_BOOLEANS.__getitem__)
_UUID = _usual(quote, rb"([0-9a-f-]{36})", b'"%b"', length=36)
# Rarely without a special character, so no plain form: json holds quotes.
_JSON = _slow(quote)

_DATE = rb"(\d{4}-\d\d-\d\d)"
_CLOCK = rb"(\d\d:\d\d:\d\d(?:\.\d{1,6})?)"

_SAME: Mapping[str, Codec] = MappingProxyType(
    {
        "bool": _BOOLEAN,
        **dict.fromkeys(("int2", "int4", "int8", "oid"), _INTEGERS),
        **dict.fromkeys(("float4", "float8"), _FLOATS),
        **dict.fromkeys(("json", "jsonb"), _JSON),
        "uuid": _UUID,
        "bytea": _slow(hex_bytes),
        "timetz": _slow(times.zoned_time),
        "point": _slow(shapes.point),
        "box": _slow(shapes.box),
        "lseg": _slow(shapes.lseg),
        "path": _slow(shapes.path),
        "polygon": _slow(shapes.polygon),
        "circle": _slow(shapes.circle),
        "line": _slow(shapes.line),
        "vector": _slow(shapes.vector),
        "halfvec": _slow(shapes.vector),
        "sparsevec": _slow(shapes.sparsevec),
        "hstore": _slow(shapes.hstore),
    }
)
"""Kinds that both encodings write alike. Every kind in no table is text."""

_READABLE: Mapping[str, Codec] = MappingProxyType(
    {
        "numeric": _usual(decimal_text, rb"(-?\d+(?:\.\d+)?)", b'"%b"'),
        "money": _slow(money_text),
        "date": _usual(times.readable_date, _DATE, b'"%bZ"', length=10),
        "time": _usual(times.readable_time, _CLOCK, b'"%bZ"'),
        "timestamp": _usual(times.readable_timestamp, b"%b %b" % (_DATE, _CLOCK), b'"%bT%bZ"', groups=2, extra=1),
        "interval": _slow(times.readable_interval),
    }
)

_TIME_DIGITS = 6


def _scalar(column: Column, encoding: Encoding, lost: Counter[str]) -> Codec:
    kind = column.kind
    if kind in _SAME:
        return _SAME[kind]
    if kind in ("bit", "varbit"):
        return _slow(bit if column.typmod == 1 else bits)
    precision = column.typmod if 0 <= column.typmod <= _TIME_DIGITS else _TIME_DIGITS
    if kind == "timestamptz":
        return _zoned(precision)
    if encoding == "readable":
        return _READABLE.get(kind, _TEXT)
    return _debezium(column, precision, lost)


def _zoned(precision: int) -> Codec:
    return _usual(
        times.zoned_timestamp(precision),
        rb"%b %b\+00" % (_DATE, _CLOCK),
        b'"%bT%bZ"',
        groups=2,
        extra=4,
        # Postgres prints no trailing zeros of the fraction. The wire has them.
        mapped=partial(times.padded, precision=precision),
        unless_length=9 + precision if precision else 8,
    )


def _debezium(column: Column, precision: int, lost: Counter[str]) -> Codec:
    kind = column.kind
    if kind == "numeric":
        keyed = column.key_position is not None
        return _slow(partial(_decimal, column.scale, None if keyed else column.name, lost))
    encoders: dict[str, Encode] = {
        "money": lambda text: b'"%b"' % decimal_bytes(_unscaled(_money(text), 2)[0]),
        "date": times.epoch_days,
        "time": times.day_time(precision),
        "timestamp": times.epoch_time(precision),
        "interval": times.interval_us,
    }
    return _slow(encoders[kind]) if kind in encoders else _TEXT


def _decimal(scale: int | None, column: str | None, lost: Counter[str], text: bytes) -> bytes:
    """``column``: None for one of the key, which has no null."""
    if text in _NOT_A_NUMBER:
        if column is None:
            return b'"%b"' % text
        lost[column] += 1
        return b"null"
    value, found = _unscaled(text, scale)
    if scale is None:
        return b'{"scale":%d,"value":"%b"}' % (found, decimal_bytes(value))
    return b'"%b"' % decimal_bytes(value)
