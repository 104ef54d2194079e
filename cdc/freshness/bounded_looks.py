"""Looks at one store, each within a limit: a connection that says nothing holds nobody beyond it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from queue import SimpleQueue

from cdc.errors import SinkError
from cdc.freshness.opened_stores import KeptStores, OpenedStore
from cdc.progress import Watermark

LOOK_S = 1.0
OPEN_S = 10.0
MOST_LEFT = 8
_STORE = ""

StartThread = Callable[[str, Callable[[], None]], threading.Thread]
"""Starts a thread of this name. RuntimeError where the system has none left."""


def started(name: str, run: Callable[[], None]) -> threading.Thread:
    """A thread of this name that runs, and that keeps no process alive."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class _Looker:
    """A thread with connections of its own. It looks when it is asked to."""

    def __init__(
        self, open_store: Callable[[], OpenedStore], briefly: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._open_store = open_store
        self._briefly = briefly
        self._asked: SimpleQueue[Future[Watermark | None] | None] = SimpleQueue()
        self.looked = False
        """Whether a look was answered."""

    def ask(self) -> Future[Watermark | None]:
        """The watermark, once it is looked up."""
        answer: Future[Watermark | None] = Future()
        self._asked.put(answer)
        return answer

    def end(self) -> None:
        """Close the store once the look is over."""
        self._asked.put(None)

    def run(self) -> None:
        """Until the end."""
        stores = KeptStores(lambda _: self._open_store())
        try:
            while (answer := self._asked.get()) is not None:
                self._answer(stores, answer)
        finally:
            stores.close()

    def _answer(self, stores: KeptStores, answer: Future[Watermark | None]) -> None:
        try:
            with self._briefly():
                watermark = stores.watermarks(_STORE).read()
        except Exception as failure:
            answer.set_exception(failure)
        else:
            self.looked = True
            answer.set_result(watermark)


class BoundedLooks:
    """Looks of one thread at a time. One that takes too long is left behind with its connection, and another thread
    opens the store anew. So many may be left behind, until one of them comes back. A first look may take longer."""

    def __init__(
        self,
        open_store: Callable[[], OpenedStore],
        briefly: Callable[[], AbstractContextManager[None]],
        *,
        start: StartThread = started,
        limit_s: float = LOOK_S,
        open_s: float = OPEN_S,
    ) -> None:
        self._open_store = open_store
        self._briefly = briefly
        self._start = start
        self._limit_s = limit_s
        self._open_s = open_s
        self._looker: _Looker | None = None
        self._thread: threading.Thread | None = None
        self._left: list[threading.Thread] = []

    def look(self) -> Watermark | None:
        """The store's watermark. SinkError where it does not answer within the limit, and what the look raises."""
        looker = self._looker or self._begun()
        # A first look loads the client and connects.
        limit_s = self._limit_s if looker.looked else self._open_s
        answer = looker.ask()
        wait([answer], limit_s)
        if not answer.done():
            self._leave()
            raise _silent(limit_s)
        return answer.result()

    def close(self, within_s: float) -> None:
        """Close the store. A look that does not end within these seconds is left behind."""
        thread = self._thread
        self._leave()
        if thread is not None:
            thread.join(within_s)

    def _begun(self) -> _Looker:
        self._left = [thread for thread in self._left if thread.is_alive()]
        if len(self._left) >= MOST_LEFT:
            raise _silent(self._limit_s)
        looker = _Looker(self._open_store, self._briefly)
        self._thread = self._start("freshness-look", looker.run)
        self._looker = looker
        return looker

    def _leave(self) -> None:
        if self._looker is not None and self._thread is not None:
            self._looker.end()
            self._left.append(self._thread)
        self._looker = self._thread = None


def _silent(limit_s: float) -> SinkError:
    return SinkError(
        f"the store does not answer: a look at it takes longer than {limit_s:g} s",
        hint="read from Postgres; check that the store runs and can be reached from here",
    )
