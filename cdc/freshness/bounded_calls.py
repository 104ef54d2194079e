"""Calls that somebody waits for, each within a limit: a server that takes a connection and says nothing holds nobody
beyond it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
_Work = Callable[[], None]
MOST_LEFT = 8


class Unanswered(Exception):
    """A call was not over in time. It goes on, on a thread that nobody waits for."""


class BoundedCalls:
    """Calls on a thread of their own, one after the other, so that a client serves one thread alone. Behind one that
    was left behind the next call has another thread, until so many are left. ``name``: the threads'."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: SimpleQueue[_Work | None] | None = None
        self._thread: threading.Thread | None = None
        self._left: list[threading.Thread] = []

    def within(self, limit_s: float, call: Callable[[], T]) -> T:
        """The result of a call. Raises Unanswered where it takes longer, at once where too many do, and what the call
        raises."""
        answer: Future[T] = Future()
        context = copy_context()

        def work() -> None:
            try:
                answer.set_result(context.run(call))
            except BaseException as failure:
                answer.set_exception(failure)

        self._queue().put(work)
        wait([answer], limit_s)
        if not answer.done():
            self.end()
            raise Unanswered
        return answer.result()

    def end(self) -> None:
        """Take no more calls on the present thread. One that goes on is left behind."""
        if self._asked is not None and self._thread is not None:
            self._asked.put(None)
            self._left.append(self._thread)
        self._asked = self._thread = None

    def _queue(self) -> SimpleQueue[_Work | None]:
        if self._asked is None:
            self._left = [thread for thread in self._left if thread.is_alive()]
            if len(self._left) >= MOST_LEFT:
                raise Unanswered
            asked: SimpleQueue[_Work | None] = SimpleQueue()
            self._thread = threading.Thread(target=_work, args=(asked,), name=self._name, daemon=True)
            self._thread.start()
            self._asked = asked
        return self._asked


def _work(asked: SimpleQueue[_Work | None]) -> None:
    while (work := asked.get()) is not None:
        work()
