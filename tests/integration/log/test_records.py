"""The reader of table topics on a real broker: gaps, markers, going on, going back, and what is gone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import TopicError
from cdc.settings.model import LogSettings
from cdc.wire.records import BEGINNING, RecordColumns, Span
from connectors.kafka.clients import fetching_config
from connectors.kafka.compacted_topic import read_range
from connectors.kafka.record_reader import KafkaReading, KafkaRecords
from tests.conftest import Stack

OURS: Any = [("pos", b"0" * 32), ("op", b"u"), ("ver", b"1")]


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    """A topic of two partitions."""
    name = f"{topic_prefix}.records"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


@pytest.fixture
def reader(kafka: str) -> Iterator[KafkaRecords]:
    config = fetching_config(LogSettings(bootstrap_servers=kafka))
    with closing(KafkaReading(tuple(sorted(config.items()))).open()) as opened:
        yield opened


def fill(kafka: str, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    """In order: without idempotence the client sends a batch again behind its successors when the leader of a
    topic made a moment ago is not ready for the first one."""
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, b"k%d" % number, partition, headers=OURS)
    assert producer.flush(30) == 0


def numbers(lots: Iterator[RecordColumns], partition: int = 0) -> list[int]:
    return [int(value or b"") for lot in lots if lot.partition == partition for value in lot.values]


def gaps(found: list[int], count: int) -> list[tuple[int, int]]:
    """Where the numbers from 0 to count do not follow each other: few even where thousands differ."""
    return [(before, after) for before, after in pairwise([-1, *found, count]) if after != before + 1]


def test_each_read_goes_on_where_the_last_one_ended(kafka: str, topic: str, reader: KafkaRecords) -> None:
    fill(kafka, topic, 50)
    found = [numbers(reader.read([Span(topic, 0, start, start + 10)])) for start in range(0, 50, 10)]
    assert found == [list(range(start, start + 10)) for start in range(0, 50, 10)]
    fill(kafka, topic, 5, first=50)
    assert numbers(reader.read([Span(topic, 0, 50, 55)])) == list(range(50, 55))


@pytest.mark.slow
def test_h102_a_paused_partition_is_read_from_another_offset(kafka: str, topic: str, reader: KafkaRecords) -> None:
    """What runs ahead of a stretch is paused, and the client keeps that in mind over a new assignment."""
    fill(kafka, topic, 30)
    value = bytes(1_000_000)
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True, "message.max.bytes": 2_000_000})
    for _ in range(60):
        producer.produce(topic, value, b"k", 1, headers=OURS)
        producer.poll(0)
    assert producer.flush(30) == 0
    lots = reader.read([Span(topic, 0, 0, 30), Span(topic, 1, 0, 2)])
    assert sum(len(lot.offsets) for lot in lots) == 32
    fill(kafka, topic, 5, first=30)
    while not reader._places[topic, 1].paused:
        assert sum(len(lot.offsets) for lot in reader.read([Span(topic, 0, 0, 35)])) == 35
        reader._places[topic, 0].upto = -1
    assert sum(len(lot.offsets) for lot in reader.read([Span(topic, 1, 0, 60)])) == 60


@pytest.mark.slow
def test_a_broker_that_stood_still_leaves_its_topics_known(kafka: str, topic: str, stack: Stack) -> None:
    """Past its session with the controller (9 s) it is fenced for a moment, and no partition has a leader."""
    fill(kafka, topic, 3)
    settings = LogSettings(bootstrap_servers=kafka)

    def read(_turn: int) -> int:
        return len(list(read_range(settings, topic, 0)))

    with ThreadPoolExecutor(16) as readers:
        with stack.paused("kafka"):
            SYSTEM_CLOCK.sleep(10)
            asked_meanwhile = readers.map(read, range(16))
            SYSTEM_CLOCK.sleep(1)
        assert list(asked_meanwhile) == [3] * 16
        assert list(readers.map(read, range(80))) == [3] * 80
    with pytest.raises(TopicError, match="does not exist"):
        list(read_range(settings, f"{topic}.never", 0))
    with pytest.raises(TopicError, match="does not exist"):
        list(read_range(settings, topic, 2))


def test_a_read_may_go_back_or_ahead(kafka: str, topic: str, reader: KafkaRecords) -> None:
    fill(kafka, topic, 30)
    assert numbers(reader.read([Span(topic, 0, 20, 30)])) == list(range(20, 30))
    assert numbers(reader.read([Span(topic, 0, BEGINNING, 5)])) == list(range(5))
    assert numbers(reader.read([Span(topic, 0, 9, 12)])) == [9, 10, 11]


def test_a_reader_that_was_given_up_half_way_skips_nothing(kafka: str, topic: str, reader: KafkaRecords) -> None:
    fill(kafka, topic, 20_000)
    span = Span(topic, 0, 0, 20_000)
    some = next(reader.read([span]))
    assert 0 < len(some.offsets) <= 20_000
    lots = list(reader.read([span]))
    assert gaps([offset for lot in lots for offset in lot.offsets], 20_000) == []
    assert gaps(numbers(iter(lots)), 20_000) == []


def test_partitions_are_read_together_each_in_order(kafka: str, topic: str, reader: KafkaRecords) -> None:
    for partition in (0, 1):
        fill(kafka, topic, 3000, partition)
    lots = list(reader.read([Span(topic, 0, 0, 3000), Span(topic, 1, 100, 2000)]))
    assert numbers(iter(lots)) == list(range(3000))
    assert numbers(iter(lots), 1) == list(range(100, 2000))
    assert numbers(reader.read([Span(topic, 1, 2000, 3000)]), 1) == list(range(2000, 3000))


def test_h59_a_span_that_ends_with_aborted_records_ends(
    kafka: str, topic: str, reader: KafkaRecords, topic_prefix: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic_prefix})
    producer.init_transactions(30)
    for number, keep in enumerate((True, False, False)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, b"k", 0, headers=OURS)
        producer.flush(30)
        if keep:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    assert numbers(reader.read([Span(topic, 0, 0, 6)])) == [0]
    fill(kafka, topic, 2, first=7)
    assert numbers(reader.read([Span(topic, 0, 6, 8)])) == [7, 8]


def test_h63_records_that_are_gone_are_an_error_and_not_a_gap(kafka: str, topic: str, reader: KafkaRecords) -> None:
    fill(kafka, topic, 20)
    admin = AdminClient({"bootstrap.servers": kafka})
    [deletion] = admin.delete_records([TopicPartition(topic, 0, 10)]).values()
    deletion.result()
    with pytest.raises(TopicError, match="records are gone"):
        list(reader.read([Span(topic, 0, 5, 20)]))
    assert numbers(reader.read([Span(topic, 0, BEGINNING, 20)])) == list(range(10, 20))


def test_headers_are_columns_and_others_are_kept_whole(kafka: str, topic: str, reader: KafkaRecords) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    made: list[Any] = [
        OURS, None, [*OURS, ("trace", None)], [OURS[1], OURS[0], OURS[2]], [("op", b"c"), *OURS], [("pos", None)],
        [*OURS, ("at", b"7")],
    ]  # fmt: skip
    for headers in made:
        producer.produce(topic, b"1", b"k", 0, headers=headers)
    producer.flush(30)
    lots = list(reader.read([Span(topic, 0, 0, len(made))]))
    op = [value for lot in lots for value in lot.op]
    ver = [value for lot in lots for value in lot.ver]
    assert op == [b"u", None, b"u", b"u", b"u", None, b"u"]
    assert ver == [b"1", None, b"1", b"1", b"1", None, b"1"]
    assert [value for lot in lots for value in lot.at or [None] * len(lot.offsets)] == [*[None] * 6, b"7"]
    kept = [headers for lot in lots for headers in lot.headers.values()]
    assert kept == [tuple(headers or ()) for headers in made[1:-1]]
