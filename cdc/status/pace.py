"""How fast a pipeline moves, from looks that follow each other: ``cdc status --watch``. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.found import known
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
    """WAL bytes per second: written by the source, taken into the log, and taken up by each store and each view.

    None where two looks do not say, as of a part that did not answer. ``seconds``: between the looks. ``slot_loss_s``:
    when the slot is lost if the WAL that it keeps grows on at this rate. None where it does not grow, or has no limit.
    """

    seconds: float
    source_bytes_s: float | None = None
    log_bytes_s: float | None = None
    stores: Mapping[str, StorePace] = field(default_factory=dict)
    views: Mapping[str, StorePace] = field(default_factory=dict)
    slot_loss_s: float | None = None


class Paces:
    """The looks of the last ``WINDOW_S`` seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Status]] = deque()
        self._epoch: int | None = None

    def of(self, shown: Status, at_s: float) -> Pace | None:
        """The pace up to this look, which is kept. None for the first one, and after another epoch began.

        ``at_s``: of a clock that never goes back.
        """
        if shown.epoch is not None:
            if self._epoch not in (None, shown.epoch):
                self._looks.clear()
            self._epoch = shown.epoch
        self._looks.append((at_s, shown))
        while len(self._looks) > 2 and self._looks[1][0] <= at_s - WINDOW_S:
            self._looks.popleft()
        first_s, first = self._looks[0]
        return _pace(first, shown, at_s - first_s) if at_s > first_s else None


class _Reached(NamedTuple):
    """How far a store or a view is."""

    name: str
    lsn: int | None
    lag_bytes: int | None


def _pace(before: Status, now: Status, seconds: float) -> Pace:
    source = _rate(before.wal_lsn, now.wal_lsn, seconds)
    return Pace(
        seconds=seconds,
        source_bytes_s=source,
        log_bytes_s=_rate(before.log_lsn, now.log_lsn, seconds),
        stores=_each(_stores(before), _stores(now), seconds, source),
        views=_each(_views(before), _views(now), seconds, source),
        slot_loss_s=_loss_s(before, now, seconds),
    )


def _stores(shown: Status) -> list[_Reached]:
    return [_Reached(sink.name, sink.lsn, sink.lag_bytes) for sink in shown.sinks]


def _views(shown: Status) -> list[_Reached]:
    return [_Reached(view.facts.name, view.facts.lsn, view.lag_bytes) for view in shown.views]


def _each(
    before: Iterable[_Reached], now: Iterable[_Reached], seconds: float, source: float | None
) -> dict[str, StorePace]:
    earlier, paces = {one.name: one.lsn for one in before}, dict[str, StorePace]()
    for one in now:
        # The LSN 0 of a store that is being filled is no place in the WAL.
        rate = _rate(earlier.get(one.name) or None, one.lsn or None, seconds)
        if rate is not None:
            gain, behind = rate - (source or 0.0), one.lag_bytes
            level = None if behind is None else 0.0 if behind == 0 else behind / gain if gain > 0 else None
            paces[one.name] = StorePace(bytes_s=rate, level_s=level)
    return paces


def _loss_s(before: Status, now: Status, seconds: float) -> float | None:
    earlier, slot = known(before.slot), known(now.slot)
    if earlier is None or slot is None or slot.safe_wal_bytes is None:
        return None
    grows = _rate(earlier.retained_bytes, slot.retained_bytes, seconds)
    return max(0, slot.safe_wal_bytes) / grows if grows else None


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    return None if before is None or now is None or now < before else (now - before) / seconds
