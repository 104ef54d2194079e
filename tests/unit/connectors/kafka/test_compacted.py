"""Small compacted topics, when no broker answers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cdc.settings import LogSettings
from connectors.kafka.compacted import KafkaCompactedTopic, bounds, leaderless, stands


class _GivenUp(Exception):
    pass


@dataclass(frozen=True)
class _Topic:
    error: object
    partitions: Mapping[int, object]


def test_a_running_captures_notes_wait_for_the_brokers() -> None:
    asked = 0

    def waiting() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise _GivenUp

    # Nobody listens on port 1.
    topic = KafkaCompactedTopic(LogSettings(bootstrap_servers="127.0.0.1:1"), "shop.state", waiting=waiting)
    for turns in (2, 3):
        with pytest.raises(_GivenUp):
            topic.write([(b"key", b"value")])
        assert asked == turns
    with pytest.raises(_GivenUp):
        topic.read()


def test_a_broker_that_just_came_back_has_no_leaders_yet() -> None:
    # The last as librdkafka words it when none is known at all (tests.faults stalled_broker, seed 0).
    none_found = KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")
    newer = KafkaError(KafkaError.FENCED_LEADER_EPOCH)  # pipeline_kills, seed 0
    # A broker that came back to a leader with one replica less (test_in_sync).
    behind = KafkaError(KafkaError.OFFSET_NOT_AVAILABLE)
    assert all(leaderless(KafkaException(error)) for error in (none_found, newer, behind))
    assert not leaderless(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))


def test_a_partition_without_a_leader_is_there_all_the_same() -> None:
    held = _Topic(error=None, partitions={0: KafkaError(KafkaError.LEADER_NOT_AVAILABLE)})
    unknown = _Topic(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
    assert stands(held, 0)
    assert not stands(held, 1)
    assert not stands(unknown, 0)
    assert not stands(None, 0)


class _Brokers:
    """Brokers that know no partition at first, and answer nothing when asked whether there is one."""

    def __init__(self, silence: int) -> None:
        self.silence = silence
        self.asked = 0

    def get_watermark_offsets(self, where: TopicPartition, timeout: float) -> tuple[int, int]:
        if self.silence:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return 3, 7

    def list_topics(self, topic: str, timeout: float) -> object:
        self.asked += 1
        self.silence -= 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))


def test_without_an_answer_a_partition_may_be_there() -> None:
    """Unknown is not absent: the brokers are asked again until one answers."""
    brokers = _Brokers(silence=2)
    settings = LogSettings(bootstrap_servers="127.0.0.1:1")
    found = bounds(cast("Consumer", brokers), TopicPartition("shop.progress", 0), settings)
    assert (found, brokers.asked) == ((3, 7), 2)


def test_h449_a_closed_consumer_goes_without_the_collector() -> None:
    """``cdc view run`` looks at a topic every ten seconds, and its collector does not come for hours."""
    brokers = _Brokers(silence=1)
    left, settings = weakref.ref(brokers), LogSettings(bootstrap_servers="127.0.0.1:1")
    gc.disable()
    try:
        assert bounds(cast("Consumer", brokers), TopicPartition("shop.views", 0), settings) == (3, 7)
        del brokers
        assert left() is None
    finally:
        gc.enable()
