"""Reads table topics as they grow, for people: ``cdc events``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from cdc.settings import LogSettings
from cdc.wire.events import Record
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted import log_error
from connectors.kafka.passing_errors import LEADERLESS

_BATCH = 500
_POLL_S = 0.2


def follow(
    settings: LogSettings, partitions: Mapping[str, int], *, from_beginning: bool, until_caught_up: bool
) -> Iterator[list[Record]]:
    """Batches of records of these topics (topic -> partition count), from their end or their beginning.

    ``until_caught_up``: stop at the ends as they are at the call. Otherwise for ever. Records of one partition
    come in order. A batch may be empty. LogError when the broker says an error.
    """
    ends = TopicAdmin(settings).end_offsets(partitions)
    consumer = Consumer(reader_config(settings))
    try:
        consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING if from_beginning else end)
                for topic, parts in ends.items()
                for partition, end in parts.items()
            ]
        )
        left = {(topic, partition) for topic, parts in ends.items() for partition, end in parts.items() if end}
        while left or not until_caught_up:
            batch = []
            for message in consumer.consume(_BATCH, timeout=_POLL_S):
                topic, partition, error = message.topic() or "", message.partition() or 0, message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    # A replica that is read instead of the leader shows its last records a little later.
                    if (message.offset() or 0) >= ends[topic][partition]:
                        left.discard((topic, partition))
                elif error is not None and error.code() not in LEADERLESS:
                    raise log_error(error, f"reading {topic}", settings, topic)
                elif error is None:
                    batch.append(_record(message))
            yield batch
    finally:
        consumer.close()


def _record(message: Message) -> Record:
    headers: Any = message.headers() or ()
    return Record(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers={name: text for name, value in headers if (text := _bytes(value)) is not None},
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
