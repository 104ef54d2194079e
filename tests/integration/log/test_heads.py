"""The first records that a store lacks, on a real broker: their commit times, gaps, and what does not come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.figures.measures import Head
from cdc.process.clock import SYSTEM_CLOCK
from cdc.settings.model import LogSettings
from connectors.kafka.topic_ends import KafkaHeads
from tests.waiting import wait_until


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    """Ten changes, committed at 1000, 1001, … ms, then a tombstone, in the first of two partitions."""
    name = f"{topic_prefix}.heads"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for number in range(10):
        value = orjson.dumps({"after": {"id": number}, "source": {"name": "s", "ts_ms": 1000 + number}})
        producer.produce(name, value, b"k", 0)
    producer.produce(name, None, b"k", 0)
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def heads(kafka: str) -> Iterator[KafkaHeads]:
    with closing(KafkaHeads(LogSettings(bootstrap_servers=kafka))) as opened:
        yield opened


@pytest.mark.slow
def test_the_first_record_comes_with_its_commit_time(topic: str, heads: KafkaHeads) -> None:
    places = [(topic, 0, 0), (topic, 0, 7), (topic, 0, 11), (topic, 1, 0)]
    found: dict[tuple[str, int, int], Head] = {}

    def read() -> bool:
        """What does not come in a second comes at the next look."""
        found.update(heads.read([place for place in places if place not in found], {topic: {0: 11, 1: 0}}))
        return len(found) == len(places)

    wait_until(read, 60, lambda: str(found))
    first, later = found[topic, 0, 0], found[topic, 0, 7]
    assert (first.offset, first.committed_ms, later.offset, later.committed_ms) == (0, 1000, 7, 1007)
    assert found[topic, 0, 11] == Head(11, None), "its end"
    assert found[topic, 1, 0] == Head(0, None)
    assert heads.read([], {}) == {}


def test_a_tombstone_is_as_old_as_the_log_has_it(topic: str, heads: KafkaHeads) -> None:
    place, found = (topic, 0, 10), dict[tuple[str, int, int], Head]()

    def read() -> bool:
        found.update(heads.read([place], {topic: {0: 11}}))
        return place in found

    wait_until(read, 60)
    head = found[place]
    assert head.committed_ms is not None
    assert abs(head.committed_ms - SYSTEM_CLOCK.now_ns() / 1e6) < 600_000


def test_a_broker_that_is_away_leaves_all_unknown() -> None:
    with closing(KafkaHeads(LogSettings(bootstrap_servers="127.0.0.1:1"))) as heads:
        begun_s = SYSTEM_CLOCK.monotonic()
        assert heads.read([("t", 0, 0), ("t", 0, 5)], {"t": {0: 9}}) == {}
        assert SYSTEM_CLOCK.monotonic() - begun_s < 10
