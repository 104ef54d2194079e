"""The notes of a rebuild, and its steps: pure.

The document in ``<name>.state`` has one writer, ``cdc rebuild``. Each step may be repeated, so that a command that
was killed anywhere goes on by being run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Protocol

from cdc.operate.letter_orders import order
from cdc.process.errors import UsageError
from cdc.record.documents import dumped
from cdc.record.ports import CompactedTopic
from cdc.record.progress import Offsets, Progress, Watermark
from cdc.record.schema import TableSchema
from cdc.record.state import Document
from cdc.wire.dead_letter import DeadLetter, DeadLetters, Parked, Why, waiting


class Step(StrEnum):
    """How far a rebuild is."""

    BUILDING = "building"
    """The new generation is filled. Readers and the sink know nothing of it."""
    KEEPING = "keeping"
    """It is level with the one in use, which is kept for a rollback."""
    SWITCHING = "switching"
    """Readers are being led to the new one."""
    DONE = "done"
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildState(Document):
    """The last rebuild of a sink. ``previous``: the generation that was in use before. ``share``: of the log, that the
    new generation had read when it was last noted, from 0 to 1."""

    WHAT: ClassVar[str] = "rebuild"
    sink: str
    generation: int
    previous: int
    step: str
    share: float = 0.0

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "sink": self.sink})

    @property
    def unfinished(self) -> bool:
        """Whether a step is left to do, as after a kill."""
        return self.step in (Step.BUILDING, Step.KEEPING, Step.SWITCHING)

    def noted(self) -> dict[str, Any]:
        """As ``cdc status --json`` has it."""
        return {"generation": self.generation, "step": self.step, "share": self.share}

    def at(self, step: Step) -> RebuildState:
        """The same rebuild at another step."""
        return replace(self, step=step.value)


def find_rebuild(documents: Mapping[bytes, bytes], sink: str) -> RebuildState | None:
    """The last rebuild of a sink, by the records of the state topic."""
    value = documents.get(dumped({"what": RebuildState.WHAT, "sink": sink}))
    return RebuildState.from_json(value) if value is not None else None


def next_rebuild(sink: str, in_use: int, last: RebuildState | None) -> RebuildState:
    """The rebuild to go on with, or a new one, with a number that was never used."""
    if last is not None and last.unfinished:
        return last
    number = max(in_use, last.generation if last is not None else 0) + 1
    return RebuildState(sink=sink, generation=number, previous=in_use, step=Step.BUILDING.value)


def another(run: RebuildState, in_use: int) -> RebuildState:
    """A new rebuild in the place of one whose generation cannot be gone on with."""
    return next_rebuild(run.sink, in_use, run.at(Step.ROLLED_BACK))


def rolled_back(sink: str, last: RebuildState | None) -> RebuildState:
    """The last rebuild, taken back: the same where it is already. UsageError when there is none that could be."""
    if last is None or last.step not in (Step.DONE, Step.ROLLED_BACK):
        raise UsageError(f"there is no rebuild of {sink} to go back behind", hint=f"cdc rebuild {sink} makes one")
    return last.at(Step.ROLLED_BACK)


def level(new: Watermark | None, old: Watermark | None, ends: Offsets) -> bool:
    """Whether the new generation shows all that the old one does. Without an old one, all that the log holds.

    Ask for ``old`` and ``ends`` first: both grow. Offsets of the old one behind the log's end are of another log, or
    were set by hand. Nobody can read up to there, so the end counts.
    """
    return _read(new, old, ends) and _claim(new) >= _claim(old)


def level_with_log(new: Watermark | None, old: Watermark | None, ends: Offsets, written: Progress | None) -> bool:
    """Whether the new generation shows all that the log holds, and the old one claims more than the log holds.

    A claim that was set ahead by hand, or is of an earlier log, is never reached. ``written``: the newest progress
    record, asked for after ``old``: then no true claim is above it.
    """
    if written is None or not _read(new, old, ends):
        return False
    reached = (written.epoch, written.lsn)
    return _claim(old) > reached and _claim(new) >= reached


def behind_claim(new: Watermark | None, old: Watermark | None, ends: Offsets) -> bool:
    """Whether all is read and the old one's claim alone is not reached. Only then is the log asked what it holds."""
    return _read(new, old, ends) and _claim(new) < _claim(old)


def _read(new: Watermark | None, old: Watermark | None, ends: Offsets) -> bool:
    """Whether the new one has read what the old one has."""
    wanted = ends
    if old is not None and old.offsets:
        wanted = {
            topic: {p: min(offset, ends[topic][p]) for p, offset in parts.items() if p in ends[topic]}
            for topic, parts in old.offsets.items()
            if topic in ends
        }
    return has_read(new, wanted)


def has_read(new: Watermark | None, wanted: Offsets) -> bool:
    """Whether a generation has read up to there."""
    return new is not None and all(
        new.offsets.get(topic, {}).get(partition, 0) >= offset
        for topic, parts in wanted.items()
        for partition, offset in parts.items()
    )


def _claim(mark: Watermark | None) -> tuple[int, ...]:
    """Without a watermark less than any."""
    return (mark.epoch, mark.lsn) if mark is not None else ()


def share(new: Watermark | None, ends: Offsets) -> float:
    """How much of the log the new generation has read, 0 to 1, offsets counted."""
    total = sum(end for parts in ends.values() for end in parts.values())
    offsets = new.offsets if new is not None else {}
    read = sum(min(end, offsets.get(topic, {}).get(p, 0)) for topic, parts in ends.items() for p, end in parts.items())
    return read / total if total else 1.0


class RebuildGenerations(Protocol):
    """The generations of the store, as :class:`sinks.contract.generations.Generations` promises them. Every call may be
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


def apart(run: RebuildState) -> str:
    """The name under which the letters of a generation stand while it is built."""
    return f"{run.sink}@{run.generation}"


def taken_over(run: RebuildState, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """The records that make the letters of the new generation wait for the sink, each once. ``letters``: the topic."""
    known = list(letters)
    mine = [one for one in waiting(known) if one.sink == apart(run)]
    fresh = Parked(run.sink, known).fresh(replace(one, sink=run.sink) for one in mine)
    return [*fresh, *(replace(one, why=Why.RELEASED, reason="in use now", value=None, headers=()) for one in mine)]


def unread(run: RebuildState, letters: Iterable[DeadLetter]) -> int:
    """How many records the new generation lacks that nobody could read, as one of Debezium's without a value."""
    return sum(one.sink == apart(run) and one.why is Why.UNREADABLE for one in waiting(letters))


def given_up(run: RebuildState, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """The records by which nothing waits any more for a generation that is discarded before it was in use."""
    return [
        replace(one, why=Why.RELEASED, reason="discarded", value=None, headers=())
        for one in waiting(letters)
        if one.sink == apart(run)
    ]


def retried(sink: str, letters: Iterable[DeadLetter], new_id: Callable[[], str]) -> list[DeadLetter]:
    """An order for each key that waits for the sink: its query tries the key on the generation in use now."""
    last = {(one.topic, one.key): one for one in waiting(letters) if one.sink == sink and one.parks}
    return [order(one, Why.RETRY, new_id()) for one in last.values()]
