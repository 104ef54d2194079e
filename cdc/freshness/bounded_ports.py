"""The servers of a wait, each asked within the time that somebody has, on threads that may be left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Protocol, TypeVar

from cdc.freshness.rules import ReadsWatermarks
from cdc.process.clock import Clock
from cdc.process.errors import LogError, SinkError
from cdc.record.progress import Watermark

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


# Calls that somebody waits for, each within a limit: a server that takes a connection and says nothing holds nobody
# beyond it.

T = TypeVar("T")
_Work = Callable[[], None]


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


LEAST_S = 5.0
"""A client that has not connected yet needs a moment, also of who has none."""


class TimeLeft:
    """How long somebody still waits. ``least_s``: so long at least a question may take."""

    def __init__(self, clock: Clock, least_s: float = LEAST_S) -> None:
        self._clock = clock
        self._least_s = least_s
        self._until_s = clock.monotonic()

    def begin(self, timeout_s: float) -> None:
        """So many seconds from now on."""
        self._until_s = self._clock.monotonic() + timeout_s

    @property
    def seconds(self) -> float:
        """The rest of them."""
        return max(0.0, self._until_s - self._clock.monotonic())

    @property
    def limit_s(self) -> float:
        """How long one question may take now."""
        return max(self._least_s, self.seconds)


class BoundedLog:
    """Questions to the log, and to the source."""

    def __init__(self, left: TimeLeft) -> None:
        self._left = left
        self._calls = BoundedCalls("freshness-log")

    def ask(self, question: Callable[[], T]) -> T:
        """Its answer. LogError where there is none in time, and what the question raises."""
        limit_s = self._left.limit_s
        try:
            return self._calls.within(limit_s, question)
        except Unanswered:
            raise LogError(
                f"Kafka has not answered within {limit_s:.3g} s", hint="check that the brokers run; cdc check says more"
            ) from None

    def nudge(self, push: Callable[[], None]) -> None:
        """Do it, as far as there is time."""
        with suppress(Unanswered):
            self._calls.within(self._left.limit_s, push)

    def close(self) -> None:
        """End its thread."""
        self._calls.end()


class BoundedStore:
    """A store, opened and asked on a thread of its own. SinkError where it does not answer in time: then it is opened
    anew for the next question. Implements :class:`cdc.freshness.bounded_ports.OpenedStore`, and
    :class:`cdc.freshness.rules.ReadsWatermarks`."""

    def __init__(self, sink: str, open_store: Callable[[str], OpenedStore], left: TimeLeft) -> None:
        self._sink = sink
        self._left = left
        self._calls = BoundedCalls("freshness-store")
        self._silent = False
        self._store = self._ask(lambda: open_store(sink))

    @property
    def watermarks(self) -> ReadsWatermarks:
        return self

    def read(self) -> Watermark | None:
        return self._ask(self._store.watermarks.read)

    def current(self) -> bool:
        return not self._silent and self._ask(self._store.current)

    def close(self) -> None:
        if not self._silent:
            with suppress(SinkError):
                self._ask(self._store.close)
        self._calls.end()

    def _ask(self, question: Callable[[], T]) -> T:
        limit_s = self._left.limit_s
        try:
            return self._calls.within(limit_s, question)
        except Unanswered:
            self._silent = True
            raise SinkError(
                f"the store of {self._sink} has not answered within {limit_s:.3g} s",
                hint="check that it runs and can be reached from here",
            ) from None


class OpenedStore(Protocol):
    """A store, opened."""

    @property
    def watermarks(self) -> ReadsWatermarks:
        """Where the store keeps its watermark."""

    def current(self) -> bool:
        """Whether what was opened is still what readers see."""

    def close(self) -> None:
        """End the connection to the store."""


class KeptStores:
    """Stores by the names of their sinks. Threads may ask for different ones at a time."""

    def __init__(self, open_store: Callable[[str], OpenedStore]) -> None:
        self._open_store = open_store
        self._stores: dict[str, OpenedStore] = {}

    def watermarks(self, sink: str) -> ReadsWatermarks:
        """Of the generation that readers see. Raises what opening the store raises."""
        if sink not in self._stores or not self._stores[sink].current():
            # Not yet, or another generation since it was rebuilt.
            store, former = self._open_store(sink), self._stores.get(sink)
            self._stores[sink] = store
            if former is not None:
                former.close()
        return self._stores[sink].watermarks

    def close(self) -> None:
        """Close every store that was opened."""
        with ExitStack() as exits:
            for store in self._stores.values():
                exits.callback(store.close)
            self._stores = {}
