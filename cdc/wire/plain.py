"""How a value stands in the stores: plain values, the same from either encoding.

A plain value is the one of the ``readable`` encoding (see the wire manual): exact decimals as text, ISO 8601
dates and times, bytes in base64. With one difference: json, jsonb and hstore are nested as what they are, by
their own text, so that a number such as 1e400 stays as it was written.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, localcontext
from typing import Any

import orjson

from cdc.record.documents import dumped
from cdc.record.schema import Column, TableSchema
from cdc.record.topic_names import STREAM_SCHEMA, VIEW_SCHEMA
from cdc.wire.jsontree import loads
from cdc.wire.types import DATED, INTEGERS, NESTED_KINDS

Convert = Callable[[Any], Any]

_DATE_INFINITY = {
    2146033979: "infinity",
    2147483647: "infinity",
    -2147472691: "-infinity",
    -2147483648: "-infinity",
}
_MICROS_INFINITY = {9223372036854775807: "infinity", -9223372036854775808: "-infinity"}
_MILLIS_INFINITY = {9223372036825200000: "infinity", -9223372036832400000: "-infinity"} | _MICROS_INFINITY
_PRINTABLE_BITS = 14_000
_MOST_DIGITS = 131_072
"""Of a numeric of Postgres, before the point. Behind it fewer."""
_DAY_US = 86_400_000_000
NULL_IN_KEY = "%null"
"""A NULL in the key of a view's document, in the stores. No text stands so there: its percent signs are ``%25``."""
KEYLESS = "all"
"""The key of the one row of a view whose key has no columns, in the stores."""
LONGEST_KEY_BYTES = 512
"""The longest text of a key in the stores. Several stores take no much longer one, and all have the same."""
HASHED_KEY = "%sha256."
"""Begins the text of a longer key. No other text begins so: its percent signs are ``%25`` or ``%3A``."""
_NAN = "NaN"
_ERA = re.compile(r"[+-]?\d{4,7}(?=-)")


class PlainTable:
    """Rows and keys of one shape, from the wire to plain values. Compile once per TableSchema version.

    ``nested`` False: json, jsonb and hstore stay text.
    """

    def __init__(self, schema: TableSchema, *, nested: bool = True) -> None:
        self.schema = schema
        converted = [c for c in schema.columns if nested or c.kind not in NESTED_KINDS]
        self._conversions = [(c.name, f) for c in converted if (f := _conversion(c, schema.encoding)) is not None]
        null = NULL_IN_KEY if schema.table.schema in (VIEW_SCHEMA, STREAM_SCHEMA) else None
        self._key = [(c.name, _key_text(c, schema.encoding, null if c.nullable else None)) for c in schema.key]
        self.as_it_is = not self._conversions
        """Whether a row's JSON on the wire is its plain JSON."""

    def values(self, after: Mapping[str, Any]) -> dict[str, Any]:
        """A row as plain values. Json, jsonb and hstore as orjson.Fragment of their text.

        ValueError, naming the column, when a value does not fit its type.
        """
        row = dict(after)
        for name, convert in self._conversions:
            value = row.get(name)
            if value is not None:
                try:
                    row[name] = convert(value)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise ValueError(f"the value of column {name} does not fit its type") from error
        return row

    def row(self, after_json: bytes) -> bytes:
        """A row's JSON as it stands on the wire to its plain JSON. ValueError when it is not a row of this table."""
        after = orjson.loads(after_json)
        if not isinstance(after, dict):
            raise ValueError("the row is not a JSON object")
        return after_json if self.as_it_is else dumped(self.values(after))

    def key(self, key_json: bytes) -> str:
        """The store key: each column's text, ``%`` and ``:`` percent-encoded, joined by ``:``, see :func:`store_key`.

        A NULL, which a view's key alone may have, is :data:`NULL_IN_KEY`. A key without columns is :data:`KEYLESS`.
        ValueError when it is not a key of this table.
        """
        key = orjson.loads(key_json)
        if key == {} and not self._key:
            return KEYLESS
        try:
            if not self._key:
                raise ValueError("it has columns")
            return store_key([text(key[name]) for name, text in self._key])
        except (ValueError, TypeError, KeyError, AttributeError):
            columns = ", ".join(name for name, _ in self._key)
            raise ValueError(f"the key does not have the columns {columns}") from None

    def keys(self, keys_json: Iterable[bytes]) -> list[str]:
        """:meth:`key` over many. ValueError when any of them is not a key of this table."""
        if len(self._key) != 1:
            return [self.key(key) for key in keys_json]
        ((name, text),) = self._key
        loads = orjson.loads
        try:
            return [store_key((text(loads(key)[name]),)) for key in keys_json]
        except (TypeError, KeyError, AttributeError):
            raise ValueError(f"a key does not have the column {name}") from None


def store_key(parts: Iterable[str]) -> str:
    """The key as the stores have it, of its columns' texts: the hash of what is longer than :data:`LONGEST_KEY_BYTES`.

    >>> store_key(["7", "eu"]), store_key(["x" * 600])[:24]
    ('7:eu', '%sha256.5130b33e6b87fbf5')
    """
    text = ":".join(parts)
    if len(text) * 4 <= LONGEST_KEY_BYTES or len(raw := text.encode("utf-8", "surrogatepass")) <= LONGEST_KEY_BYTES:
        return text
    return HASHED_KEY + hashlib.sha256(raw).hexdigest()


def key_literal(kind: str, text: str) -> str:
    """A key column's text in the stores as Postgres reads it: bytes in hex, years of any era. Others read the same.

    >>> key_literal("bytea", "AQL/"), key_literal("date", "-0043-03-15Z"), key_literal("text", "-0043-03-15Z")
    ('\\\\x0102ff', '0044-03-15Z BC', '-0043-03-15Z')
    """
    if kind == "bytea":
        try:
            return "\\x" + binascii.a2b_base64(text, strict_mode=True).hex()
        except ValueError:
            return text  # in Postgres's own words
    if kind not in DATED or (found := _ERA.match(text)) is None:
        return text
    year, rest = int(found[0]), text[found.end() :]
    return f"{year:04d}{rest}" if year > 0 else f"{1 - year:04d}{rest} BC"


def escape_key(text: str) -> str:
    """
    >>> escape_key("50%:a")
    '50%25%3Aa'
    """
    if "%" in text or ":" in text:
        return text.replace("%", "%25").replace(":", "%3A")
    return text


def _key_text(column: Column, encoding: str, null: str | None) -> Callable[[Any], str]:
    """How a key column's value on the wire becomes its text. Raises ValueError or TypeError on what is no key.

    ``null``: the text of NULL, None where a key has none.
    """
    known = _known_text(column, encoding)
    return known if null is None else lambda value: null if value is None else known(value)


def _known_text(column: Column, encoding: str) -> Callable[[Any], str]:
    convert = None if column.kind in NESTED_KINDS else _conversion(column, encoding)
    if convert is None and column.kind in INTEGERS and not column.array:
        return int.__repr__  # of nothing but an integer: TypeError
    floating = column.kind in ("float4", "float8") and not column.array

    def text(value: Any) -> str:
        if convert is not None and value is not None:
            value = convert(value)
        if isinstance(value, str):
            return escape_key(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            # -0.0 and 0.0 are one key in Postgres.
            return orjson.dumps(float(value) or 0.0).decode() if floating else str(value)
        if isinstance(value, list | dict):
            return escape_key(orjson.dumps(value).decode())
        raise ValueError("a key's value is null")

    return text


def _conversion(column: Column, encoding: str) -> Convert | None:
    """From the wire to the plain value, or None where both are the same."""
    convert: Convert | None = None
    if column.kind in NESTED_KINDS:
        convert = _nested
    elif encoding == "debezium":
        convert = _from_debezium(column)
    if convert is None:
        return None
    return each(convert) if column.array else convert


def each(convert: Convert) -> Convert:
    """The conversion of an array, of arrays too: of each element, None as it is. TypeError for no array."""

    def every(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError("not an array")
        return [every(v) if isinstance(v, list) else None if v is None else convert(v) for v in value]

    return every


def readable_key(schema: TableSchema, names: Mapping[str, Any], *, precise: bool) -> dict[str, Any]:
    """A key in Debezium's default encoding as the readable one has it, by the kinds of its columns. A readable one
    stays as it is. ``precise``: decimals are bytes in it. ValueError where a value does not fit."""
    done = dict(names)
    for column in schema.key:
        decimal = column.kind in ("numeric", "money")
        convert = _from_debezium(column) if schema.encoding == "readable" and (precise or not decimal) else None
        if convert is not None and done.get(column.name) is not None:
            done[column.name] = convert(done[column.name])
    return done


def _nested(text: str) -> orjson.Fragment:
    """JSON text as a part of a document. ValueError when it is not JSON."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        # A number beyond a double, or deeper than orjson reads, is legal in Postgres: the slow reader decides.
        loads(text, str)
    return orjson.Fragment(text)


def _from_debezium(column: Column) -> Convert | None:
    """Debezium's default encoding to the readable one, for the kinds where they differ."""
    if column.kind == "numeric" and column.typmod < 0:
        return lambda v: v if isinstance(v, str) else unscaled_text(v["value"], v["scale"])
    if column.kind in ("numeric", "money"):
        scale = 2 if column.kind == "money" else column.scale or 0
        # Base64 comes in fours, and no numeric of a declared scale is infinite.
        return lambda v: v if v == _NAN else unscaled_text(v, scale)
    if column.kind in ("time", "timestamp") and column.precision is not None and column.precision <= 3:
        return _time_ms if column.kind == "time" else _timestamp_ms
    return {"date": _date, "time": _time_us, "timestamp": _timestamp_us, "interval": _interval}.get(column.kind)


def unscaled_text(unscaled_base64: str, scale: int) -> str:
    """Base64 of a big-endian two's-complement number, scaled, as decimal text.

    >>> unscaled_text("bg==", 2)
    '1.10'
    >>> unscaled_text("/w==", -2)
    '-100'

    ValueError beyond what Postgres has: the digits of such a scale would fill the memory.
    """
    if not -_MOST_DIGITS <= scale <= _MOST_DIGITS:
        raise ValueError("no scale of a decimal")
    unscaled = int.from_bytes(binascii.a2b_base64(unscaled_base64, strict_mode=True), "big", signed=True)
    if scale <= 0:
        return _digits(unscaled * 10**-scale)
    digits = _digits(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _digits(number: int) -> str:
    # Python prints no integer of over 4,300 digits. Postgres has numerics of 131,072.
    if number.bit_length() <= _PRINTABLE_BITS:
        return str(number)
    with localcontext(Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        return f"{'-' if number < 0 else ''}{_large(abs(number)):f}"


def _large(number: int) -> Decimal:
    """In halves: Python's own way takes quadratic time, seconds for the longest numeric."""
    bits = number.bit_length()
    if bits <= _PRINTABLE_BITS:
        return Decimal(number)
    half = bits // 2
    return _large(number >> half) * Decimal(2) ** half + _large(number & ((1 << half) - 1))


def _decimal(value: int, scale: int) -> str:
    """
    >>> _decimal(-1500000, 6), _decimal(2000000, 6)
    ('-1.5', '2')
    """
    whole, part = divmod(abs(value), 10**scale)
    fraction = f".{part:0{scale}d}".rstrip("0").rstrip(".") if part else ""
    return f"{'-' if value < 0 else ''}{whole}{fraction}"


def _interval(value: Any) -> str:
    return f"PT{_decimal(value, 6)}S" if isinstance(value, int) else str(value)


def _date(value: Any) -> str:
    if not isinstance(value, int):
        return str(value)
    return _DATE_INFINITY.get(value) or f"{iso_date(value)}Z"


def _time_ms(value: Any) -> str:
    return _time_us(value * 1000) if isinstance(value, int) else str(value)


def _time_us(value: Any) -> str:
    return f"{_clock(value)}Z" if isinstance(value, int) else str(value)


def _timestamp_ms(value: Any) -> str:
    if not isinstance(value, int):
        return str(value)
    return _MILLIS_INFINITY.get(value) or _timestamp(value * 1000)


def _timestamp_us(value: Any) -> str:
    if not isinstance(value, int):
        return str(value)
    return _MICROS_INFINITY.get(value) or _timestamp(value)


def _timestamp(micros: int) -> str:
    days, rest = divmod(micros, _DAY_US)
    return f"{iso_date(days)}T{_clock(rest)}Z"


def _clock(micros: int) -> str:
    seconds, part = divmod(micros, 1_000_000)
    fraction = f".{part:06d}".rstrip("0") if part else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def iso_date(days: int) -> str:
    """Days since 1970-01-01 as an ISO 8601 date of any year, as Java prints it.

    >>> iso_date(17109), iso_date(-719163), iso_date(2932897)
    ('2016-11-04', '0000-12-31', '+10000-01-01')
    """
    # The civil calendar from a day count: years from March, in eras of 400 years (146,097 days).
    shifted = days + 719_468
    era, of_era = divmod(shifted, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"
