"""A table's topic read whole, if it is small."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, Message, TopicPartition

from cdc.settings import LogSettings
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted import bounds, known_partitions, read_on

_SMALL = {"queued.max.messages.kbytes": 8192, "fetch.max.bytes": 8 * 1024**2}
"""Read beside the stream, so no more than a few megabytes are fetched ahead, however large the records are."""


def read_small(
    settings: LogSettings, topic: str, most: int, *, waiting: Callable[[], None] | None = None
) -> Iterator[Message] | None:
    """The records of all partitions, one partition after the other. None where there may be more than ``most``.

    ``waiting``: as for :class:`connectors.kafka.compacted.KafkaCompactedTopic`. Raises LogError,
    TopicError where there is no such topic.
    """
    consumer = Consumer(reader_config(settings) | _SMALL)
    try:
        partitions = known_partitions(consumer, topic, settings, waiting)
        ranges = [bounds(consumer, TopicPartition(topic, each), settings, waiting) for each in partitions]
    except BaseException:
        consumer.close()
        raise
    if sum(end - first for first, end in ranges) > most:
        consumer.close()
        return None
    return _records(consumer, settings, topic, partitions, waiting)


def _records(
    consumer: Consumer, settings: LogSettings, topic: str, partitions: list[int], waiting: Callable[[], None] | None
) -> Iterator[Message]:
    try:
        for partition in partitions:
            yield from read_on(consumer, settings, topic, partition, waiting=waiting)
    finally:
        consumer.close()
