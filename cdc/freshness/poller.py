"""One thread per store and process that looks at a watermark while somebody waits for it, and rests otherwise."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import CdcError, SinkError
from cdc.foreign import quoted
from cdc.freshness.bounded_looks import LOOK_S, BoundedLooks, StartThread, started
from cdc.freshness.opened_stores import OpenedStore
from cdc.freshness.rules import FIRST_PAUSE_S, LONGEST_PAUSE_S
from cdc.freshness.wanted import TokenWait, TokenWaits
from cdc.progress import Watermark

_SLOWER = 1.5
_END_S = 5.0


class WatermarkPoller:
    """Looks at one store for all threads and loops of the process.

    ``briefly``: within, a store that does not answer is given up soon. Looks are 10 ms apart at least, and up to 200 ms
    while nobody new comes. ``limit_s``: a look that takes longer fails all who wait.
    """

    def __init__(
        self,
        open_store: Callable[[], OpenedStore],
        briefly: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        start: StartThread = started,
        limit_s: float = LOOK_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._open_store = open_store
        self._briefly = briefly
        self._start = start
        self._limit_s = limit_s
        self._clock = clock
        self._users = 0
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting = TokenWaits()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._earliest_s = self._next_s = -math.inf
        self.pause_s = FIRST_PAUSE_S
        """How long it pauses behind the next look, unless somebody new comes."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def ask(self, wait: TokenWait) -> Future[Watermark]:
        """The watermark that shows a token, once there is one. :meth:`forget` it to wait no longer.

        It fails with NotShown where waiting is of no use, and with SinkError where the store does not answer.
        """
        with self._changed:
            if self._ended:
                raise SinkError("the store is not followed any more")
            if self._thread is None:
                try:
                    self._thread = self._start("freshness", self._run)
                except RuntimeError as none_left:
                    raise SinkError(f"the store cannot be asked: {quoted(none_left)}") from None
            self._waiting.add(wait)
            self._next_s, self.pause_s = self._earliest_s, FIRST_PAUSE_S
            self._changed.notify_all()
        return wait.answer

    def forget(self, wait: TokenWait) -> None:
        """One waits no longer. Again is nothing."""
        with self._changed:
            self._waiting.drop(wait)

    def dismiss(self, owner: object, why: CdcError) -> None:
        """All who wait on behalf of an owner wait no longer, and hear why."""
        with self._changed:
            self._waiting.fail(why, owner)

    def join(self) -> None:
        """One user more."""
        self._users += 1

    def leave(self) -> bool:
        """One user less. Whether none is left."""
        self._users -= 1
        return self._users == 0

    def end(self) -> None:
        """Look no more, and close the store. A look that is under way and does not end within 5 s is left behind."""
        with self._changed:
            self._ended = True
            self._waiting.fail(SinkError("the store is not followed any more"))
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_END_S)

    def forked(self) -> None:
        """This process is a fork: the thread stayed with the parent, and so do its connections."""
        users = self._users
        self._begin()
        self._users = users

    def _run(self) -> None:
        looks = BoundedLooks(self._open_store, self._briefly, start=self._start, limit_s=self._limit_s)
        try:
            while self._await_time():
                self._look(looks)
        finally:
            looks.close(_END_S)

    def _await_time(self) -> bool:
        """Return when it is time for a look. False at the end."""
        with self._changed:
            while not self._ended and (left_s := self._left_s()) != 0:
                self._changed.wait(left_s)
            return not self._ended

    def _left_s(self) -> float | None:
        """Seconds until the next look. None while nobody waits."""
        return max(0.0, self._next_s - self._clock.monotonic()) if len(self._waiting) else None

    def _look(self, looks: BoundedLooks) -> None:
        failure, watermark = None, None
        try:
            watermark = looks.look()
        except CdcError as refused:
            failure = refused
        except Exception as error:
            # Left alone it would end the thread, and everybody would wait for nothing.
            failure = SinkError(f"the store cannot be asked: {type(error).__name__}")
        with self._changed:
            if failure is not None:
                self._waiting.fail(failure)
            else:
                self._waiting.settle(watermark)
            looked_s = self._clock.monotonic()
            self._earliest_s, self._next_s = looked_s + FIRST_PAUSE_S, looked_s + self.pause_s
            self.pause_s = min(self.pause_s * _SLOWER, LONGEST_PAUSE_S)


class Pollers:
    """The pollers of a process, one for each store. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pollers: dict[Hashable, WatermarkPoller] = {}
        os.register_at_fork(after_in_child=self._forked)

    def __len__(self) -> int:
        return len(self._pollers)

    @property
    def waiting(self) -> int:
        """How many wait for any store."""
        with self._lock:
            return sum(len(poller) for poller in self._pollers.values())

    def join(self, store: Hashable, make: Callable[[], WatermarkPoller]) -> WatermarkPoller:
        """The poller of a store, made for its first user. :meth:`leave` it at the end."""
        with self._lock:
            found = self._pollers.get(store)
            if found is None:
                found = self._pollers[store] = make()
            found.join()
            return found

    def leave(self, store: Hashable) -> None:
        """One user of the store's poller less. The last one closes the store."""
        with self._lock:
            poller = self._pollers[store]
            if not poller.leave():
                return
            del self._pollers[store]
        poller.end()

    def _forked(self) -> None:
        self._lock = threading.Lock()
        for poller in self._pollers.values():
            poller.forked()


POLLERS = Pollers()
"""Those of this process."""
