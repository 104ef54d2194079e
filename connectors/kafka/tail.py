"""The end of topics, read at a start: how far a partition is ahead of the newest progress record (H75, H7, H8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.errors import LogError, TopicError
from cdc.position import Position
from cdc.progress import PROGRESS_KEY, Offsets, Progress
from cdc.settings import LogSettings
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted import log_error, read_range

_TIMEOUT_S = 30.0
_LAST_RECORDS = 200
"""Looked at first: streamed records of a partition are in order, so the newest is near its end."""


Found = Mapping[tuple[str, int], Position]


class Tail(NamedTuple):
    """What a partition holds from ``low`` (a progress record's offset) to ``end`` (its next offset)."""

    topic: str
    partition: int
    low: int
    end: int


def last_progress(settings: LogSettings, topic: str, end: int) -> Progress | None:
    """The newest progress record of a topic that ends at ``end``; None when there is none."""
    span = _LAST_RECORDS
    while True:
        low = max(0, end - span)
        newest = None
        for message in read_range(settings, topic, 0, low):
            value = message.value()
            if message.key() == PROGRESS_KEY and isinstance(value, bytes):
                newest = value
        if newest is not None:
            return Progress.from_json(newest)
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


def newest_positions(settings: LogSettings, tails: list[Tail]) -> Found:
    """(topic, partition) -> the last streamed position in each tail that has one.

    Raises LogError when the broker falls silent, TopicError when a tail is not ours to read.
    """
    wanted = [tail for tail in tails if tail.end > tail.low]
    found = _read(settings, [tail._replace(low=max(tail.low, tail.end - _LAST_RECORDS)) for tail in wanted])
    # Rows of a snapshot may stand last; then the whole tail has to be looked at.
    rest = [t for t in wanted if (t.topic, t.partition) not in found and t.end - t.low > _LAST_RECORDS]
    return {**found, **_read(settings, rest)}


def _read(settings: LogSettings, tails: list[Tail]) -> dict[tuple[str, int], Position]:
    newest: dict[tuple[str, int], Position] = {}
    if not tails:
        return newest
    left = {(tail.topic, tail.partition): tail.end for tail in tails}
    consumer = Consumer(reader_config(settings) | {"auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(tail.topic, tail.partition, tail.low) for tail in tails])
        while left:
            first = consumer.poll(_TIMEOUT_S)
            if first is None:
                raise LogError(
                    f"reading the topics' ends: Kafka sent nothing for {_TIMEOUT_S:g} s", hint="check the brokers"
                )
            for message in (first, *consumer.consume(10_000, timeout=0)):
                _look(message, newest, left, settings)
    except KafkaException as error:
        raise log_error(error.args[0], "reading the topics' ends", settings) from None
    finally:
        consumer.close()
    return newest


def _look(
    message: Message, newest: dict[tuple[str, int], Position], left: dict[tuple[str, int], int], settings: LogSettings
) -> None:
    where = (message.topic() or "", message.partition() or 0)
    error = message.error()
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise log_error(error, f"reading the end of {where[0]}", settings)
        left.pop(where, None)
        return
    position = _position(message)
    if position is not None and position.streamed:
        # The last one, not the greatest: should a stale record ever stand behind newer ones (H75, H76), what lies
        # above it is sent again and the log's last word on each key is right once more.
        newest[where] = position
    if (message.offset() or 0) + 1 >= left.get(where, 0):
        left.pop(where, None)


def _position(message: Message) -> Position | None:
    headers = message.headers() or ()
    for name, value in headers.items() if isinstance(headers, dict) else headers:
        if name == "pos" and isinstance(value, bytes):
            try:
                return Position.parse(value.decode("ascii"))
            except ValueError:
                break
    raise TopicError(
        f"the record at {message.topic()} partition {message.partition()} offset {message.offset()} has no position",
        hint="somebody else writes to the topic; capture cannot tell what it holds",
    )
