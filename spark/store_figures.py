"""Put one store's work into its figures."""

from __future__ import annotations

from cdc.progress import Offsets, Watermark
from spark.apply import Outcome
from spark.fill_lines import FillStand
from spark.sink_metrics import SinkFigures
from spark.watermark import Beat


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


class BeatCount:
    """Heartbeats of an idle source that one store shows, each counted once.

    ``begun_ms``: when the store was last begun to be fed, since 1970. An older change came while nobody fed it.
    """

    def __init__(self) -> None:
        self.begun_ms = 0
        self._counted: Beat | None = None

    def shown(self, beat: Beat | None, mark: Watermark) -> Beat | None:
        """The heartbeat, where it is to be counted once the store has confirmed this watermark."""
        if beat is None or beat == self._counted or beat.at_ms < self.begun_ms:
            return None
        return beat if (mark.epoch, mark.lsn) >= beat[:2] else None

    def note(self, figures: SinkFigures, beat: Beat, now_ms: float, now_s: float) -> None:
        """It shows at ``now_ms``, since 1970, ``now_s`` of the monotonic clock."""
        self._counted = beat
        figures.freshness.add((now_ms - beat.at_ms) / 1e3, now_s, origin="heartbeat")


def fill_stand(offsets: Offsets, goal: Offsets | None, *, fills: bool) -> FillStand | None:
    """How far a fill is. None where none runs."""
    return FillStand(*reached_of(offsets, goal)) if fills and goal is not None else None


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
