"""The ports of orders about dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cdc.dead import DeadLetters, LetterFeed
from cdc.schema import TableSchema


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
