"""The first records behind some places of partitions: what a store lacks first, for its figures."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.measures import Head, Heads
from cdc.progress import Offsets
from cdc.settings import LogSettings
from cdc.wire.commit_time import committed_ms
from connectors.kafka.clients import reader_config

_TIMEOUT_S = 1.0
_TURN_S = 0.05
_FETCH_BYTES = 64 * 1024
_MOST = 500


class KafkaHeads:
    """:class:`spark.ports.HeadReader`. One client, kept from the first question on. One thread at a time.

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
        until_s = self._clock.monotonic() + _TIMEOUT_S
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
