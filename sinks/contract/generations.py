"""Generations of a store: one in use, another filled beside it from the log, and the switch between them.

A cache and a search index keep each generation in a place of its own, and a note beside the first one's watermark
says which is in use: the switch is one write. A warehouse's readers know its tables by name, so there the content of
the tables is replaced, each table in one commit (Delta) or all of them in one transaction (SQL).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cdc.record.documents import reading
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.sink_spec import Option
from sinks.contract.store_notes import Notes

GENERATION = "generation"
FIRST = 1


class Generations(Protocol):
    """The generations of one store, opened for an operator. Every call may be repeated after a kill."""

    def in_use(self) -> int:
        """The number of the generation that readers see."""

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """Keep what is in use as the generation of this number, so that a switch to it brings it back."""

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """Let readers see this generation, and the query that feeds the store go on with it. Nothing happens where
        that is over already: what was written since stays."""

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """Remove a generation that is not in use. Nothing happens when there is none."""

    def close(self) -> None:
        """Close the connections. Never raises."""


def said_in_use(notes: Notes) -> int:
    """The number of the generation in use, by the notes of the first one's place. Negative while a switch to it is
    under way."""
    with reading("the generation in use, as the store says it,"):
        return int(notes.read().get(GENERATION, b"%d" % FIRST))


def is_said(notes: Mapping[str, bytes], number: int) -> bool:
    """Whether notes say in so many words that a generation is in use, and that no switch is under way."""
    return notes.get(GENERATION) == b"%d" % number


def number_in_use(notes: Notes) -> int:
    """The same as a number."""
    return abs(said_in_use(notes))


def lower(one: Watermark, other: Watermark | None) -> Watermark:
    """A watermark that is true of a store which is as either of two says."""
    if other is None:
        return one
    offsets = {
        topic: {p: min(offset, other.offsets[topic].get(p, 0)) for p, offset in parts.items()}
        for topic, parts in one.offsets.items()
        if topic in other.offsets
    }
    epoch, lsn = min((one.epoch, one.lsn), (other.epoch, other.lsn))
    return Watermark(
        epoch=epoch,
        lsn=lsn,
        offsets=offsets,
        topic_ids=one.topic_ids,
        level_ms=min(one.level_ms, other.level_ms),
    )


class OpenGeneration:
    """The generation that an opened store works on: a given one, or the one in use."""

    def __init__(self, notes: Notes, given: Option, *, shared: bool) -> None:
        self._notes = notes
        self._given = int(given) if given is not None else None
        self._shared = shared
        self._opened = self._given if self._given is not None else said_in_use(notes)
        self.number = abs(self._opened)

    def look(self) -> bool:
        """Before each batch of a store that tasks keep open: whether another generation is in use since."""
        if self._given is not None or not self._shared:
            return False
        found = number_in_use(self._notes)
        changed, self.number = found != self.number, found
        return changed

    def current(self) -> bool:
        """Whether what was opened is still in use. A given one always is."""
        return self._given is not None or said_in_use(self._notes) == self._opened
