"""How far a store is behind the log, and how far its fill is, which is told to the log now and then."""

from __future__ import annotations

import logging
import math
from typing import NamedTuple

log = logging.getLogger(__name__)
EVERY_S = 30.0
"""A store says at most so often how far its fill is."""


class Lacking(NamedTuple):
    """The records that a store lacks of the log as it was last seen. ``known``: whether the oldest record's time is.

    ``oldest_ms``: its commit time in ms since 1970, None where it lacks none.
    """

    known: bool
    records: int
    oldest_ms: int | None


class FillStand(NamedTuple):
    """How far a fill is: records read, of how many."""

    read: int
    all: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.read / self.all if self.all else 1.0


def finite(seconds: float | None) -> float | None:
    """The same, and None for infinite: JSON has no word for it.

    >>> finite(3.0), finite(math.inf), finite(None)
    (3.0, None, None)
    """
    return seconds if seconds is not None and math.isfinite(seconds) else None


class FillLines:
    """A line for each store that is being filled: at the first look and then every :data:`EVERY_S` seconds."""

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}

    def note(self, at_s: float, sink: str, stand: FillStand, left_s: float | None) -> None:
        """A look at a fill. ``at_s``: of a clock that never goes back. ``left_s``: seconds until its end."""
        told_s = self._told_s.get(sink)
        if told_s is not None and at_s - told_s < EVERY_S:
            return
        self._told_s[sink] = at_s
        rest = finite(left_s)
        log.info(
            "store_filling",
            extra={
                "sink": sink,
                "read": stand.read,
                "all": stand.all,
                "share": round(stand.share, 3),
                "left_s": round(rest) if rest is not None else None,
            },
        )
