"""The end of topics, read at a start: how far a partition is ahead of the newest progress record (H75, H7, H8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from cdc.position import Position
from cdc.progress import PROGRESS_KEY, Offsets, Progress
from cdc.settings import LogSettings
from connectors.kafka.compacted import read_range

_LAST_RECORDS = 200
"""Looked at first."""


Found = Mapping[tuple[str, int], Position]


class Tail(NamedTuple):
    """What a partition holds from ``low`` (a progress record's offset) to ``end`` (its next offset)."""

    topic: str
    partition: int
    low: int
    end: int


def last_progress(settings: LogSettings, topic: str, end: int) -> Progress | None:
    """The newest progress record of a topic that ends at ``end``. None when there is none.

    The newest by what it says: one that came too late stands behind it (H76).
    """
    span = _LAST_RECORDS
    while True:
        low = max(0, end - span)
        values = ((m.key(), m.value()) for m in read_range(settings, topic, 0, low))
        found = [Progress.from_json(value) for key, value in values if key == PROGRESS_KEY and isinstance(value, bytes)]
        if found:
            # Of equals the last: it may tell of more offsets.
            return max(reversed(found), key=lambda progress: (progress.epoch, progress.lsn))
        if low == 0:
            return None
        span *= 100


def held_positions(
    progress: Progress, topics: Collection[str], ends: Offsets, look: Callable[[list[Tail]], Found]
) -> Found:
    """(topic, partition) -> the newest streamed position at or beyond the progress record's lsn, where there is one.

    What the record says of the partitions that were ahead of it, and what ``look`` finds behind its offsets.
    """
    tails = [
        Tail(topic, partition, progress.offsets.get(topic, {}).get(partition, 0), end)
        for topic in topics
        for partition, end in ends[topic].items()
    ]
    ahead = {
        (topic, partition): Position.parse(text)
        for topic, parts in progress.ahead.items()
        for partition, text in parts.items()
    }
    return {**ahead, **look(tails)}
