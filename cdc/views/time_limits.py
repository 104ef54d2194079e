"""A time limit around a call of a function that is not ours: one that goes on for longer is left.

A timer of the process interrupts the call, wherever it runs Python. A wait outside of Python, in a library, cannot be
interrupted. A thread beside it sees that and ends the process, which nothing else would do.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from cdc.clock import Clock

_T = TypeVar("_T")
_AGAIN_S = 0.2
"""A call that catches everything is interrupted again."""
_GRACE = 4
"""Times the limit, until a call that nothing interrupts is overdue."""


class TookTooLong(Exception):
    """A call was left because it took longer than its limit."""


class _Interrupted(BaseException):
    """Raised within the call. An ``except Exception`` lets it through."""


class TimeLimit:
    """``limit_s``: seconds that a call may take. ``overdue``: called in a thread, once, when a call goes on for four
    times as long.

    Only calls of the main thread are interrupted: in a program of the user's other threads have no limit.
    """

    def __init__(self, limit_s: float, overdue: Callable[[], None], clock: Clock) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._overdue = overdue
        self._since_s: float | None = None
        self._watching = False

    def call(self, function: Callable[[], _T]) -> _T:
        """The result of ``function``. TookTooLong where it took longer."""
        if threading.current_thread() is not threading.main_thread():
            return function()
        self._watch()
        self._since_s = self._clock.monotonic()
        try:
            with _interrupting(self._limit_s, self._clock):
                return function()
        except _Interrupted:
            raise TookTooLong from None
        finally:
            self._since_s = None

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._wait, name="time-limit", daemon=True).start()

    def _wait(self) -> None:
        never = threading.Event()
        while not never.wait(self._limit_s):
            since_s = self._since_s
            if since_s is not None and self._clock.monotonic() - since_s > self._limit_s * _GRACE:
                self._overdue()
                return


@contextmanager
def _interrupting(limit_s: float, clock: Clock) -> Iterator[None]:
    """Within, _Interrupted is raised when the time is over. Another timer of the process goes on behind it."""
    within = True

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        if within:
            raise _Interrupted

    begun_s = clock.monotonic()
    handler = signal.signal(signal.SIGALRM, interrupt)
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    try:
        yield
    finally:
        within = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(left_s - (clock.monotonic() - begun_s), 0.001), every_s)
