"""Calls into one store, one after the other, on a thread that can be left behind in the middle of one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import CdcError, Retry
from cdc.process.logs import LoggedCauses
from spark.session.failures import Halted, persist, unexpected
from spark.stores.place_check import Surroundings

# A thread that does one thing after the other, and that can be left behind in the middle of one.
#
# A call into a store that says nothing more may take minutes to give up. Python's own pool waits for its threads at
# the end of the process, however long that takes. Nobody waits for this one unasked.

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


log = logging.getLogger(__name__)

_TURN_S = 0.2
_CLOSE_S = 2.0
"""So long at least a store may take to be closed."""


class StoreCalls:
    """The calls to one store, in order. ``around.grace_s``: how long a call may go on after :attr:`halt` is set."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.halt = Halt()
        """Set while the store is not to be waited for."""
        self.fault: CdcError | None = None
        """What an idle moment found out. The query has to end for it."""
        self._around = around
        self._figures = around.metrics.sink(name)
        self._thread = StoreThread(f"sink-{name}")
        self._lock = threading.Lock()
        self._queued = 0

    @property
    def busy(self) -> bool:
        """Whether an action is queued or goes on."""
        return self._queued > 0

    def run(self, action: Callable[[], T]) -> T:
        """Do something on the store's thread, again and again while it is away. Halted when it has to end: at once
        between two tries, and in the middle of one that does not end in ``grace_s``."""
        return self.result(self.submit(action))

    def result(self, future: Future[T]) -> T:
        """Wait for the result of the submitted call. Waits as :meth:`run` does. Raises Halted as :meth:`run` does."""
        halted_s: float | None = None
        while True:
            try:
                return future.result(_TURN_S)
            except NotInTime:
                if future.done():
                    raise
            now_s = SYSTEM_CLOCK.monotonic()
            if not self.halt.is_set():
                halted_s = None
            elif halted_s is None:
                halted_s = now_s
            elif now_s - halted_s > self._around.grace_s:
                raise Halted(f"the store of {self.name} did not answer in time for the end")

    def submit(self, action: Callable[[], T]) -> Future[T]:
        """As :meth:`run`, without waiting for the result."""
        return self.attempt(partial(self.patiently, action))

    def attempt(self, action: Callable[[], T]) -> Future[T]:
        """As :meth:`submit`, once: a store that is away is an error."""
        with self._lock:
            self._queued += 1
        future = self._thread.submit(partial(self._acted, action))
        future.add_done_callback(self._done)
        return future

    def patiently(self, action: Callable[[], T]) -> T:
        """The action's result, again and again while the store is away. For work on the store's own thread."""

        def away(error: CdcError) -> None:
            self._figures.away, self._figures.cure = error.message, error.hint
            if logged.is_new(self.name, error.message):
                log.warning("store_away", extra={"sink": self.name, "reason": error.message})

        logged = LoggedCauses()
        return persist(action, halt=self.halt, timeout_s=self._around.timeout_s, away=away)

    def _acted(self, action: Callable[[], T]) -> T:
        self._figures.asked_s = self._around.clock.monotonic()
        try:
            return action()
        finally:
            self._figures.asked_s = None

    def _done(self, _future: Future[T]) -> None:
        with self._lock:
            self._queued -= 1

    @contextmanager
    def _faults_kept(self) -> Iterator[None]:
        """An error beside a batch ends the query, unless waiting can help."""
        try:
            yield
        except Halted:
            raise
        except CdcError as error:
            if error.retry is Retry.LATER:
                raise
            self.fault = error
        except Exception as failure:
            self.fault = unexpected(self.name, failure)

    def _last(self, action: Callable[[], T]) -> Future[T]:
        """Queue an action that no figure counts and that is tried once."""
        return self._thread.submit(action)

    def _ended(self) -> bool:
        """Take no more actions. Returns whether those that are queued ended in time: what was waited for since
        :attr:`halt` was set counts."""
        ended = self._thread.end(max(min(_CLOSE_S, self._around.grace_s), self._around.grace_s - self.halt.since_s))
        if not ended:
            log.warning("store_left_behind", extra={"sink": self.name, "reason": "it does not answer"})
        return ended
