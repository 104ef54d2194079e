"""Looks that follow each other, as ``cdc status --watch`` shows them: one look, its pace, and what is silent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from cdc.status.pace import Pace, Paces
from cdc.status.rules import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLook:
    """One look. ``at_ms``: when it began, in ms since 1970. ``pace``: None at the first one. ``since_ms``: by part that
    does not answer, the first of the looks in a row that it did not answer."""

    shown: Status
    at_ms: int
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

    def add(self, shown: Status, at_s: float, at_ms: int) -> LiveLook:
        """The next look. ``at_s``: of a clock that never goes back. ``at_ms``: of the calendar."""
        self._since_ms = {part: self._since_ms.get(part, at_ms) for part in shown.silent}
        return LiveLook(shown=shown, at_ms=at_ms, pace=self._paces.of(shown, at_s), since_ms=dict(self._since_ms))


def utc_text(at_ms: int) -> str:
    """The time of day for people who may be anywhere.

    >>> utc_text(1_700_000_000_000)
    '22:13:20 UTC'
    """
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S UTC")
