"""Waits for stores of one pipeline, over its ports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Self

from cdc.clock import Clock
from cdc.dead import DeadLetter, Parked
from cdc.errors import LogError, TopicError
from cdc.found import Unknown, look
from cdc.freshness.bounded_ports import LEAST_S, BoundedLog, BoundedStore, TimeLeft
from cdc.freshness.opened_stores import KeptStores, OpenedStore
from cdc.freshness.rules import (
    ReadsWatermarks,
    require_whole,
    shows,
    speaks_for,
    wait_until_shown,
    wait_until_spoken_for,
    wait_until_token_shown,
)
from cdc.progress import Watermark
from cdc.tokens import Token


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

        A :class:`cdc.tokens.Token` is judged by the store alone. An LSN is taken as one of the pipeline's epoch, which
        is asked again once the store is in a newer one.

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
