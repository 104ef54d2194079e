"""One text for equal rows, from every store: what ``verify`` compares.

Columns in the shape's order. A column that is missing counts as null. Numbers by value and exactly (1.10 is 1.1
and 1e400 is no infinity), floats as the doubles (float4 and vectors: the singles) they are, fractions of seconds
without trailing zeros, members of JSON objects sorted.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

from cdc.record.documents import dumped
from cdc.record.schema import Column, TableSchema
from cdc.wire.jsontree import loads, written
from cdc.wire.types import BY_KIND, INTEGERS, NESTED_KINDS
from cdc.wire.types import Canonical as Rule

Canonical = Callable[[Any], Any]

_INEXACT = re.compile(rb"[0-9.]{16}|[0-9][eE]|[.][0-9]*0(?![0-9])|-0")
"""Where a number could be beyond the exact integers of a double, or be one of several texts of one value. Text within
strings may match too: that costs time only."""
_FLOAT = struct.Struct("<f")
_MOST_DIGITS = 131_072
"""Of a numeric, before the point. Behind it fewer."""
_DIGITS = 15
"""Decimals of so many digits and their doubles are one to one."""


class CanonicalTable:
    """Rows of one shape in canonical text. Compile once per TableSchema version."""

    def __init__(self, schema: TableSchema) -> None:
        self._names = [column.name for column in schema.columns]
        self._conversions = [(c.name, f) for c in schema.columns if (f := _canonical(c)) is not None]
        self._integers = [c.name for c in schema.columns if c.kind in INTEGERS]
        self._nested = any(c.kind in NESTED_KINDS for c in schema.columns)

    def row(self, plain_json: bytes) -> bytes:
        """The canonical text of a row's plain JSON. Equal for equal rows and for no others.

        ValueError when it is not a JSON object.
        """
        row = self._read(plain_json)
        if not isinstance(row, dict):
            raise ValueError("the row is not a JSON object")
        get = row.get
        for name, canonical in self._conversions:
            value = get(name)
            if value is not None:
                row[name] = canonical(value)
        return dumped([get(name) for name in self._names])

    def differences(self, one: bytes, other: bytes) -> list[str]:
        """Names of the columns in which two canonical rows differ."""
        pairs = zip(self._names, orjson.loads(one), orjson.loads(other), strict=True)
        return [name for name, a, b in pairs if a != b]

    def _read(self, plain_json: bytes) -> Any:
        if not self._nested:
            return orjson.loads(plain_json)
        if _INEXACT.search(plain_json) is None:
            with suppress(orjson.JSONDecodeError):  # half a surrogate pair, which json may hold
                return orjson.loads(plain_json)
        row = loads(plain_json.decode("utf-8", "surrogatepass"), _Number)
        for name in self._integers:
            if isinstance(row, dict) and row.get(name) is not None:
                row[name] = _each(int, row[name])
        return row


class _Number(str):
    """A JSON number by its text. Its class distinguishes it from a string."""

    __slots__ = ()


def _canonical(column: Column) -> Canonical | None:
    canonical = _CANONICAL.get(column.kind)
    if canonical is None or canonical is _json_text or not column.array:
        return canonical
    return lambda value: _each(canonical, value)


def _each(canonical: Canonical, value: Any) -> Any:
    if isinstance(value, list):
        return [_each(canonical, v) for v in value]
    return None if value is None else canonical(value)


def decimal_text(value: Any) -> str:
    """A decimal's value as text: no exponent, no zeros at its end.

    >>> decimal_text("1.10"), decimal_text("-0.00"), decimal_text("1E+3"), decimal_text("NaN")
    ('1.1', '0', '1000', 'NaN')
    """
    text = str(value)
    if text.isdecimal() and text[0] != "0":
        return text
    if "e" in text or "E" in text:
        try:
            number = Decimal(text)
        except InvalidOperation:
            return text
        if abs(number.adjusted()) > _MOST_DIGITS:
            return text  # no number of Postgres, and more digits than the memory has
        text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _double(value: Any) -> Any:
    return value if type(value) in (float, str) else float(value)


def _single(value: Any) -> Any:
    double = _double(value)
    return _FLOAT.unpack(_FLOAT.pack(double))[0] if isinstance(double, float) else double


def _singles(value: Any) -> Any:
    """A vector: typed stores hold its numbers in single precision, as Postgres does."""
    return _each(_single, value)


def _seconds(value: Any) -> Any:
    if value[-2:] == "0Z" and "." in value:
        return value[:-1].rstrip("0").rstrip(".") + "Z"
    return value


def _json_text(value: Any) -> str:
    """A JSON value as one text for all that are equal."""
    try:
        # Refuses _Number, which is a subclass: such a document takes the exact way.
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS).decode()
    except TypeError:
        return written(value, _exact_leaf, order=str)


def _exact_leaf(value: Any) -> str:
    return number_text(value) if isinstance(value, _Number) else _quoted(value)


def _quoted(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # half a surrogate pair
        return json.dumps(value)


def number_text(text: str) -> str:
    """The value of a JSON number, exactly, as one text. A short one as orjson prints it.

    >>> [number_text(text) for text in ("1.10", "11e-1", "10", "1e400", "-0.0", "1234567890123456789")]
    ['1.1', '1.1', '10', '1e400', '0', '1234567890123456789e0']
    """
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    sign = "-" if whole.startswith("-") else ""
    digits = (whole.lstrip("-") + fraction).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return "0"
    if len(exponent) > _DIGITS:
        return text  # longer than what Python reads as a number
    power = int(exponent or 0) - len(fraction) + len(digits) - len(kept)
    if len(kept) > _DIGITS or not -_DIGITS <= power <= _DIGITS - len(kept):
        return f"{sign}{kept}e{power}"
    return f"{sign}{kept}{'0' * power}" if power >= 0 else orjson.dumps(float(f"{sign}{kept}e{power}")).decode()


_RULES: dict[Rule, Canonical] = {
    Rule.DECIMAL: decimal_text,
    Rule.SECONDS: _seconds,
    Rule.JSON: _json_text,
    Rule.SINGLES: _singles,
    Rule.SINGLE: _single,
    Rule.DOUBLE: _double,
}
_CANONICAL = {kind: _RULES[f.canonical] for kind, f in BY_KIND.items() if f.canonical is not Rule.SAME}
