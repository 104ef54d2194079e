"""A snapshot worker's way into Kafka: rows in bulk, beside other writers of the same partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition, murmur2

from cdc.process.errors import CdcError, LogError
from cdc.record.ports import Headers
from cdc.settings.model import LogSettings
from connectors.kafka.clients import producer_config, reader_config
from connectors.kafka.compacted_topic import bounds, known_partitions, read_on
from connectors.kafka.dead_letters import Oversized, refusal

_FULL_WAIT_S = 0.02


class BulkLog:
    """Records of one of several writers of a partition. Implements :class:`snapshot.source.ports.RowLog`.

    Offsets are of no use to such a writer, so only failures are reported, and an empty queue without one means
    that all is stored: what :meth:`acked` counts is what a :meth:`flush` has seen out.
    """

    def __init__(
        self,
        settings: LogSettings,
        *,
        memory_limit: int = 64 * 1024**2,
        oversized: Oversized | None = None,
        **more: Any,
    ) -> None:
        self._oversized = oversized
        self._settings = settings
        self._failure: CdcError | None = None
        self._produced = 0
        self._acked = 0
        config = producer_config(settings) | {
            "queue.buffering.max.kbytes": max(1024, memory_limit // 1024),
            "linger.ms": 50,
            "on_delivery": self._delivered,
            "delivery.report.only.error": True,
            **more,
        }
        self._producer = Producer(config)

    def produce(self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition, None, None, 0, list(headers))
                break
            except BufferError:
                self.poll(_FULL_WAIT_S)
            except KafkaException as error:
                self._failure = refusal(error.args[0], topic, key, self._settings)
                raise self._failure from None
        self._produced += 1

    def rows(self, topic: str, partition_count: int, pairs: Iterable[tuple[bytes, bytes]], headers: Headers) -> None:
        """Hand over many rows that share their headers. The partition is each key's own."""
        if self._oversized is not None and self._oversized.concerns(topic):
            pairs = self._fitting(self._oversized, topic, partition_count, pairs, headers)
        produce, fixed = self._producer.produce, list(headers)
        for key, value in pairs:
            while True:
                try:
                    produce(topic, value, key, murmur2(key, partition_count), None, None, 0, fixed)  # type: ignore[arg-type]
                    break
                except BufferError:
                    self.poll(_FULL_WAIT_S)
                except KafkaException as error:
                    self._failure = refusal(error.args[0], topic, key, self._settings)
                    raise self._failure from None
            self._produced += 1

    @staticmethod
    def _fitting(
        oversized: Oversized, topic: str, partition_count: int, pairs: Iterable[tuple[bytes, bytes]], headers: Headers
    ) -> Iterator[tuple[bytes, bytes]]:
        """Those of the rows that the topic takes. The others are put aside."""
        for key, value in pairs:
            if oversized.too_large(topic, key, value):
                oversized.put_aside(topic, murmur2(key, partition_count), [(key, value, headers)])
            else:
                yield key, value

    def acked(self) -> int:
        """How many records the brokers have, as of the last :meth:`flush`. PoisonError or LogError where one was
        refused."""
        self._raise_failure()
        return self._acked

    def poll(self, timeout_s: float) -> None:
        """Take the brokers' answers for at most ``timeout_s``. PoisonError or LogError where they refuse a record."""
        self._producer.poll(timeout_s)
        self._raise_failure()

    def flush(self, timeout_s: float) -> None:
        left = self._producer.flush(timeout_s)
        self._raise_failure()
        if left:
            raise LogError(
                f"{left} records unanswered by Kafka at {self._settings.bootstrap_servers} after {timeout_s:g} s",
                hint="check that the brokers run",
            )
        self._acked = self._produced

    def abort(self) -> None:
        """Drop what is queued or in flight, for a writer that may not go on."""
        self._failure = self._failure or LogError("the writer was told to stop")
        self._producer.purge()
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            key = message.key()
            named = key if isinstance(key, bytes) else None
            self._failure = refusal(error, message.topic() or "", named, self._settings)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


_SMALL = {"queued.max.messages.kbytes": 8192, "fetch.max.bytes": 8 * 1024**2}
"""Read beside the stream, so no more than a few megabytes are fetched ahead, however large the records are."""


def read_small(
    settings: LogSettings, topic: str, most: int, *, waiting: Callable[[], None] | None = None
) -> Iterator[Message] | None:
    """The records of all partitions, one partition after the other. None where there may be more than ``most``.

    ``waiting``: as for :class:`connectors.kafka.compacted_topic.KafkaCompactedTopic`. Raises LogError,
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
