"""Values as bytes that compare as Postgres orders them, one by one and several behind each other."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from cdc.views.sql_types import Group, SqlType
from cdc.views.text_values import unpadded

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
