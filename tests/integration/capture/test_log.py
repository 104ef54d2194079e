"""The stream's log on a real broker: what is handed over arrives, large or small, first or later."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.record.ports import Record
from cdc.settings.model import LogSettings
from connectors.kafka.compacted_topic import read_range
from connectors.kafka.stream_log import KafkaStreamLog

LARGE = b"x" * 1_030_000
"""Between what the log carries alone and what the broker takes."""


def test_h70_nothing_behind_a_large_first_record_is_left_out(kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.public.t"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result()
    settings = LogSettings(bootstrap_servers=kafka)
    log = KafkaStreamLog(settings, memory_limit=64 * 1024**2)
    base = log.open(topic, [0, 0, 0])
    records: list[Record] = [
        (base, b"large", LARGE, []),
        (base + 1, b"first of another lane", b"1", []),
        (base + 1, b"second of it", b"2", []),
        (base + 2, b"first of a third", b"3", []),
        (base, b"behind the large one", b"4", []),
    ]
    group = log.produce(records)
    log.settle()
    assert log.acked() == group
    held = [[message.key() for message in read_range(settings, topic, partition)] for partition in range(3)]
    assert held == [
        [b"large", b"behind the large one"],
        [b"first of another lane", b"second of it"],
        [b"first of a third"],
    ]
    assert log.offsets()[topic] == {0: 2, 1: 2, 2: 1}
    log.close()
