"""Dead letters in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cdc.clock import ManualClock
from cdc.dead import DeadLetter


class MemoryDeadLetters:
    """:class:`cdc.dead.DeadLetters` in memory.

    ``answering`` stands for the application that feeds a store: what it returns of the letters of one write is
    appended behind them. ``clock`` moves by what a follower waits.
    """

    def __init__(
        self,
        letters: Iterable[DeadLetter] = (),
        *,
        answering: Callable[[list[DeadLetter]], Iterable[DeadLetter]] = lambda written: (),
        clock: ManualClock | None = None,
    ) -> None:
        self.all = list(letters)
        """Every letter, order and answer, in order."""
        self._answering = answering
        self._clock = clock or ManualClock()

    def read(self) -> list[DeadLetter]:
        return list(self.all)

    def write(self, letters: Iterable[DeadLetter]) -> None:
        written = list(letters)
        self.all += written
        self.all += self._answering(written)

    def follow(self) -> MemoryLetterFeed:
        """Yield the letters that are written from now on."""
        return MemoryLetterFeed(self, self._clock)


class MemoryLetterFeed:
    """:class:`cdc.dead.LetterFeed` of :class:`MemoryDeadLetters`."""

    def __init__(self, letters: MemoryDeadLetters, clock: ManualClock) -> None:
        self._letters = letters
        self._clock = clock
        self._next = len(letters.all)
        self.closed = False

    def poll(self, timeout_s: float) -> list[DeadLetter]:
        found = self._letters.all[self._next :]
        self._next += len(found)
        if not found:
            self._clock.advance(timeout_s)
        return found

    def close(self) -> None:
        self.closed = True
