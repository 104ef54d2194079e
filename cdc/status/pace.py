"""Looks that follow each other, as ``cdc status --watch`` shows them: how fast the pipeline moves between two, and the
figures of the last hour, kept in memory for the plots of the page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from threading import Event, Thread
from typing import Any, NamedTuple, Self, TypeAlias

from cdc.process.clock import Clock
from cdc.record.ports import known
from cdc.status.facts import store_part
from cdc.status.rules import Status

WINDOW_S = 30.0
"""Rates are of at most this long: longer ones would hide a stop, shorter ones show each batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePace:
    """WAL bytes per second that a store takes up, and the seconds until it is level with the source at this rate.

    ``level_s`` is None where it does not come nearer, and where that is not known. ``nearer``: whether it comes nearer,
    or is level. None where it is not known, as while the source is silent.
    """

    bytes_s: float
    level_s: float | None
    nearer: bool | None


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


class _Point(NamedTuple):
    """How far something was, and when that was read. ``lsn``: None where it was not known or is no place in the WAL."""

    at_s: float
    lsn: int | None


class _Reached(NamedTuple):
    """How far a store or a view is. ``part``: the one that said it."""

    name: str
    part: str
    lsn: int | None
    lag_bytes: int | None


class Paces:
    """The looks of the last ``WINDOW_S`` seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Status]] = deque()
        self._epoch: int | None = None

    def forget(self) -> None:
        """The looks before the next one are not comparable with it."""
        self._looks.clear()

    def of(self, shown: Status, at_s: float) -> Pace | None:
        """The pace up to this look, which is kept. None for the first one, and after another epoch began.

        ``at_s``: of a clock that never goes back, for what does not say itself when it was read.
        """
        if shown.epoch is not None:
            if self._epoch not in (None, shown.epoch):
                self.forget()
            self._epoch = shown.epoch
        self._looks.append((at_s, shown))
        while len(self._looks) > 2 and self._looks[1][0] <= at_s - WINDOW_S:
            self._looks.popleft()
        first_s, first = self._looks[0]
        return self._pace(first, shown, at_s - first_s) if at_s > first_s else None

    def _pace(self, before: Status, now: Status, seconds: float) -> Pace:
        log_part = "connector" if now.connector is not None else "log"
        source = _rate(_rising(_answered(self._points("source", lambda shown: shown.wal_lsn))))
        logged = _rate(_rising(_answered(self._points(log_part, lambda shown: shown.log_lsn))))
        return Pace(
            seconds=seconds,
            source_bytes_s=source,
            log_bytes_s=logged,
            stores=self._each(_stores, source),
            views=self._each(_views, source),
            slot_loss_s=_loss_s(before, now, _between_s(before, now, seconds)),
        )

    def _points(self, part: str, lsn: Callable[[Status], int | None]) -> Iterator[_Point]:
        """The looks of the window, the newest first."""
        for at_s, shown in reversed(self._looks):
            yield _Point(shown.answered_s.get(part, at_s), lsn(shown))

    def _each(self, reached: Callable[[Status], list[_Reached]], source: float | None) -> dict[str, StorePace]:
        paces = dict[str, StorePace]()
        for one in reached(self._looks[-1][1]):
            # One that was silent may have been made anew meanwhile.
            rate = _rate(_rising(self._points(one.part, partial(_lsn_of, one.name, reached))))
            if rate is not None:
                paces[one.name] = _store_pace(rate, source, one.lag_bytes)
        return paces


def _lsn_of(name: str, reached: Callable[[Status], list[_Reached]], shown: Status) -> int | None:
    """None for the LSN 0 of a store that is being filled: it is no place in the WAL."""
    return next((one.lsn or None for one in reached(shown) if one.name == name), None)


def _store_pace(rate: float, source: float | None, behind: int | None) -> StorePace:
    if behind == 0:
        return StorePace(bytes_s=rate, level_s=0.0, nearer=True)
    if behind is None or source is None:
        return StorePace(bytes_s=rate, level_s=None, nearer=None)
    gain = rate - source
    return StorePace(bytes_s=rate, level_s=behind / gain if gain > 0 else None, nearer=gain > 0)


def _answered(points: Iterator[_Point]) -> Iterator[_Point]:
    """The newest point, and those before it that are known: silence in between sets a server back by nothing."""
    yield next(points)
    yield from (point for point in points if point.lsn is not None)


def _rising(points: Iterable[_Point]) -> list[tuple[float, int]]:
    """The newest points up to the first that is not known, or is ahead of a newer one: it was made anew there."""
    found: list[tuple[float, int]] = []
    for point in points:
        if point.lsn is None or (found and point.lsn > found[-1][1]):
            break
        found.append((point.at_s, point.lsn))
    return found


def _rate(points: Sequence[tuple[float, int]]) -> float | None:
    """``points``: the newest first. None where two answers are not apart."""
    if len(points) < 2:
        return None
    (newest_s, newest), *_, (oldest_s, oldest) = points
    return (newest - oldest) / (newest_s - oldest_s) if newest_s > oldest_s else None


def _stores(shown: Status) -> list[_Reached]:
    return [_Reached(sink.name, store_part(sink.name), sink.lsn, sink.lag_bytes) for sink in shown.sinks]


def _views(shown: Status) -> list[_Reached]:
    return [_Reached(view.facts.name, "log", view.facts.lsn, view.lag_bytes) for view in shown.views]


def _between_s(before: Status, now: Status, seconds: float) -> float:
    """Between the answers of the source."""
    if "source" not in before.answered_s or "source" not in now.answered_s:
        return seconds
    return now.answered_s["source"] - before.answered_s["source"]


def _loss_s(before: Status, now: Status, seconds: float) -> float | None:
    earlier, slot = known(before.slot), known(now.slot)
    if earlier is None or slot is None or slot.safe_wal_bytes is None or seconds <= 0:
        return None
    if earlier.retained_bytes is None or slot.retained_bytes is None:
        return None
    grows = slot.retained_bytes - earlier.retained_bytes
    return max(0, slot.safe_wal_bytes) / (grows / seconds) if grows > 0 else None


class LooksBeside:
    """Looks each ``every_s`` seconds in a thread, and tells of each look, until its context is left. The last look has
    ended then, and ``looks`` may be gone on with, unless an error leaves the context: that waits for no look."""

    def __init__(
        self,
        look: Callable[[], Status],
        tell: Callable[[LiveLook], None],
        looks: LiveLooks,
        every_s: float,
        clock: Clock,
    ) -> None:
        self._look, self._tell, self._looks, self._every_s, self._clock = look, tell, looks, every_s, clock
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="status beside", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped.set()
        if kind is None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._tell(self._looks.look(self._look, self._clock))
            self._stopped.wait(self._every_s)


_SLEPT_S = 5.0
"""So much more says the calendar than the clock that never goes back: the machine slept, or its calendar was set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLook:
    """One look. ``at_ms``: when it began, in ms since 1970. ``begun_s``: the same, of a clock that never goes back.
    ``pace``: None at the first one. ``since_ms``: by part that does not answer, the first of the looks in a row that it
    did not answer. ``slept``: before it the machine stood still, or its calendar was set forward."""

    shown: Status
    at_ms: int
    begun_s: float = 0.0
    slept: bool = False
    pace: Pace | None = None
    since_ms: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As ``cdc status --watch --json`` prints it."""
        return {
            **self.shown.document(),
            "at_ms": self.at_ms,
            "pace": asdict(self.pace) if self.pace is not None else None,
            "unknown_since_ms": dict(self.since_ms),
        }


class LiveLooks:
    """Remembers from one look to the next when each silent part fell silent, and how fast all moves."""

    def __init__(self) -> None:
        self._paces = Paces()
        self._since_ms: dict[str, int] = {}
        self._before: tuple[float, int] | None = None

    def look(self, look: Callable[[], Status], clock: Clock) -> LiveLook:
        """Look, and add what is seen."""
        begun_s, at_ms = clock.monotonic(), clock.now_ns() // 1_000_000
        shown = look()
        return self.add(shown, begun_s, at_ms, ended_s=clock.monotonic())

    def add(self, shown: Status, begun_s: float, at_ms: int, *, ended_s: float | None = None) -> LiveLook:
        """The next look. ``begun_s``: of a clock that never goes back. ``at_ms``: of the calendar. ``ended_s``: when
        its figures were read that do not say it themselves, at its beginning unless given."""
        self._since_ms = {part: self._since_ms.get(part, at_ms) for part in shown.silent}
        slept = self._slept(begun_s, at_ms)
        if slept:
            # The clock that never goes back may stand still meanwhile: all would seem to move at a stroke.
            self._paces.forget()
        return LiveLook(
            shown=shown,
            at_ms=at_ms,
            begun_s=begun_s,
            slept=slept,
            pace=self._paces.of(shown, begun_s if ended_s is None else ended_s),
            since_ms=dict(self._since_ms),
        )

    def _slept(self, begun_s: float, at_ms: int) -> bool:
        before, self._before = self._before, (begun_s, at_ms)
        return before is not None and (at_ms - before[1]) / 1000 - (begun_s - before[0]) > _SLEPT_S


def utc_text(at_ms: int, now_ms: int | None = None) -> str:
    """The time of day for people who may be anywhere, on the page and in the terminal. With the day where ``now_ms`` is
    on another one.

    >>> utc_text(1_700_000_000_000), utc_text(1_700_000_000_000, 1_700_100_000_000)
    ('22:13:20 UTC', '2023-11-14 22:13 UTC')
    """
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    if now_ms is None or datetime.fromtimestamp(now_ms / 1000, UTC).date() == at.date():
        return at.strftime("%H:%M:%S UTC")
    return at.strftime("%Y-%m-%d %H:%M UTC")


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
