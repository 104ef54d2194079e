"""Looks that follow each other, as ``cdc status --watch`` shows them: one look, its pace, and what is silent. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from cdc.clock import Clock
from cdc.status.pace import Pace, Paces
from cdc.status.rules import Status

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
