"""The files of a Delta table that are joined: those of one size, where they are many."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

MANY = 16
TIERS = (128 * 1024, 2 * 1024**2, 32 * 1024**2)
"""Sizes in bytes, each sixteen times the one before. A file of the last one or more is joined no more."""


class Tier(NamedTuple):
    """``below``: files of fewer bytes are joined, to files of about twice that. ``partitions``: in these alone."""

    below: int
    partitions: tuple[Any, ...]


def due_tier(files: Iterable[tuple[Any, int]]) -> Tier | None:
    """The greatest tier of which a partition has more than sixteen files. None where no partition has so many.

    ``files``: partition and size in bytes of each. A file is written again about once a tier, so a row that is written
    once is joined three to five times, however large the table grows.

    >>> due_tier([(None, 5_000)] * 17)
    Tier(below=131072, partitions=(None,))
    >>> due_tier([(None, 5_000)] * 16 + [(None, 9_000_000)] * 16)
    """
    counted = Counter((bisect_right(TIERS, size), partition) for partition, size in files)
    many = [place for place, count in counted.items() if count > MANY and place[0] < len(TIERS)]
    if not many:
        return None
    greatest = max(number for number, _ in many)
    return Tier(TIERS[greatest], tuple(partition for number, partition in many if number == greatest))
