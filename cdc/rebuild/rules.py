"""The notes of a rebuild, and its steps: pure.

The document in ``<name>.state`` has one writer, ``cdc rebuild``. Each step may be repeated, so that a command that
was killed anywhere goes on by being run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

from cdc.errors import UsageError
from cdc.json_bytes import dumped
from cdc.progress import Offsets, Progress, Watermark
from cdc.state import Document


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
