"""A store built anew from the log beside the one in use, then switched to: ``cdc rebuild``.

The document in ``<name>.state`` has one writer, the command. Each step is noted there when it is done, and each may be
repeated, so that a command that was killed anywhere goes on by being run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from secrets import token_hex
from typing import Any, ClassVar, NamedTuple, Protocol

from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import SinkError, TopicError, UsageError
from cdc.record.documents import dumped
from cdc.record.ports import CompactedTopic
from cdc.record.progress import Offsets, Progress, Watermark
from cdc.record.schema import TableSchema
from cdc.record.state import Document
from cdc.wire.dead_letter import DeadLetter, DeadLetters, Parked, Why, order, waiting


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
    over. None before. Asked until it is. ``cut``: the sink's histories whose topics have lost records by their age.
    """

    generations: RebuildGenerations
    filling: Filling
    letters: DeadLetters
    state: CompactedTopic
    shapes: Callable[[], Sequence[TableSchema]]
    written: Callable[[], Progress | None]
    snapshot: Callable[[], Offsets | None] = dict
    cut: Callable[[], Sequence[str]] = tuple


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


declare("rebuild_after_begin", "rebuild_after_fill", "rebuild_after_keep", "rebuild_after_switch")

Tell = Callable[[str, float | None], None]
"""Is called with each step in words, and with the share of the log that was read while it is."""


class Rebuild:
    """Rebuilds of one sink's store. ``separate``: its generations stay where they were built."""

    def __init__(self, sink: str, ports: RebuildPorts, *, separate: bool) -> None:
        self._sink = sink
        self._ports = ports
        self._separate = separate
        self._resumed = False

    def run(self, tell: Tell) -> RebuildState:
        """Build the store anew from the log and switch to it. Goes on where an earlier call was killed.

        Returns what was noted. TopicError where the store has a history that its topic has no longer. SinkError when
        it was stopped while the new generation is filled, or when the store does not answer. LogError when no broker
        does.
        """
        for history in self._ports.cut():
            raise TopicError(
                f"{self._sink} cannot be built anew: {history} has rows that its topic lost by their age",
                hint=f"cdc verify {self._sink} --repair mends tables where they are; or leave the table out of the "
                "sink's history meanwhile: its rows stay as they are",
            )
        run = self._begin()
        crash_point("rebuild_after_begin")
        if run.step == Step.BUILDING:
            run = self._filled(run, tell)
        crash_point("rebuild_after_fill")
        shapes = self._ports.shapes()
        if run.step == Step.KEEPING:
            run = self._keep(run, shapes, tell)
        crash_point("rebuild_after_keep")
        self._ports.generations.switch(run.generation, shapes)
        crash_point("rebuild_after_switch")
        self._retry()
        run = self._note(run.at(Step.DONE))
        if not self._separate:
            self._ports.generations.discard(run.generation, shapes)
        return run

    def roll_back(self) -> RebuildState:
        """Switch back to the generation before the last rebuild, unless that is done: a command that was killed behind
        its last step is told so. UsageError when there is none."""
        last = find_rebuild(self._ports.state.read(), self._sink)
        run = rolled_back(self._sink, last)
        if run == last and self._ports.generations.in_use() == run.previous:
            return run
        self._ports.generations.switch(run.previous, self._ports.shapes())
        self._retry()
        return self._note(run)

    def _begin(self) -> RebuildState:
        """The rebuild to go on with, or a new one, once nothing is left of the one before."""
        last, in_use = find_rebuild(self._ports.state.read(), self._sink), self._ports.generations.in_use()
        run = next_rebuild(self._sink, in_use, last)
        if run == last:
            # The other one went on since a command was killed behind the filling: it is waited for again.
            self._resumed = True
            return run if in_use == run.generation else run.at(Step.BUILDING)
        if last is not None:
            self._discard(last)
        return self._note(run)

    def _discard(self, last: RebuildState) -> None:
        """Remove what an earlier rebuild kept."""
        generations, shapes = self._ports.generations, self._ports.shapes()
        in_use = {generations.in_use()} if self._separate else set()
        for number in sorted({last.previous, last.generation} - in_use):
            generations.discard(number, shapes)

    def _filled(self, run: RebuildState, tell: Tell) -> RebuildState:
        """The rebuild behind its filling. Where the log cannot go on with its generation, as with one that was left for
        longer than the topics keep deletes, another one is begun."""
        try:
            return self._fill(run, tell)
        except TopicError:
            if not self._resumed:
                raise
        self._resumed = False
        self._ports.generations.discard(run.generation, self._ports.shapes())
        self._ports.letters.write(given_up(run, self._ports.letters.read()))
        return self._fill(self._note(another(run, self._ports.generations.in_use())), tell)

    def _fill(self, run: RebuildState, tell: Tell) -> RebuildState:
        """Feed the new generation until it shows what the old one shows."""
        name = f"generation {run.generation} of {self._sink}"
        whole: Offsets | None = None
        tell(f"{name} is filled from the log", 0.0)

        def reached(now: GenerationProgress) -> bool:
            nonlocal run, whole
            read = share(now.new, now.ends)
            tell(name, read)
            # For cdc status, and in whole hundredths: this is asked twice a second.
            if round(read, 2) != run.share:
                run = self._note(replace(run, share=round(read, 2)))
            whole = self._ports.snapshot() if whole is None else whole
            if whole is None or not has_read(now.new, {t: parts for t, parts in whole.items() if t in now.ends}):
                return False
            if not behind_claim(now.new, now.old, now.ends):
                return level(now.new, now.old, now.ends)
            return level_with_log(now.new, now.old, now.ends, self._ports.written())

        if not self._ports.filling.fill(run, reached):
            raise SinkError(
                f"the rebuild of {self._sink} was stopped: generation {run.generation} is not whole yet",
                hint=f"cdc rebuild {self._sink} goes on where it was",
            )
        return self._note(run.at(Step.KEEPING))

    def _keep(self, run: RebuildState, shapes: Sequence[TableSchema], tell: Tell) -> RebuildState:
        """Keep the generation in use, and let what the new one refused wait for the sink from now on."""
        tell(f"generation {run.previous} is kept for a rollback", None)
        self._ports.generations.keep(run.previous, shapes)
        letters = list(self._ports.letters.read())
        if count := unread(run, letters):
            tell(f"not read (cdc dead list), so lacking until a later record of the key: {count}", None)
        self._ports.letters.write(taken_over(run, letters))
        return self._note(run.at(Step.SWITCHING))

    def _retry(self) -> None:
        """Have what waits for the old generation tried on the new one, by the query that feeds it."""
        self._ports.letters.write(retried(self._sink, self._ports.letters.read(), partial(token_hex, 8)))

    def _note(self, run: RebuildState) -> RebuildState:
        self._ports.state.write([(run.key(), run.to_json())])
        return run
