"""Put one store's work into its figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cdc.record.progress import Offsets, Watermark
from spark.figures.sink_metrics import FillStand, SinkFigures
from spark.stores.apply import Outcome
from spark.stores.watermark import Beat, covers


def note_outcome(figures: SinkFigures, outcome: Outcome, now_ms: float, now_s: float, filled_ms: int) -> None:
    """Count what was applied and shown at ``now_ms`` (since 1970), ``now_s`` of the monotonic clock. Changes of before
    ``filled_ms`` waited for a fill, and say nothing of freshness."""
    figures.failing = None
    applied = outcome.applied
    figures.records += outcome.records
    figures.record_bytes += outcome.read.size_bytes
    figures.applied += applied.applied
    figures.deleted += applied.deleted
    figures.stale += applied.stale
    figures.dead.update(letter.why.value for letter in outcome.letters)
    for committed_ms, count in outcome.read.commits:
        if committed_ms >= filled_ms:
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


class TopicFill:
    """The topics that a store reads from their beginning: all of a new store, or those of tables that came later. It
    ends where they ended when it began."""

    def __init__(self) -> None:
        self._goal: dict[str, Mapping[int, int]] = {}
        self._filled_ms = 0

    def begin(self, shown: Watermark | None, ends: Offsets) -> None:
        """The store shows this, and is fed with the topics of ``ends`` from now on. A fill that goes on keeps its
        goal."""
        known = shown.offsets.keys() if shown is not None and shown.lsn else frozenset[str]()
        goal = {topic: end for topic, end in ends.items() if topic not in known and any(end.values())}
        self._goal = {**goal, **{topic: end for topic, end in self._goal.items() if topic in ends}}

    def stand(self, offsets: Offsets, topics: Collection[str]) -> FillStand | None:
        """How far it is for a store at ``offsets``, which reads ``topics``. None where no fill runs. For any thread."""
        goal = {topic: parts for topic, parts in self._goal.items() if topic in topics}
        return None if covers(offsets, goal) else FillStand(*reached_of(offsets, goal))

    def filled_ms(self, offsets: Offsets, topics: Collection[str], now_ms: int) -> int:
        """When its last batch showed, in ms since 1970. 0 where there was none. Ask it for each batch that shows."""
        if self._goal:
            self._filled_ms = now_ms
        if self.stand(offsets, topics) is None:
            self._goal = {}
        return self._filled_ms


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
