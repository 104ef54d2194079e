"""The double of the log that frames read keeps the promises of the real one: one suite over both."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Producer

from cdc.capture.topic_specs import pipeline_topic_specs, table_topic_spec
from cdc.process.errors import UsageError
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.schema import TableSchema
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName, progress_topic, schema_topic, state_topic
from cdc.settings.model import LogSettings
from cdc.wire.records import BEGINNING, RecordColumns, Span
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.spark_log.frame_log import KafkaConnect
from spark.frames.options import FrameOptions
from spark.frames.ports import Connect
from tests.contract.topics import ORDERS, column, shape
from tests.memory_frames import MemoryConnect, MemoryFrameLog

PARTITIONS = 2
BEGIN_MS = 1_790_000_000_000
POS = b"0" * 32
ORDERS_TABLE, LINES_TABLE = TableName("public", "orders"), TableName("public", "lines")


@dataclass(frozen=True)
class Frames:
    """A pipeline ``shop`` of two tables without records, the first one with two versions of its shape."""

    connect: Connect
    options: FrameOptions
    shapes: tuple[TableSchema, ...]
    append: Callable[[int, str, int], None]
    """A record of the first table: partition, key, timestamp in ms behind :data:`BEGIN_MS`."""
    progress: Callable[[Progress], None]

    @property
    def topic(self) -> str:
        return self.shapes[0].topic


def shapes(pipeline: str) -> tuple[TableSchema, ...]:
    orders = replace(ORDERS, topic=f"{pipeline}.public.orders")
    lines = shape(column("id", "int8", key=1), table="lines", topic=f"{pipeline}.public.lines")
    return orders, replace(orders, version=2, columns=orders.columns[:2]), lines


@pytest.fixture(params=["memory", "kafka"])
def frames(request: pytest.FixtureRequest) -> Frames:
    if request.param == "memory":
        return memory_frames()
    servers, name = request.getfixturevalue("kafka"), request.getfixturevalue("topic_prefix")
    settings, made = LogSettings(bootstrap_servers=servers, partitions=PARTITIONS), shapes(name)
    admin = TopicAdmin(settings)
    tables = {str(one.table): one.topic for one in made}
    admin.create(
        [*pipeline_topic_specs(settings, name), *(table_topic_spec(settings, topic) for topic in tables.values())]
    )
    facts = admin.describe(tables.values())
    kept = {topic: {"id": one.topic_id, "partitions": PARTITIONS} for topic, one in facts.items()}
    state = TopicsState(cluster_id=admin.cluster_id(), topics=kept, tables=tables)
    KafkaCompactedTopic(settings, state_topic(name)).write([(state.key(), state.to_json())])
    KafkaCompactedTopic(settings, schema_topic(name)).write([(one.topic_key(), one.to_json()) for one in made])
    producer = Producer({"bootstrap.servers": servers})

    def append(partition: int, key: str, at_ms: int) -> None:
        headers: Any = [("pos", POS), ("op", b"c"), ("ver", b"1")]
        producer.produce(made[0].topic, b"{}", key, partition, timestamp=BEGIN_MS + at_ms, headers=headers)
        assert producer.flush(30) == 0

    def progress(record: Progress) -> None:
        KafkaCompactedTopic(settings, progress_topic(name)).write([(PROGRESS_KEY, record.to_json())])

    options = FrameOptions(servers=servers, pipeline=name, tables=("public.orders",))
    return Frames(KafkaConnect(), options, made, append, progress)


def memory_frames() -> Frames:
    made = shapes("shop")
    log = MemoryFrameLog(list(made), partitions=PARTITIONS)

    def append(partition: int, key: str, at_ms: int) -> None:
        offset = sum(lot.partition == partition for lot in log.lots)
        at, keys = [BEGIN_MS + at_ms], [key.encode()]
        log.lots.append(
            RecordColumns(made[0].topic, partition, [offset], at, [*keys], [b"{}"], [POS], [b"c"], [b"1"], headers={})
        )

    def progress(record: Progress) -> None:
        log.last = record

    options = FrameOptions(servers="", pipeline="shop", tables=("public.orders",))
    return Frames(MemoryConnect(log), options, made, append, progress)


def test_tables_are_found_by_name_and_by_pattern(frames: Frames) -> None:
    log = frames.connect.log(frames.options)
    found = log.find(["public.orders"])
    assert list(found.topics) == [ORDERS_TABLE]
    assert found.partitions == {frames.topic: PARTITIONS}
    one = found.topics[ORDERS_TABLE]
    assert (one.topic, bool(one.id), one.compaction_lag_ms > 0) == (frames.topic, True, True)
    assert list(log.find(["public.*"]).topics) == [LINES_TABLE, ORDERS_TABLE]
    assert list(log.find(["public.orders", "public.*"]).topics) == [ORDERS_TABLE, LINES_TABLE]


def test_a_table_that_is_not_there_is_refused_by_name(frames: Frames) -> None:
    with pytest.raises(UsageError, match=r"has no table public\.order$") as refused:
        frames.connect.log(frames.options).find(["public.order"])
    assert refused.value.hint == "did you mean public.orders?"


def test_all_versions_of_a_shape_come_older_ones_first(frames: Frames) -> None:
    log = frames.connect.log(frames.options)
    assert log.versions(ORDERS_TABLE) == list(frames.shapes[:2])
    assert log.versions(LINES_TABLE) == [frames.shapes[2]]
    assert log.versions(TableName("public", "none")) == []


def test_each_partition_ends_behind_its_last_record(frames: Frames) -> None:
    log = frames.connect.log(frames.options)
    assert log.ends({frames.topic: PARTITIONS}) == {frames.topic: {0: 0, 1: 0}}
    for key in "ab":
        frames.append(0, key, 0)
    assert log.ends({frames.topic: PARTITIONS}) == {frames.topic: {0: 2, 1: 0}}
    assert log.ends({}) == {}


def test_h169_a_time_is_found_as_the_first_record_so_young(frames: Frames) -> None:
    log = frames.connect.log(frames.options)
    for at_ms in (10, 20, 30):
        frames.append(0, "a", at_ms)
    frames.append(1, "b", 5)
    ends = log.ends({frames.topic: PARTITIONS})
    assert log.offsets_at(ends, BEGIN_MS) == {frames.topic: {0: 0, 1: 0}}
    assert log.offsets_at(ends, BEGIN_MS + 20) == {frames.topic: {0: 1, 1: 1}}
    assert log.offsets_at(ends, BEGIN_MS + 21) == {frames.topic: {0: 2, 1: 1}}
    assert log.offsets_at(ends, BEGIN_MS + 31) == ends
    assert log.offsets_at({}, BEGIN_MS) == {}


def test_the_newest_progress_record_is_that_of_the_call(frames: Frames) -> None:
    log = frames.connect.log(frames.options)
    assert log.progress() is None
    for lsn in (8, 16):
        newest = Progress(epoch=1, lsn=lsn, offsets={frames.topic: {0: 1, 1: 0}})
        frames.progress(newest)
        assert log.progress() == newest


def test_what_a_frame_opens_in_a_task_reads_the_records(frames: Frames) -> None:
    for key in "abc":
        frames.append(0, key, 0)
    opener = pickle.loads(pickle.dumps(frames.connect.reading(frames.options)))
    with closing(opener.open()) as reader:
        lots = list(reader.read([Span(frames.topic, 0, BEGINNING, 2)]))
    assert [key for lot in lots for key in lot.keys] == [b"a", b"b"]
    assert {mark for lot in lots for mark in zip(lot.pos, lot.op, lot.ver, strict=True)} == {(POS, b"c", b"1")}
