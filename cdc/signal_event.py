"""An event that a signal's handler may set while the thread that it interrupts waits for it (hazard H554)."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue


class SignalEvent(threading.Event):
    """As :class:`threading.Event`, but for ``clear``. That one's ``set`` takes a lock which the interrupted thread may
    hold in its ``wait``: the handler would wait for itself for ever. A SimpleQueue's ``put`` may interrupt its ``get``
    (https://docs.python.org/3/library/queue.html#queue.SimpleQueue.put)."""

    def __init__(self) -> None:
        super().__init__()
        self._told: SimpleQueue[None] = SimpleQueue()
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Set it, for good."""
        self._is_set = True
        self._told.put(None)

    def clear(self) -> None:
        """RuntimeError: it stays set."""
        raise RuntimeError("a SignalEvent stays set")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most ``timeout`` seconds. Whether it is."""
        if self._is_set:
            return True
        try:
            self._told.get(timeout=timeout)
        except Empty:
            return self._is_set
        # So that the next one that waits gets it, too.
        self._told.put(None)
        return True
