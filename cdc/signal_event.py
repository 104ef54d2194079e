"""An event that a signal's handler may set while the thread that it interrupts waits for it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

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
