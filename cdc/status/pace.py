"""How fast a pipeline moves, from looks that follow each other: ``cdc status --watch``. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.status.rules import Status

WINDOW_S = 30.0
"""Rates are of at most this long: longer ones would hide a stop, shorter ones show each batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePace:
    """WAL bytes per second that a store takes up, and the seconds until it is level with the source at this rate.

    ``level_s`` is None where it does not come nearer. Negative rates are not shown: a store was made anew.
    """

    bytes_s: float
    level_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """WAL bytes per second: written by the source, taken into the log, and taken up by each store.

    None where two looks do not say, as of a part that did not answer. ``seconds``: between the looks.
    """

    seconds: float
    source_bytes_s: float | None = None
    log_bytes_s: float | None = None
    stores: Mapping[str, StorePace] = field(default_factory=dict)


class Paces:
    """The looks of the last ``WINDOW_S`` seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Status]] = deque()

    def of(self, shown: Status, at_s: float) -> Pace | None:
        """The pace up to this look, which is kept. None for the first one, and after another epoch began.

        ``at_s``: of a clock that never goes back.
        """
        if self._looks and self._looks[-1][1].epoch != shown.epoch:
            self._looks.clear()
        self._looks.append((at_s, shown))
        while len(self._looks) > 2 and self._looks[1][0] <= at_s - WINDOW_S:
            self._looks.popleft()
        first_s, first = self._looks[0]
        return _pace(first, shown, at_s - first_s) if at_s > first_s else None


def _pace(before: Status, now: Status, seconds: float) -> Pace:
    source = _rate(before.wal_lsn, now.wal_lsn, seconds)
    earlier = {sink.name: sink.lsn for sink in before.sinks}
    stores = {}
    for sink in now.sinks:
        # The LSN 0 of a store that is being filled is no place in the WAL.
        rate = _rate(earlier.get(sink.name) or None, sink.lsn or None, seconds)
        if rate is not None:
            gain = rate - (source or 0.0)
            behind = sink.lag_bytes
            level = None if behind is None else 0.0 if behind == 0 else behind / gain if gain > 0 else None
            stores[sink.name] = StorePace(bytes_s=rate, level_s=level)
    return Pace(
        seconds=seconds, source_bytes_s=source, log_bytes_s=_rate(before.log_lsn, now.log_lsn, seconds), stores=stores
    )


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    return None if before is None or now is None or now < before else (now - before) / seconds
