"""The ends of topics: how far a partition is ahead of the newest progress record, and where a time stands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.figures.measures import Head, Heads
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import DamagedError, LogError
from cdc.record.position import Position
from cdc.record.progress import PROGRESS_KEY, Offsets, Progress
from cdc.settings.model import LogSettings
from cdc.wire.envelope import committed_ms
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted_topic import bounds, leaderless, log_error, read_on

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


_GLANCE_S = 1.0


class AsksEnds(Protocol):
    """The part of :class:`connectors.kafka.admin.TopicAdmin` that is used here."""

    def ask_ends(self, asked: list[TopicPartition]) -> Mapping[TopicPartition, Future[Any]]:
        """Ask for the next offsets of partitions. Each answer has an ``offset``, or raises KafkaException."""

    def look_again(self, timeout_s: float) -> None:
        """Have the client ask who leads, for at most ``timeout_s``."""


class EndsWatch:
    """The ends of topics. They are asked for at one look and returned at a later one, so that nothing waits for a slow
    broker."""

    def __init__(self, admin: AsksEnds, partitions: Mapping[str, int]) -> None:
        self._admin = admin
        self._asked = [TopicPartition(topic, p) for topic, count in partitions.items() for p in range(count)]
        self._answers: Mapping[TopicPartition, Future[Any]] = {}

    def look(self) -> Offsets | None:
        """topic -> partition -> next offset, as of some time since the look before. None while nobody answered."""
        if not all(answer.done() for answer in self._answers.values()):
            return None
        ends, led = _read(self._answers)
        # Gone before the next are made: those of thousands of partitions take megabytes.
        self._answers = {}
        if not led:
            # The brokers answer, so this takes no time. Should they stand still again, the next look comes anyway.
            with suppress(KafkaException):
                self._admin.look_again(_GLANCE_S)
        self._answers = self._admin.ask_ends(self._asked)
        return ends or None


def _read(answers: Mapping[TopicPartition, Future[Any]]) -> tuple[Offsets, bool]:
    """The offsets, and whether each partition has somebody who leads."""
    ends: dict[str, dict[int, int]] = {}
    led = True
    for where, answer in answers.items():
        error = answer.exception()
        if error is None:
            ends.setdefault(where.topic, {})[where.partition] = answer.result().offset
        elif leaderless(error):
            led = False
    return ends, led


_TIMEOUT_S = 30.0


def offsets_at(settings: LogSettings, ends: Offsets, times_ms: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """The first offset whose record is as old as the topic's time in ``times_ms`` (since 1970) or younger. The
    partition's end, of ``ends``, where there is none. LogError when the broker does not answer."""
    asked = [TopicPartition(topic, p, times_ms[topic]) for topic, parts in ends.items() for p in parts]
    consumer = Consumer(reader_config(settings))
    try:
        answered = consumer.offsets_for_times(asked, timeout=_TIMEOUT_S) if asked else []
    except KafkaException as failure:
        raise log_error(failure.args[0], "asking Kafka for the offsets of a time", settings) from None
    finally:
        consumer.close()
    found: dict[str, dict[int, int]] = {}
    for place in answered:
        if place.error is not None:
            raise log_error(place.error, "asking Kafka for the offsets of a time", settings)
        end = ends[place.topic][place.partition]
        found.setdefault(place.topic, {})[place.partition] = place.offset if place.offset >= 0 else end
    return found


_HEADS_TIMEOUT_S = 1.0
_TURN_S = 0.05
_FETCH_BYTES = 64 * 1024
_MOST = 500


class KafkaHeads:
    """:class:`spark.records.ports.HeadReader`. One client, kept from the first question on. One thread at a time.

    A record without a commit time (a tombstone) has the time at which the log took it.
    """

    def __init__(self, settings: LogSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._kept: Consumer | None = None

    def read(self, places: Collection[tuple[str, int, int]], ends: Offsets) -> Heads:
        wanted: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in places:
            wanted.setdefault((topic, partition), []).append(offset)
        found: dict[tuple[str, int, int], Head] = {}
        until_s = self._clock.monotonic() + _HEADS_TIMEOUT_S
        # Stores that are not at one place of a partition are rare: their places are read in one round each.
        while wanted and self._clock.monotonic() < until_s:
            first = {key: offsets.pop() for key, offsets in wanted.items()}
            wanted = {key: offsets for key, offsets in wanted.items() if offsets}
            found |= self._round(first, ends, until_s)
        return found

    def close(self) -> None:
        """End the connection to the brokers, if one was made."""
        if self._kept is not None:
            self._kept.close()

    def _round(self, places: dict[tuple[str, int], int], ends: Offsets, until_s: float) -> Heads:
        consumer = self._consumer()
        found: dict[tuple[str, int, int], Head] = {}
        left = dict(places)
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in places.items()])
        try:
            while left and self._clock.monotonic() < until_s:
                for message in consumer.consume(_MOST, timeout=_TURN_S):
                    key = (message.topic() or "", message.partition() or 0)
                    offset = left.get(key)
                    head = _head(message, ends.get(key[0], {}).get(key[1], 0))
                    if offset is not None and head is not None:
                        del left[key]
                        found[(*key, offset)] = head
        finally:
            with suppress(KafkaException):
                consumer.unassign()
        return found

    def _consumer(self) -> Consumer:
        if self._kept is None:
            config: dict[str, Any] = reader_config(self._settings) | {
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": _FETCH_BYTES,
                "queued.min.messages": 1,
                "queued.max.messages.kbytes": 1024,
            }
            self._kept = Consumer(config)
        return self._kept


def _head(message: Message, end: int) -> Head | None:
    """None for a message that says nothing of its partition: a passing error."""
    error = message.error()
    offset = message.offset() or 0
    if error is not None:
        return Head(end, None) if error.code() == KafkaError._PARTITION_EOF else None
    key, value = message.key(), message.value()
    held = value if isinstance(value, bytes) else None
    size = len(held or b"") + (len(key) if isinstance(key, bytes) else 0)
    time_ms = committed_ms(held)
    return Head(offset, message.timestamp()[1] if time_ms is None else time_ms, size)
