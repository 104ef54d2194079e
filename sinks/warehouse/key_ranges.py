"""From where to where the keys of a batch lie, so that a merge reads the files alone that may hold one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from itertools import pairwise, takewhile

_DIGITS = 8
MOST = 32
"""Ranges of one statement: each is looked at for each file."""


def key_ranges(keys: Iterable[str], most: int = MOST) -> list[tuple[str, str]]:
    """Ranges, first and last key each, that hold all these keys. Between two of them are the widest gaps, measured by
    the first eight bytes behind what all keys begin with.

    Keys are in the order of their bytes, as files' statistics are. A key that nobody has said is in no gap, so a row
    of one of these keys is in a range, whoever wrote it.

    >>> key_ranges(["17", "9004", "9001", "9002"], most=2)
    [('17', '17'), ('9001', '9004')]
    """
    ordered = sorted({key.encode() for key in keys})
    if not ordered:
        return []
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ordered[0], ordered[-1], strict=False)))
    places = [int.from_bytes(key[common : common + _DIGITS].ljust(_DIGITS, b"\0")) for key in ordered]
    widths = [(after - before, number) for number, (before, after) in enumerate(pairwise(places), 1)]
    starts = [0, *sorted(number for _, number in nlargest(most - 1, widths)), len(ordered)]
    return [(ordered[start].decode(), ordered[end - 1].decode()) for start, end in pairwise(starts)]
