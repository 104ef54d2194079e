"""Waits for stores of one pipeline, and the thread for each store that looks at its watermark meanwhile."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Self

from cdc.freshness.bounded_ports import (
    LEAST_S,
    LOOK_S,
    BoundedLog,
    BoundedLooks,
    BoundedStore,
    KeptStores,
    OpenedStore,
    StartThread,
    TimeLeft,
    started,
)
from cdc.freshness.rules import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    ReadsWatermarks,
    TokenWait,
    TokenWaits,
    require_whole,
    shows,
    speaks_for,
    wait_until_shown,
    wait_until_spoken_for,
    wait_until_token_shown,
)
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, LogError, SinkError, TopicError
from cdc.process.untrusted_text import quoted
from cdc.record.ports import Unknown, look
from cdc.record.progress import Watermark
from cdc.record.tokens import Token
from cdc.wire.dead_letter import DeadLetter, Parked


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitPorts:
    """Everything that a wait uses.

    ``open``: a store by its sink's name. SinkError when it does not answer, UsageError for an unknown sink.
    ``briefly``: within, a store that does not answer is given up within a second.
    ``epoch``: the pipeline's, None before it has one. ``letters``: its dead letters. Both raise LogError when no
    broker answers, TopicError before ``cdc init``.
    ``nudge`` moves a quiet server's log past the token. Without a source it does nothing.
    ``require``: ConfigError where the source has no LSNs. ``place``: the topic of a sink's table or view, by the names
    of both. UsageError where the sink does not take it, TopicError where it has no topic yet.
    """

    open: Callable[[str], OpenedStore]
    briefly: Callable[[], AbstractContextManager[None]]
    epoch: Callable[[], int | None]
    letters: Callable[[], Iterable[DeadLetter]]
    nudge: Callable[[], None]
    require: Callable[[], None]
    place: Callable[[str, str], str]


class Waits:
    """Waits for stores of one pipeline, and keeps what it opened. A context. One thread at a time. ``least_s``: so long
    at least a server may take to answer."""

    def __init__(self, ports: WaitPorts, clock: Clock, least_s: float = LEAST_S) -> None:
        left = self._left = TimeLeft(clock, least_s)
        self._log = BoundedLog(left)
        self._ports = ports
        self._clock = clock
        self._stores = KeptStores(lambda sink: BoundedStore(sink, ports.open, left))
        self._epoch: int | None = None
        self.unsure = ""
        """What the last :meth:`wait` could not find out. Empty when it knew all."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stores.close()
        self._log.close()

    def wait(self, sink: str, lsn: int | Token, *, timeout_s: float = 30.0, table: str = "") -> Watermark:
        """Return when ``sink`` shows every change committed below ``lsn``. See :mod:`cdc.freshness.rules`.

        A :class:`cdc.record.tokens.Token` is judged by the store alone. An LSN is taken as one of the pipeline's
        epoch, which is asked again once the store is in a newer one.

        ``table``: one for which that has to hold also where the sink holds it, or of a view (``view.NAME``), which may
        be behind the tables.

        While the log does not answer, the epoch of an LSN is not known: the store's own word is taken then, see
        :attr:`unsure`. UsageError for an unknown sink, SinkError when the store does not answer, Difference after
        ``timeout_s`` or where the log lacks changes of a table that is set aside, LogError when the store does not
        show it and the log that could bring it does not answer. ConfigError where the source has no LSNs. A server that
        says nothing is asked for as long as there is time, and for 5 s at least.
        """
        self._ports.require()
        self._left.begin(timeout_s)
        with self._ports.briefly():
            watermarks = self._stores.watermarks(sink)
        topic = self._log.ask(partial(self._ports.place, sink, table)) if table else ""
        if not isinstance(lsn, Token):
            epoch = look(self._epoch_once)
            if isinstance(epoch, Unknown):
                return self._take_its_word(sink, watermarks, lsn, epoch, topic)
        self.unsure = ""
        watermark = self._wait_until_shown(sink, watermarks, lsn)
        while topic and not speaks_for(watermark, topic):
            wait_until_spoken_for(sink, watermarks, topic, timeout_s=self._left.seconds, clock=self._clock)
            # Both have to hold of one watermark: the store may have begun anew meanwhile, or read the table again.
            watermark = self._wait_until_shown(sink, watermarks, lsn)
        require_whole(sink, watermark)
        return watermark

    def _wait_until_shown(self, sink: str, watermarks: ReadsWatermarks, lsn: int | Token) -> Watermark:
        nudge, clock, left_s = partial(self._log.nudge, self._ports.nudge), self._clock, self._left.seconds
        if isinstance(lsn, Token):
            return wait_until_token_shown(sink, watermarks, lsn, timeout_s=left_s, nudge=nudge, clock=clock)
        known = self._known_epoch
        return wait_until_shown(sink, watermarks, lsn, epoch=known, timeout_s=left_s, nudge=nudge, clock=clock)

    def waiting(self, sink: str) -> Iterator[str]:
        """A sentence for each table that the sink holds and for each key that waits in its dead letters: they do not
        show what the LSN says."""
        self._left.begin(0.0)
        mark = self._stores.watermarks(sink).read()
        for hold in mark.held.values() if mark is not None else ():
            yield hold.sentence(sink)
        try:
            letters = self._log.ask(lambda: list(self._ports.letters()))
            for topic, keys in Parked(sink, letters).keys().items():
                for key in keys:
                    yield f"{sink} holds back {topic} {key.decode(errors='replace')}: cdc dead list says why"
        except TopicError:
            return
        except LogError as error:
            yield f"not known whether {sink} holds back a key: {error.message}"

    def _epoch_once(self) -> int | None:
        """The pipeline's epoch, asked for until there is one."""
        if self._epoch is None:
            self._epoch = self._ask_epoch()
        return self._epoch

    def _ask_epoch(self) -> int | None:
        return self._log.ask(self._ports.epoch)

    def _known_epoch(self, shown: int) -> int | None:
        """The pipeline's epoch. A store in a newer one than was known says that another has begun since."""
        if self._epoch is not None and shown > self._epoch:
            found = look(self._ask_epoch)
            self._epoch = self._epoch if isinstance(found, Unknown) else found
        return self._epoch

    def _take_its_word(
        self, sink: str, watermarks: ReadsWatermarks, lsn: int, unknown: Unknown, topic: str
    ) -> Watermark:
        with self._ports.briefly():
            watermark = watermarks.read()
        if watermark is None or not shows(watermark, lsn, None) or (topic and not speaks_for(watermark, topic)):
            raise unknown.because
        require_whole(sink, watermark)
        self.unsure = f"the pipeline's epoch is not known, {sink} is in epoch {watermark.epoch}: {unknown}"
        return watermark


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
