"""How a captured value stands in the state, and what it is when an expression computes with it.

The state has what SQLite stores small: whole numbers, floats, text, bytes. ``stored`` makes it from the plain
value of a record (:mod:`cdc.wire.plain`), ``loaded`` makes of it what :mod:`cdc.views.expression_source` computes with.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple

import orjson

from cdc.record.schema import Column
from cdc.views import calendar_days as cal
from cdc.views.conversions import to_text
from cdc.views.decimals import numeric_text, single_text
from cdc.views.sql_types import Group, SqlType
from cdc.views.syntax import NotComputable
from cdc.views.text_values import unpadded
from connectors.postgres.encoding.wire_values import codec

Function = Callable[[Any], Any]


def _zoneless(text: str) -> str:
    return text.removesuffix("Z")


def _date(text: str) -> int:
    return cal.date_of(_common_era(_zoneless(text)))


def _common_era(text: str) -> str:
    """A year before 1 BC is negative on the wire, 0 being 1 BC. Here it is a year BC."""
    if text[:1] == "-" and text != "-infinity":
        year, rest = text[1:].split("-", 1)
        return f"{int(year) + 1:04d}-{rest} BC"
    return text.removeprefix("+")


def _stamp(text: str) -> int:
    return cal.timestamp_of(_common_era(_zoneless(text)))


_STORED: dict[Group, Function] = {
    Group.BOOLEAN: int,
    Group.DATE: _date,
    Group.TIME: lambda text: cal.time_of(_zoneless(text)),
    Group.TIMESTAMP: _stamp,
    Group.TIMESTAMPTZ: _stamp,
}


def stored(kind: SqlType) -> Function | None:
    """From a plain value that is not null to what the state holds. None where it is the same. Raises ValueError."""
    if kind.array:
        return lambda value: orjson.dumps(value).decode()
    return unpadded if kind.kind == "bpchar" else _STORED.get(kind.group)


def _float(value: float | str) -> float:
    return float(value)


_PRINTED: dict[str, tuple[Function, Function]] = {
    "float4": (lambda value: single_text(float(value)), lambda text: _float_cell(float(text))),
    "oid": (str, int),
}
"""From what the state holds to the text that Postgres prints, and back."""


def _float_cell(value: float) -> float | str:
    return value if isfinite(value) else repr(value)  # SQLite has no NaN


_LOADED: dict[Group, Function] = {
    Group.BOOLEAN: bool,
    Group.NUMERIC: Decimal,
    Group.FLOAT: _float,
    Group.INTERVAL: cal.interval_of_iso,
    Group.BYTEA: base64.b64decode,
}


def loaded(kind: SqlType) -> Function | None:
    """From what the state holds to what is computed with. None where it is the same."""
    if kind.array:
        member = _from_plain(kind.element)
        return lambda text: _each(member, orjson.loads(text))
    if kind.kind == "bpchar":
        width = max(kind.typmod - 4, 0)
        return lambda text: text.ljust(width)
    if kind.kind in _PRINTED:
        return _PRINTED[kind.kind][0]
    return _LOADED.get(kind.group)


def _from_plain(kind: SqlType) -> Function:
    to_state, to_value = stored(kind) or _same, loaded(kind) or _same
    return lambda value: to_value(to_state(value))


def _same(value: Any) -> Any:
    return value


def _each(member: Function, values: list[Any]) -> list[Any]:
    return [_each(member, v) if isinstance(v, list) else None if v is None else member(v) for v in values]


def wire_text(kind: SqlType, name: str) -> Function:
    """From a computed value that is not null to its JSON on the wire (``readable``), as text.

    It is written as capture writes a column of that type: through Postgres's text of it.
    """
    scalar = kind.element if kind.array else kind
    text = _postgres_text(scalar)
    column = Column(name=name, attnum=1, type=scalar.kind, type_oid=0, kind=scalar.kind, typmod=scalar.typmod)
    encode = codec(column, "readable").encode

    def one(value: Any) -> str:
        return encode(text(value).encode()).decode()

    return (lambda values: _array(one, values)) if kind.array else one


def _array(one: Function, values: list[Any]) -> str:
    written = (_array(one, v) if isinstance(v, list) else "null" if v is None else one(v) for v in values)
    return "[" + ",".join(written) + "]"


def _postgres_text(kind: SqlType) -> Function:
    if kind.group is Group.BOOLEAN:
        return lambda value: "t" if value else "f"
    if kind.kind == "bpchar":
        return str
    return to_text(kind) or str


_CELLS: dict[Group, Function] = {
    Group.BOOLEAN: int,
    Group.FLOAT: _float_cell,
    Group.NUMERIC: numeric_text,
    Group.INTERVAL: cal.interval_text,
    Group.BYTEA: lambda value: base64.b64encode(value).decode(),
}


def cell(kind: SqlType) -> Function | None:
    """From a computed value that is not null to what the state holds: :func:`loaded` the other way."""
    if kind.array:
        return wire_text(kind, "")
    if kind.kind == "bpchar":
        return unpadded if kind.typmod >= 0 else None  # without a length nobody knows how many blanks it had
    return _PRINTED[kind.kind][1] if kind.kind in _PRINTED else _CELLS.get(kind.group)


def link_parameter(kind: SqlType) -> Function | None:
    """From a value to what the state's index holds of it. It raises :class:`NotComputable` for what no row can have."""
    if kind.group is Group.INTEGER:
        return _whole
    if kind.group is Group.NUMERIC:
        return link_text
    if kind.group is Group.BOOLEAN:
        return int
    return None


def _whole(value: int | Decimal) -> int:
    number = Decimal(value)
    if not number.is_finite() or number != number.to_integral_value() or abs(number) >= 2**63:
        raise NotComputable("no whole number")
    return int(number)


def link_text(value: int | Decimal | str) -> str:
    """A number by its value: equal for 1 and 1.00.

    >>> link_text(Decimal("1.00")), link_text(100), link_text(Decimal("0.10"))
    ('1', '100', '0.1')
    """
    if isinstance(value, int | str):
        # NaN, which equals itself, is a word among the values that are compared.
        return str(value)
    text = numeric_text(value)
    return (text.rstrip("0").rstrip(".") if "." in text else text) if value else "0"


_ADJUSTED = 200_000
"""Above any exponent of a numeric."""
_INVERTED = bytes(255 - byte for byte in range(256))


class Ordered(NamedTuple):
    """A term of an ORDER BY: the type of its values, and how they stand."""

    kind: SqlType
    descending: bool
    nulls_first: bool


def ordered_number(value: Decimal) -> bytes:
    """Bytes that compare as numerics do. NaN is the greatest.

    >>> ordered_number(Decimal("-2")) < ordered_number(Decimal("0")) < ordered_number(Decimal("1.5"))
    True
    """
    if not value.is_finite():
        return b"\xff" if value.is_nan() else b"\xfe" if value > 0 else b"\x00"
    if value.is_zero():
        return b"\x80"
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0").encode()
    body = (value.adjusted() + _ADJUSTED).to_bytes(3, "big") + digits
    if value > 0:
        return b"\x81" + body
    return b"\x7f" + bytes(255 - b for b in body) + b"\xff"


def ordered_float(value: float) -> bytes:
    """Bytes that compare as float8 does. NaN is the greatest, and both zeros are one."""
    if math.isnan(value):
        return b"\xff" * 9
    bits = int.from_bytes(struct.pack(">d", value or 0.0), "big")
    bits = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
    return bits.to_bytes(8, "big")


def _ordered_integer(value: int) -> bytes:
    return (int(value) + 2**63).to_bytes(8, "big")


_WRITTEN: dict[Group, Callable[[Any], bytes]] = {
    Group.NUMERIC: ordered_number,
    Group.FLOAT: ordered_float,
    Group.TEXT: str.encode,
    Group.UUID: str.encode,
    Group.BYTEA: bytes,
}


def in_one(order: Sequence[Ordered]) -> Callable[[Sequence[Any]], bytes]:
    """From the values of an ORDER BY's terms to bytes that compare as its rows stand.

    >>> write = in_one([Ordered(SqlType("text"), True, False), Ordered(SqlType("int4"), False, False)])
    >>> sorted([("a", 1), ("b", 2), (None, 0), ("b", 1), ("ba", 0)], key=write)
    [('ba', 0), ('b', 1), ('b', 2), ('a', 1), (None, 0)]
    """
    writers = [_term(one) for one in order]
    return lambda values: b"".join([write(value) for write, value in zip(writers, values, strict=True)])


def _term(one: Ordered) -> Callable[[Any], bytes]:
    write = _WRITTEN.get(one.kind.group, _ordered_integer)
    null = b"\x00" if one.nulls_first else b"\x02"
    blanks = one.kind.kind == "bpchar"

    def term(value: Any) -> bytes:
        if value is None:
            return null
        # Terminated, so that no value's bytes run into those of the next term.
        written = write(unpadded(value) if blanks else value).replace(b"\x00", b"\x00\xff") + b"\x00\x00"
        return b"\x01" + (written.translate(_INVERTED) if one.descending else written)

    return term
