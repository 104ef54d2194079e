"""Orders about the dead letters of one pipeline, over its ports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from secrets import token_hex

from cdc.clock import Clock
from cdc.dead import CAPTURE, DeadLetter, Why
from cdc.errors import TopicError
from cdc.letters.ports import LetterPorts
from cdc.letters.rules import left_out, row_of, shown
from cdc.orders import drop_by_hand, identity_of, order

_POLL_S = 0.2

Answered = tuple[DeadLetter, DeadLetter | None]
"""A letter, and the answer to the order about it. None where there was none in time."""


class LettersRun:
    """Reads the letters and gives orders about them to the query that feeds the store."""

    def __init__(self, ports: LetterPorts, clock: Clock) -> None:
        self._ports = ports
        self._clock = clock

    def read(self) -> list[DeadLetter]:
        """Every letter of the pipeline, oldest first. TopicError before ``cdc init``."""
        return list(self._ports.letters.read())

    def left_out(self) -> list[str]:
        """See :func:`cdc.letters.rules.left_out`. Nothing before ``cdc init``."""
        with suppress(TopicError):
            return list(left_out(self.read()))
        return []

    def order(self, letters: Sequence[DeadLetter], why: Why, *, timeout_s: float) -> Iterator[Answered]:
        """Write an order about each letter. Yields each with the answer to it, None for those that had none in time.

        The orders stay: the next application that feeds the store carries out what is not answered yet.
        """
        mine = [letter for letter in letters if letter.sink == CAPTURE]
        # No sink has these in mind: they are answered here.
        self._ports.letters.write(answers := [drop_by_hand(letter) for letter in mine])
        yield from zip(mine, answers, strict=True)
        unanswered = {token_hex(8): letter for letter in letters if letter.sink != CAPTURE}
        # Opened first: an answer that comes at once is not missed.
        with closing(self._ports.follow()) as feed:
            self._ports.letters.write(order(letter, why, one) for one, letter in unanswered.items())
            until = self._clock.monotonic() + timeout_s
            while unanswered and self._clock.monotonic() < until:
                for heard in feed.poll(_POLL_S):
                    identity = identity_of(heard)
                    if heard.why in (Why.RELEASED, Why.HELD) and identity in unanswered:
                        yield unanswered.pop(identity), heard
        for letter in unanswered.values():
            yield letter, None

    def shown(self, letters: Sequence[DeadLetter]) -> Iterator[str]:
        """A sentence for the key of each letter: what its store shows of it now. SinkError when one does not answer."""
        shapes = {shape.topic: shape for shape in self._ports.shapes()}
        for sink in sorted({letter.sink for letter in letters} - {CAPTURE}):
            with self._ports.open_store(sink) as reader:
                for letter in letters:
                    found = row_of(letter, shapes) if letter.sink == sink else None
                    if found is not None:
                        shape, key = found
                        yield shown(sink, shape.table, key, reader.get(shape, key))
