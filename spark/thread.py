"""A thread that does one thing after the other, and that can be left behind in the middle of one.

A call into a store that says nothing more may take minutes to give up. Python's own pool waits for its threads at the
end of the process, however long that takes. Nobody waits for this one unasked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from cdc.clock import SYSTEM_CLOCK

T = TypeVar("T")
_Work = Callable[[], None]


class Halt(threading.Event):
    """A wish to stop that knows for how long there was one."""

    def __init__(self) -> None:
        super().__init__()
        self._set_s = 0.0

    def set(self) -> None:
        """Wish for it. A second time changes nothing."""
        if not self.is_set():
            self._set_s = SYSTEM_CLOCK.monotonic()
        super().set()

    @property
    def since_s(self) -> float:
        """How long ago it was set, in seconds. 0 where it is not."""
        return SYSTEM_CLOCK.monotonic() - self._set_s if self.is_set() else 0.0


class StoreThread:
    """Runs what is submitted, in order. ``name``: the thread's."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, action: Callable[[], T]) -> Future[T]:
        """Queue an action. Its result, or what it raised, is the future's."""
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(action())
            except BaseException as failure:
                future.set_exception(failure)

        self._queue.put(work)
        return future

    def end(self, timeout_s: float) -> bool:
        """Take nothing more after what is queued. Whether all that was done in time."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
