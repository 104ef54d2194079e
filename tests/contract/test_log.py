"""The doubles of the log's ports keep the promises of the real ones: one suite over both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.process.errors import LogError
from cdc.record.ports import CompactedTopic, Record, StreamLog, Topics
from cdc.record.position import CHUNK_SEQ, Position
from cdc.settings.model import LogSettings
from connectors.kafka import compacted_topic as compacted
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.stream_log import KafkaStreamLog
from tests.memory_log import MemoryBroker, MemoryCompactedTopic, MemoryStreamLog, MemoryTopics
from tests.waiting import wait_until

LANES = 2


@dataclass(frozen=True)
class Log:
    """A log on an empty topic of two partitions, and what else can be done to that topic."""

    log: StreamLog
    topics: Topics
    topic: str
    held: Callable[[int], list[bytes]]
    """The keys in a partition, in order."""
    intrude: Callable[[], object]
    """Another writer appends a record to partition 0."""


@pytest.fixture(params=["memory", "kafka"])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    if request.param == "memory":
        broker = MemoryBroker({"t": LANES})
        yield Log(
            MemoryStreamLog(broker),
            MemoryTopics(broker),
            "t",
            lambda partition: [record.key for record in broker.of("t", partition)],
            partial(broker.append, "t", 0, b"intruder", b""),
        )
        return
    servers, topic = request.getfixturevalue("kafka"), f"{request.getfixturevalue('topic_prefix')}.public.t"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, LANES, 1)])[topic].result()
    wait_until(lambda: compacted.stands(admin.list_topics(topic, timeout=10).topics.get(topic), LANES - 1))
    settings = LogSettings(bootstrap_servers=servers)

    def intrude() -> None:
        other = Producer({"bootstrap.servers": servers})
        other.produce(topic, b"", b"intruder", 0)
        other.flush(30)

    real = KafkaStreamLog(settings, memory_limit=64 << 20)

    def held(partition: int) -> list[bytes]:
        return [message.key() or b"" for message in compacted.read_range(settings, topic, partition)]

    yield Log(real, TopicAdmin(settings), topic, held, intrude)
    real.close()


def record(lane: int, key: bytes, lsn: int, seq: int = 1) -> Record:
    return lane, key, b"{}", [("pos", Position(1, lsn, seq).text().encode()), ("op", b"c"), ("ver", b"1")]


def test_h70_groups_are_numbered_and_acked_ones_stored_in_order(log: Log) -> None:
    base = log.log.open(log.topic, [0] * LANES)
    first = log.log.produce([record(base, b"a", 8), record(base + 1, b"b", 8, 2), record(base, b"c", 8, 3)])
    second = log.log.produce([record(base, b"d", 16)])
    assert second > first > 0
    assert log.log.newest == second
    wait_until(lambda: log.log.acked(0.05) >= second)
    assert [log.held(0), log.held(1)] == [[b"a", b"c", b"d"], [b"b"]]
    assert log.log.offsets()[log.topic] == {0: 3, 1: 1}


def test_h75_positions_ahead_of_progress_are_streamed_ones(log: Log) -> None:
    base = log.log.open(log.topic, [0] * LANES)
    log.log.produce([record(base, b"a", 800), record(base + 1, b"b", 900, 2), record(base + 1, b"c", 1600, CHUNK_SEQ)])
    wait_until(lambda: log.log.acked(0.05) == log.log.newest)
    assert log.log.ahead(900) == {log.topic: {1: Position(1, 900, 2).text()}}
    assert log.log.ahead(901) == {}


def test_h76_nothing_is_acked_behind_a_record_of_somebody_else(log: Log) -> None:
    base = log.log.open(log.topic, [0] * LANES)
    log.log.produce([record(base, b"a", 8), record(base + 1, b"b", 8, 2)])
    wait_until(lambda: log.log.acked(0.05) == log.log.newest)
    log.intrude()
    before = log.log.acked()

    def refused() -> bool:
        try:
            log.log.produce([record(base, b"c", 16)])
            return log.log.acked(0.05) > before
        except LogError:
            return True

    wait_until(refused)
    with pytest.raises(LogError, match="somebody else writes"):
        log.log.acked()
    assert log.log.offsets()[log.topic][0] == 1


def test_topics_are_counted_and_end_behind_their_last_record(log: Log) -> None:
    assert log.topics.counts([log.topic, "never.made"]) == {log.topic: LANES}
    assert log.topics.end_offsets({log.topic: LANES}) == {log.topic: {0: 0, 1: 0}}
    log.intrude()
    assert log.topics.end_offsets({log.topic: LANES}) == {log.topic: {0: 1, 1: 0}}


@pytest.fixture(params=["memory", "kafka"])
def topic(request: pytest.FixtureRequest) -> CompactedTopic:
    if request.param == "memory":
        return MemoryCompactedTopic()
    servers, name = request.getfixturevalue("kafka"), f"{request.getfixturevalue('topic_prefix')}.state"
    admin = AdminClient({"bootstrap.servers": servers})
    config = {"cleanup.policy": "compact"}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result()
    wait_until(lambda: compacted.stands(admin.list_topics(name, timeout=10).topics.get(name), 0))
    return compacted.KafkaCompactedTopic(LogSettings(bootstrap_servers=servers), name)


def test_a_compacted_topic_holds_the_newest_of_each_key(topic: CompactedTopic) -> None:
    assert newest(topic) == {}
    topic.write([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    assert newest(topic) == {b"a": b"2", b"b": b"1"}
    topic.write([(b"b", None)])
    topic.write([])
    assert newest(topic) == {b"a": b"2"}


def newest(topic: CompactedTopic) -> Mapping[bytes, bytes]:
    return dict(topic.read())
