"""What one store's work says of it, put into its figures."""

from __future__ import annotations

from cdc.progress import Offsets
from spark.apply import Outcome
from spark.sink_metrics import SinkFigures


def note_outcome(figures: SinkFigures, outcome: Outcome, now_ms: float, now_s: float, *, fresh: bool) -> None:
    """Count what was applied and shown at ``now_ms`` (since 1970), ``now_s`` of the monotonic clock. ``fresh``: these
    are changes as they come, not a fill's."""
    figures.failing = None
    applied = outcome.applied
    figures.records += outcome.records
    figures.record_bytes += outcome.read.size_bytes
    figures.applied += applied.applied
    figures.deleted += applied.deleted
    figures.stale += applied.stale
    figures.dead.update(letter.why.value for letter in outcome.letters)
    for committed_ms, count in outcome.read.commits if fresh else ():
        figures.freshness.add((now_ms - committed_ms) / 1e3, now_s, count=count)


def note_beat(figures: SinkFigures, beat_ms: int, now_ms: float, now_s: float) -> None:
    """An idle source's mark of ``beat_ms`` (since 1970) shows at ``now_ms``."""
    figures.freshness.add((now_ms - beat_ms) / 1e3, now_s, origin="heartbeat")


def reached_of(offsets: Offsets, goal: Offsets) -> tuple[int, int]:
    """Of the offsets below a goal, how many lie below a reader's place, and how many there are.

    >>> reached_of({"t": {0: 3}}, {"t": {0: 10, 1: 5}})
    (3, 15)
    """
    every = sum(end for parts in goal.values() for end in parts.values())
    read = sum(
        min(end, offsets.get(topic, {}).get(partition, 0))
        for topic, parts in goal.items()
        for partition, end in parts.items()
    )
    return read, every
