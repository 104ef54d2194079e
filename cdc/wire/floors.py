"""Records about a whole table, a truncate and a sweep mark: what they say, written and read.

Both have the operation ``t``, a key of one member and stand in every partition of the topic. Rows below the floor that
they name are gone from the table.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from cdc.json_bytes import dumped
from cdc.wire.format import SWEEP, SWEEP_KEY, TRUNCATE_KEY
from cdc.wire.jsontext import quote

_FLOOR, _PARTITIONS = "floor", "partitions"


class Floor(NamedTuple):
    """``floor``: the position's text. ``partitions``: how many have a mark of it, 1 for a truncate."""

    floor: str
    partitions: int


def truncate_key(table: str) -> bytes:
    """The key of a truncate.

    >>> truncate_key("public.orders")
    b'{"__truncate":"public.orders"}'
    """
    return b'{"%b":%b}' % (TRUNCATE_KEY.encode(), quote(table.encode()))


def sweep_key(table: str) -> bytes:
    """The key of a sweep mark."""
    return dumped({SWEEP_KEY: table})


def sweep_value(value: bytes, floor: str, partitions: int) -> bytes:
    """A value without rows, made a sweep mark's: ``floor`` as a position's text, ``partitions`` of the topic."""
    return b'%b,"%b":%b}' % (value[:-1], SWEEP.encode(), dumped({_FLOOR: floor, _PARTITIONS: partitions}))


def read_floor(key: bytes, value: bytes | None, pos: str) -> Floor:
    """The content of a floor record: a truncate's floor is its own ``pos``, a sweep mark's stands in its value.

    Raises ValueError when it is neither.
    """
    document = orjson.loads(key)
    if not isinstance(document, dict):
        raise ValueError("a floor's key is not a JSON object")
    if TRUNCATE_KEY in document:
        return Floor(pos, 1)
    if SWEEP_KEY not in document:
        raise ValueError("a floor's key says neither truncate nor sweep")
    try:
        sweep = orjson.loads(value or b"")[SWEEP]
        floor, partitions = str(sweep[_FLOOR]), int(sweep[_PARTITIONS])
        int(floor, 16)
    except (KeyError, TypeError, ValueError):
        raise ValueError("a sweep mark does not say its floor and its partitions") from None
    if len(floor) != len(pos) or partitions < 1:
        raise ValueError("a sweep mark's floor is not a position")
    return Floor(floor, partitions)
