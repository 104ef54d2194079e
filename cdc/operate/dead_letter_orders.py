"""An operator's work on dead letters: read them, order a retry or a drop, and see what the stores show.

Letters and orders are in :mod:`cdc.wire.dead_letter`, which says who carries an order out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Protocol

from cdc.process.clock import Clock
from cdc.process.errors import TopicError
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.dead_letter import (
    CAPTURE,
    DeadLetter,
    DeadLetters,
    LetterFeed,
    Why,
    drop_by_hand,
    identity_of,
    order,
    waiting,
)
from cdc.wire.plain import PlainTable

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
        """See :func:`cdc.operate.dead_letter_orders.left_out`. Nothing before ``cdc init``."""
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


def left_out(letters: Iterable[DeadLetter]) -> Iterator[str]:
    """A sentence for each row that capture put aside for its size: the stores may lack it."""
    for letter in waiting(letters):
        if letter.why is Why.OVERSIZED and letter.key is not None:  # without one it is an event, and in no store
            key = letter.key.decode(errors="replace")
            yield f"capture left out {letter.topic} {key}: {letter.reason}"


def row_of(letter: DeadLetter, shapes: Mapping[str, TableSchema]) -> tuple[TableSchema, str] | None:
    """The table's shape and the key as stores write it, of a letter that parks one. None where it names no row.

    ``shapes``: topic -> the newest shape of its table.
    """
    shape = shapes.get(letter.topic)
    if shape is None or letter.key is None or not letter.parks:
        return None
    try:
        return shape, PlainTable(shape).key(letter.key)
    except ValueError:
        return None


def shown(sink: str, table: TableName, key: str, stored: ShownRow | None) -> str:
    """A sentence on what the store shows under a key until its next change."""
    if stored is None or stored.row is None:
        return f"{sink} shows no row {key} of {table} until its next change"
    return f"{sink} shows row {key} of {table} as of {stored.pos} until its next change"


class ShownRow(Protocol):
    """The row that a store has under one key."""

    @property
    def pos(self) -> str:
        """Empty where it has none: somebody else put it there."""

    @property
    def row(self) -> bytes | None:
        """None where the store remembers a delete."""


class ReadsStore(Protocol):
    """Reads one key back."""

    def get(self, schema: TableSchema, key: str) -> ShownRow | None:
        """None where the store holds nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPorts:
    """Everything that orders use. Each raises LogError when no broker answers.

    ``letters``: the pipeline's. TopicError before ``cdc init``. ``follow`` opens them, to be followed from their end.
    ``shapes``: every version of every table. ``open_store``: a store's reader, by its sink's name. SinkError when the
    store does not answer.
    """

    letters: DeadLetters
    follow: Callable[[], LetterFeed]
    shapes: Callable[[], Iterable[TableSchema]]
    open_store: Callable[[str], AbstractContextManager[ReadsStore]]
