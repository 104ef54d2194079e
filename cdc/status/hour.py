"""The figures of the last hour, kept in memory for the plots of the page. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cdc.found import known
from cdc.status.live_looks import LiveLook

POINT_S = 10.0
"""A point stands for so many seconds, with the highest value seen in them."""
POINTS = 361
"""An hour, both ends with it."""


class Curve(NamedTuple):
    """One plot. ``unit``: ``seconds``, ``bytes``, ``bytes/s`` or ``records``. ``values``: a point for each ten seconds,
    the newest last. None where nothing is known of them."""

    title: str
    unit: str
    values: tuple[float | None, ...]


class Hour:
    """At most :data:`POINTS` points of each curve. There are as many curves as the settings have stores and views."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, dict[tuple[str, str], float | None]]] = deque(maxlen=POINTS)

    def note(self, look: LiveLook, at_s: float) -> None:
        """One more look. ``at_s``: of a clock that never goes back."""
        place, figures = int(at_s // POINT_S), dict(_figures(look))
        if self._points and self._points[-1][0] == place:
            figures = _highest(self._points.pop()[1], figures)
        self._points.append((place, figures))

    def curves(self) -> tuple[Curve, ...]:
        """Every curve of the newest point, in its order, over the last hour. No point is made up: where none was
        noted the values are None."""
        if not self._points:
            return ()
        last, newest = self._points[-1]
        first = max(self._points[0][0], last - POINTS + 1)
        by_place = dict(self._points)
        return tuple(
            Curve(title, unit, tuple(by_place.get(place, {}).get((title, unit)) for place in range(first, last + 1)))
            for title, unit in newest
        )


def _highest(before: Mapping[tuple[str, str], float | None], now: dict[tuple[str, str], float | None]) -> dict[
    tuple[str, str], float | None
]:  # fmt: skip
    """A peak between two points is what a plot is looked at for. A figure that is not known any more is none."""
    return {
        name: value if value is None or (earlier := before.get(name)) is None else max(value, earlier)
        for name, value in now.items()
    }


def _figures(look: LiveLook) -> Iterator[tuple[tuple[str, str], float | None]]:
    shown, pace = look.shown, look.pace
    if shown.asked:
        slot = known(shown.slot)
        yield ("the log is behind", "seconds"), shown.lag_s
        yield ("the slot keeps", "bytes"), slot.retained_bytes if slot is not None else None
        yield ("the source writes", "bytes/s"), pace.source_bytes_s if pace is not None else None
        yield ("the log takes", "bytes/s"), pace.log_bytes_s if pace is not None else None
    for sink in shown.sinks:
        if shown.asked:
            yield (f"{sink.name} is behind", "seconds"), sink.lag_s
        else:
            yield (f"{sink.name} is behind", "records"), sink.lag_records
    for view in shown.views:
        yield (f"the view {view.facts.name} is behind", "seconds"), view.lag_s
