"""The figures of the last hour, kept in memory for the plots of the page. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from cdc.record.ports import known
from cdc.status.pace import LiveLook

POINT_S = 10.0
"""A point stands for so many seconds, with the highest value seen in them."""
POINTS = 361
"""An hour, both ends with it."""
_SLOW_S = 20.0
"""A look may take so long, where parts are away: the next one follows it all the same."""


class Curve(NamedTuple):
    """One plot. ``unit``: ``seconds``, ``bytes``, ``bytes/s`` or ``records``. ``values``: a point for each ten seconds,
    the newest last. None where something was not known in them. ``now``: the value of the newest look."""

    title: str
    unit: str
    values: tuple[float | None, ...]
    now: float | None


class _Figure(NamedTuple):
    """The thing that a curve is of. ``kind``: a store may be called as the log is."""

    kind: str
    title: str
    unit: str


_Values: TypeAlias = Mapping[_Figure, float | None]


class Hour:
    """At most :data:`POINTS` points of each curve. There are as many curves as the settings have stores and views.
    ``every_s``: between two looks."""

    def __init__(self, every_s: float = 2.0) -> None:
        self._points: deque[tuple[int, _Values]] = deque(maxlen=POINTS)
        self._newest: _Values = {}
        self._at_s = 0.0
        self._follows_s = every_s * 1.5 + _SLOW_S
        """A look within this time after another one is the next one."""

    def note(self, look: LiveLook) -> None:
        """One more look."""
        place, self._newest = int(look.begun_s // POINT_S), dict(_figures(look))
        # Of the time that the machine slept nothing is known.
        figures: _Values = dict.fromkeys(self._newest) if look.slept else self._newest
        if self._points and look.begun_s - self._at_s <= self._follows_s:
            self._points.extend(_between(self._points[-1], (place, figures)))
        if self._points and self._points[-1][0] == place:
            figures = _highest(self._points.pop()[1], figures)
        self._points.append((place, figures))
        self._at_s = look.begun_s

    def curves(self) -> tuple[Curve, ...]:
        """Every curve of the newest look, in its order, over the last hour. Where no look was the values are None."""
        if not self._points:
            return ()
        last = self._points[-1][0]
        first = max(self._points[0][0], last - POINTS + 1)
        by_place = dict(self._points)
        return tuple(
            Curve(one.title, one.unit, tuple(by_place.get(place, {}).get(one) for place in range(first, last + 1)), now)
            for one, now in self._newest.items()
        )


def _between(before: tuple[int, _Values], now: tuple[int, _Values]) -> Iterator[tuple[int, _Values]]:
    """The points between two looks that follow each other: they lie on the line from one to the other."""
    (first, earlier), (last, later) = before, now
    for place in range(max(first + 1, last - POINTS), last):
        share = (place - first) / (last - first)
        yield place, {figure: _on_the_line(earlier.get(figure), value, share) for figure, value in later.items()}


def _on_the_line(before: float | None, now: float | None, share: float) -> float | None:
    return None if before is None or now is None else before + (now - before) * share


def _highest(before: _Values, now: _Values) -> _Values:
    """A peak between two points is what a plot is looked at for, and so is an outage: it is none of the values."""
    return {
        figure: None if value is None or (earlier := before.get(figure, value)) is None else max(value, earlier)
        for figure, value in now.items()
    }


def _figures(look: LiveLook) -> Iterator[tuple[_Figure, float | None]]:
    shown, pace = look.shown, look.pace
    if shown.asked:
        slot = known(shown.slot)
        yield _Figure("log", "the log is behind", "seconds"), shown.lag_s
        yield _Figure("slot", "the slot keeps", "bytes"), slot.retained_bytes if slot is not None else None
        yield _Figure("source", "the source writes", "bytes/s"), pace.source_bytes_s if pace is not None else None
        yield _Figure("log", "the log grows by", "bytes/s"), pace.log_bytes_s if pace is not None else None
    for sink in shown.sinks:
        if shown.asked:
            yield _Figure("store", f"{sink.name} is behind", "seconds"), sink.lag_s
        else:
            yield _Figure("store", f"{sink.name} is behind", "records"), sink.lag_records
    for view in shown.views:
        yield _Figure("view", f"the view {view.facts.name} is behind", "seconds"), view.lag_s
