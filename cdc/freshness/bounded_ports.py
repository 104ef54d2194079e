"""The servers of a wait, each asked within the time that somebody has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from cdc.clock import Clock
from cdc.errors import LogError, SinkError
from cdc.freshness.bounded_calls import BoundedCalls, Unanswered
from cdc.freshness.opened_stores import OpenedStore
from cdc.freshness.rules import ReadsWatermarks
from cdc.progress import Watermark

T = TypeVar("T")

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
    anew for the next question. Implements :class:`cdc.freshness.opened_stores.OpenedStore`, and
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
