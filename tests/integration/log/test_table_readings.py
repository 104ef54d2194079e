"""A table that Debezium reads, or has read twice, on a broker that cleans: who reads it from its beginning ends."""

from __future__ import annotations

import time
from contextlib import closing

import orjson
import pytest
from confluent_kafka import Producer

from cdc.settings import parse
from cdc.topic import schema_topic
from cdc.topic_specs import TopicSpec, pipeline_topic_specs
from cdc.wire.records import BEGINNING, Span
from connectors.connect.connector_epochs import NotedEpochs, read_epochs
from connectors.debezium.connector_config import signal_topic
from connectors.debezium.partition_reading import reader_of_partitions
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import fetching_config, producer_config
from connectors.kafka.compacted import KafkaCompactedTopic, read_range
from connectors.kafka.record_reader import KafkaReading
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from spark.debezium_feed import Translation
from spark.known_epochs import SnapshotAgain
from spark.source import records_of
from tests.waiting import wait_until

CLEANED = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}
FIRST = "first_in_data_collection"


class ReadTable:
    """The topic ``s.b`` of two partitions, and readers of it."""

    def __init__(self, kafka: str, name: str) -> None:
        source = {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": ["s.*"]}
        log = {"bootstrap_servers": kafka, "partitions": 2}
        self.settings = parse({"name": name, "source": source, "log": log, "debezium": {"database_password": "env:P"}})
        self.topic = f"{name}.s.b"
        own = TopicSpec(topic=self.topic, partitions=2, replication_factor=1, config=CLEANED)
        signals = TopicSpec(
            topic=signal_topic(self.settings), partitions=1, replication_factor=1, config={"retention.ms": "-1"}
        )
        TopicAdmin(self.settings.log).create([*pipeline_topic_specs(self.settings.log, name), own, signals])
        self._producer = Producer(producer_config(self.settings.log))
        self._time_ms = time.time_ns() // 1_000_000 - 60_000

    def write(self, partition: int, number: int, marker: str, op: str, lsn: int) -> None:
        """A record, a second behind the one before it: in a segment of its own."""
        self._time_ms += 1000
        value = _value(number, marker, op, lsn)
        self._producer.produce(self.topic, value, orjson.dumps({"id": number}), partition, timestamp=self._time_ms)
        assert self._producer.flush(30) == 0

    def first(self, partition: int) -> int:
        """The first offset of a partition that is left."""
        return next(message.offset() or 0 for message in read_range(self.settings.log, self.topic, partition, 0))

    def read(self, tries: int = 3) -> list[int]:
        """The epoch in which each try of a reader from the beginning ended, negative where it has to begin again."""
        return [self._read() for _ in range(tries)]

    def _read(self) -> int:
        settings = self.settings
        registry = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)))
        reading = KafkaReading(tuple(sorted(fetching_config(settings.log).items())))
        translation = Translation(
            EmbeddedShapes(registry),
            NotedEpochs(settings, list),
            earlier=reading.open,
            reader=reader_of_partitions(settings),
        )
        ends = TopicAdmin(settings.log).end_offsets({self.topic: 2})[self.topic]
        with closing(reading.open()) as reader:
            try:
                for lot in reader.read([Span(self.topic, p, BEGINNING, end) for p, end in ends.items()]):
                    translation(records_of([lot]))
            except SnapshotAgain:
                return -read_epochs(settings).latest
        return read_epochs(settings).latest


def _value(number: int, marker: str, op: str, lsn: int) -> bytes:
    fields = [{"type": "int32", "optional": False, "field": "id"}]
    row = {"type": "struct", "fields": fields, "optional": True, "field": "after"}
    schema = {
        "type": "struct",
        "fields": [row, {"type": "struct", "field": "source"}, {"type": "string", "field": "op"}],
    }
    place = {
        "connector": "postgresql",
        "schema": "s",
        "table": "b",
        "snapshot": marker,
        "sequence": f'["{lsn}","{lsn}"]',
    }
    payload = {"before": None, "after": {"id": number}, "source": place, "op": op}
    return orjson.dumps({"schema": schema, "payload": payload})


@pytest.fixture
def table(kafka: str, topic_prefix: str) -> ReadTable:
    return ReadTable(kafka, topic_prefix)


@pytest.mark.slow
def test_h571_a_gap_that_the_cleaner_left_is_no_older_reading(table: ReadTable) -> None:
    """The first row of a partition was changed, and its first record is gone: nothing was read twice."""
    table.write(0, 1, FIRST, "r", 1000)
    table.write(1, 2, "last", "r", 1000)
    assert table.read() == [1, 1, 1]
    for number, op, lsn in ((2, "u", 2000), (4, "c", 3000), (5, "c", 4000)):
        table.write(1, number, "false", op, lsn)
    wait_until(lambda: table.first(1) > 0, 90)
    assert table.read() == [1, 1, 1]


@pytest.mark.slow
def test_h572_a_second_reading_begins_in_another_partition(table: ReadTable) -> None:
    """The worker was killed early in the table, and its first row is another one now."""
    table.write(0, 1, FIRST, "r", 1000)
    table.write(1, 2, FIRST, "r", 2000)
    table.write(0, 3, "last", "r", 2000)
    assert table.read() == [-2, 2, 2]
