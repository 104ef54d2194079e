"""The ports of a rebuild."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cdc.dead import DeadLetters
from cdc.ports import CompactedTopic
from cdc.progress import Offsets, Progress, Watermark
from cdc.rebuild.rules import RebuildState
from cdc.schema import TableSchema


class RebuildGenerations(Protocol):
    """The generations of the store, as :class:`sinks.generations.Generations` promises them. Every call may be
    repeated after a kill. SinkError when the store does not answer."""

    def in_use(self) -> int:
        """The number of the generation that readers see."""

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """Keep what is in use as the generation of this number."""

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """Let readers see this generation, and the query that feeds the store go on with it. Nothing happens where
        that is over already: what was written since stays."""

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """Remove a generation that is not in use. Nothing happens when there is none."""


class GenerationProgress(NamedTuple):
    """How far two generations are, asked in this order, since all three grow: the watermark of the one in use, the ends
    of the log's topics, and the watermark of the new one."""

    old: Watermark | None
    ends: Offsets
    new: Watermark | None


class Filling(Protocol):
    """An application that feeds a generation from the log, beside the one in use."""

    def fill(self, run: RebuildState, level: Callable[[GenerationProgress], bool]) -> bool:
        """Feed ``run.generation`` from where it was left, until ``level`` says so of how far it is.

        ``level`` is asked about twice a second. Returns False when it was stopped before.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPorts:
    """Everything that a rebuild uses.

    ``shapes`` returns every version of the shapes of the sink's tables, older ones first. ``written``: the
    log's newest progress record. ``snapshot``: where the topics end that Debezium's first snapshot fills, once it is
    over. None before. Asked until it is.
    """

    generations: RebuildGenerations
    filling: Filling
    letters: DeadLetters
    state: CompactedTopic
    shapes: Callable[[], Sequence[TableSchema]]
    written: Callable[[], Progress | None]
    snapshot: Callable[[], Offsets | None] = dict
