"""Time as an argument: the only place that asks the machine what time it is, and the only one that sleeps."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Time, as code here uses it. ``monotonic`` in seconds for durations, ``now_ns`` for stamps (ns since 1970)."""

    def monotonic(self) -> float:
        """Seconds from an unknown start. The difference of two is a duration, also when the system's time is set."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970, as the system has them. They may go back."""

    def sleep(self, duration_s: float) -> None:
        """Return after ``duration_s`` seconds."""


class SystemClock:
    """The machine's clock. Implements :class:`Clock`."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ns(self) -> int:
        return time.time_ns()

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)


class ManualClock:
    """A clock that a test moves. ``sleep`` advances it and never waits. Implements :class:`Clock`."""

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self._now_ns / 1e9

    def now_ns(self) -> int:
        return self._now_ns

    def sleep(self, duration_s: float) -> None:
        self.advance(duration_s)

    def advance(self, duration_s: float) -> None:
        """Let ``duration_s`` seconds pass at once, for every thread."""
        with self._lock:
            self._now_ns += int(duration_s * 1e9)


SYSTEM_CLOCK = SystemClock()
