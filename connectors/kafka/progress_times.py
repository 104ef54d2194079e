"""The newest progress records with the broker's time of each: how many seconds behind a position is."""

from __future__ import annotations

from contextlib import suppress

from cdc.errors import DamagedError
from cdc.progress import PROGRESS_KEY, Mark, Progress
from cdc.settings import LogSettings
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import read_range

NEWEST = 2_000


def read_marks(settings: LogSettings, topic: str, count: int = NEWEST) -> list[Mark]:
    """At most ``count`` marks, oldest first. Records that compaction has removed are not among them."""
    end = TopicAdmin(settings).end_offsets({topic: 1})[topic].get(0, 0)
    marks = []
    for message in read_range(settings, topic, 0, max(0, end - count)):
        value = message.value()
        if message.key() == PROGRESS_KEY and isinstance(value, bytes):
            # One that cannot be read says nothing of the others.
            with suppress(DamagedError):
                progress = Progress.from_json(value)
                marks.append(Mark(progress.epoch, progress.lsn, message.timestamp()[1]))
    return marks
