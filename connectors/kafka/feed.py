"""The progress topic and the dead letters', each followed by a consumer that stays open."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from cdc.dead import DeadLetter
from cdc.errors import DamagedError
from cdc.progress import PROGRESS_KEY, Progress
from cdc.settings import LogSettings
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted import bounds, log_error
from connectors.kafka.dead_letters import letter_of

log = logging.getLogger(__name__)
_MOST = 1000
_PASSING = (
    KafkaError._PARTITION_EOF,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
"""Errors that the client recovers from by itself."""


class _Feed:
    """A topic of one partition, from an offset on, as it grows. One thread at a time."""

    most = _MOST
    """Records of one look."""

    def __init__(self, settings: LogSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._consumer = Consumer(reader_config(settings) | {"fetch.wait.max.ms": 500})
        self._consumer.assign([TopicPartition(topic, 0, self._start())])

    def _start(self) -> int:
        return OFFSET_BEGINNING

    def messages(self, timeout_s: float) -> Iterator[Message]:
        """Records since the last call, in order. Waits for the first at most so long. LogError when it fails."""
        first = self._consumer.poll(timeout_s)
        for message in [first, *self._consumer.consume(self.most, timeout=0)] if first is not None else ():
            error = message.error()
            if error is not None and error.code() not in _PASSING:
                raise log_error(error, f"following {self._topic}", self._settings)
            if error is None:
                yield message

    def close(self) -> None:
        self._consumer.close()


class ProgressTopic(_Feed):
    """Every progress record from the topic's beginning on, as it comes."""

    # One of them may have a megabyte.
    most = 20
    written_ms = 0
    """The timestamp of the newest record so far, since 1970."""

    def poll(self, timeout_s: float) -> list[Progress]:
        """Records since the last call."""
        found = []
        for message in self.messages(timeout_s):
            value = message.value()
            try:
                if message.key() == PROGRESS_KEY and isinstance(value, bytes):
                    found.append(Progress.from_json(value))
                    self.written_ms = message.timestamp()[1]
            except DamagedError:
                # Not one of ours: nothing is proven by it, and nothing is lost without it.
                log.warning("progress_unreadable", extra={"topic": self._topic, "offset": message.offset()})
        return found


class ShardedProgress:
    """The progress records of several shards of capture, each with the name of its shard.

    ``topics``: topic -> shard. Those of one shard come in their order. One thread at a time.
    """

    def __init__(self, settings: LogSettings, topics: Mapping[str, str]) -> None:
        self._settings = settings
        self._shards = dict(topics)
        self._consumer = Consumer(reader_config(settings) | {"fetch.wait.max.ms": 500})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in topics])

    def poll(self, timeout_s: float) -> list[Progress]:
        """Records since the last call. Waits for the first at most so long. LogError when it fails."""
        first = self._consumer.poll(timeout_s)
        rest = self._consumer.consume(ProgressTopic.most, timeout=0) if first is not None else ()
        found = []
        for message in [first, *rest] if first is not None else ():
            error, topic, value = message.error(), message.topic() or "", message.value()
            if error is not None and error.code() not in _PASSING:
                raise log_error(error, f"following {topic or 'the progress topics'}", self._settings)
            try:
                if error is None and message.key() == PROGRESS_KEY and isinstance(value, bytes):
                    found.append(replace(Progress.from_json(value), shard=self._shards[topic]))
            except DamagedError:
                log.warning("progress_unreadable", extra={"topic": topic, "offset": message.offset()})
        return found

    def close(self) -> None:
        """End the connection to the brokers."""
        self._consumer.close()


class DeadLetterFeed(_Feed):
    """Letters, orders and answers, from the topic's end at the opening on."""

    def poll(self, timeout_s: float) -> list[DeadLetter]:
        """Those since the last call."""
        return [letter for message in self.messages(timeout_s) if (letter := letter_of(message)) is not None]

    def _start(self) -> int:
        # As a number: the end would be looked up later, and what is written until then would be missed.
        return bounds(self._consumer, TopicPartition(self._topic, 0), self._settings)[1]


class CompactedFeed:
    """A compacted topic of one partition from its beginning on, record by record as it comes. One thread at a time.
    Implements :class:`snapshot.edges.Feed`."""

    def __init__(self, settings: LogSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self.caught_up = False
        """Whether the topic's end has been seen once."""
        self._consumer = Consumer(reader_config(settings) | {"fetch.wait.max.ms": 500})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def poll(self, timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        """Records since the last call, in order. Waits for the first at most so long. LogError when it fails."""
        found = []
        first = self._consumer.poll(timeout_s)
        for message in [first, *self._consumer.consume(_MOST, timeout=0)] if first is not None else ():
            error, key, value = message.error(), message.key(), message.value()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self.caught_up = True
            elif error is not None and error.code() not in _PASSING:
                raise log_error(error, f"following {self._topic}", self._settings)
            elif error is None and isinstance(key, bytes):
                found.append((key, value if isinstance(value, bytes) else None))
        return found

    def close(self) -> None:
        self._consumer.close()
