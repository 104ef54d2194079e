"""Time as an argument: the only place that asks the machine what time it is, and the only one that sleeps or waits."""

from __future__ import annotations

import select
import threading
import time
from contextlib import suppress
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


_LOOK_EVERY_S = 0.5


class SignalEvent(threading.Event):
    """As :class:`threading.Event`, but for ``clear``. That one's ``set`` takes a lock which the interrupted thread may
    hold in its ``wait``: the handler would wait for itself for ever.

    No wait lasts for ever here: a signal that comes just before the thread falls asleep, or to another thread, does not
    wake it, and its handler runs only once it is awake (https://docs.python.org/3/library/signal.html). A SimpleQueue's
    ``get`` would not do: it takes a time that is over while it looks for no limit (CPython 3.11, _queuemodule.c).
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._shut = threading.Lock()
        """Held by nobody in particular until it is set."""
        self._shut.acquire()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Set it, for good."""
        self._is_set = True
        self._open()

    def clear(self) -> None:
        """RuntimeError: it stays set."""
        raise RuntimeError("a SignalEvent stays set")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most ``timeout`` seconds. Whether it is."""
        end_s = None if timeout is None else time.monotonic() + timeout
        while not self._is_set:
            left_s = _LOOK_EVERY_S if end_s is None else min(end_s - time.monotonic(), _LOOK_EVERY_S)
            if left_s <= 0:
                return self._is_set
            if self._shut.acquire(timeout=left_s):
                # So that the next one that waits gets in, too.
                self._open()
        return True

    def _open(self) -> None:
        with suppress(RuntimeError):  # It is open already.
            self._shut.release()


def readable(socket: int, timeout_s: float | None) -> bool:
    """Whether something, or the connection's end, is there to be read within ``timeout_s`` (None: however long).

    By poll(2): select(2) takes no descriptor above 1023, and a process of many partitions, files and sessions has
    such ones. A closed descriptor counts as readable: the read then gets the error.
    """
    waiting = select.poll()
    waiting.register(socket, select.POLLIN)
    return bool(waiting.poll(None if timeout_s is None else timeout_s * 1000))
