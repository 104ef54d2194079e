"""The end of topics, read at a start: how far a partition is ahead of the newest progress record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import DamagedError, LogError
from cdc.position import Position
from cdc.progress import PROGRESS_KEY, Offsets, Progress
from cdc.settings import LogSettings
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted import bounds, read_on

log = logging.getLogger(__name__)

_LAST_RECORDS = 200
"""Looked at first."""
SHORT_S = 2.0
"""For so long a partition may show less than it has: a replica that is read instead of the leader lags, and so does a
leader that was just chosen."""
_AGAIN_S = 0.1


Found = Mapping[tuple[str, int], Position]


class Tail(NamedTuple):
    """The records of a partition from ``low`` (a progress record's offset) to ``end`` (its next offset)."""

    topic: str
    partition: int
    low: int
    end: int


def last_progress(settings: LogSettings, topic: str, end: int) -> Progress | None:
    """The newest progress record of a topic that ends at ``end``, by its leader. None when there is none.

    The newest by what it says: one that came too late stands behind it. An unreadable record is passed over
    beside a readable one: an older one begins no later, and whether the slot still gives that is asked next.
    DamagedError where there is no other, FormatError where any has another format. LogError where not all of it can
    be read yet.
    """
    consumer = Consumer(reader_config(settings))
    try:
        where = TopicPartition(topic, 0)
        require_shown(lambda: bounds(consumer, where, settings)[1], topic, end)
        return _newest(consumer, settings, topic, end)
    finally:
        consumer.close()


def require_shown(ask: Callable[[], int], topic: str, end: int, clock: Clock = SYSTEM_CLOCK) -> None:
    """Return when partition 0 can be read to its ``end``. ``ask``: how far it can be.

    LogError where it cannot: behind somebody's open transaction may stand a newer record, and the source may not go
    back any more to where an older one wants it. An aborted record counts as read, and leaves a gap.
    """
    until_s = clock.monotonic() + SHORT_S
    while (shown := ask()) < end:
        if clock.monotonic() >= until_s:
            raise hidden((topic, 0), shown, end)
        clock.sleep(_AGAIN_S)


def hidden(place: tuple[str, int], shown: int, end: int) -> LogError:
    """The records between the end that a partition shows and the one that the brokers have said are not known, and are
    there."""
    return LogError(
        f"{place[0]} partition {place[1]} is readable up to offset {shown}, and ends at {end}: somebody's transaction "
        "is open in it",
        hint="a transaction ends by its own time limit at the latest; no other program may write to the topic",
    )


def _newest(consumer: Consumer, settings: LogSettings, topic: str, end: int) -> Progress | None:
    span = _LAST_RECORDS
    while True:
        low = max(0, end - span)
        found, damaged = _readable(consumer, settings, topic, low)
        if found:
            if damaged is not None:
                log.warning("progress_unreadable", extra={"topic": topic, "why": damaged.message})
            # Of equals the last: it may have more offsets.
            return max(reversed(found), key=lambda progress: (progress.epoch, progress.lsn))
        if low == 0 and damaged is not None:
            raise damaged
        if low == 0:
            return None
        span *= 100


def _readable(
    consumer: Consumer, settings: LogSettings, topic: str, low: int
) -> tuple[list[Progress], DamagedError | None]:
    """The progress records from an offset on, and what was wrong with the last one that cannot be read."""
    found: list[Progress] = []
    damaged: DamagedError | None = None
    for message in read_on(consumer, settings, topic, 0, low):
        value = message.value()
        if message.key() == PROGRESS_KEY and isinstance(value, bytes):
            try:
                found.append(Progress.from_json(value))
            except DamagedError as error:
                damaged = error
    return found, damaged


def held_positions(
    progress: Progress, topics: Collection[str], ends: Offsets, look: Callable[[list[Tail]], Found]
) -> Found:
    """(topic, partition) -> the newest streamed position at or beyond the progress record's lsn, where there is one.

    The record has those of the partitions that were ahead of it, and ``look`` finds those behind its offsets.
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
