"""The double of the reader of records keeps the promises of the real one: one suite over both."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.settings.model import LogSettings
from cdc.wire.records import BEGINNING, ReaderOpener, RecordColumns, RecordReader, Span
from connectors.kafka.clients import fetching_config
from connectors.kafka.record_reader import KafkaReading
from tests.memory_log import MemoryReading

COUNT = 20
POS, MORE = b"0" * 32, ("more", b"a header of others")
TOPIC = "t"


@dataclass(frozen=True)
class Records:
    """Twenty records in each of two partitions of ``topic``. Their keys and values say partition and offset."""

    opener: ReaderOpener
    topic: str

    def read(self, reader: RecordReader, *stretches: tuple[int, int, int]) -> list[RecordColumns]:
        """The lots of some stretches: partition, first offset, offset behind the last."""
        return list(reader.read([Span(self.topic, *stretch) for stretch in stretches]))


@pytest.fixture(params=["memory", "kafka"])
def records(request: pytest.FixtureRequest) -> Records:
    if request.param == "memory":
        lots = [memory_lot(partition, offset) for offset in range(COUNT) for partition in (0, 1)]
        return Records(MemoryReading(tuple(lots)), TOPIC)
    servers, topic = request.getfixturevalue("kafka"), f"{request.getfixturevalue('topic_prefix')}.readers"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for offset in range(COUNT):
        for partition in (0, 1):
            key, value = texts(partition, offset)
            headers: Any = [("pos", POS), ("op", b"u"), ("ver", b"1"), MORE]
            producer.produce(topic, value, key, partition, headers=headers)
    assert producer.flush(30) == 0
    config = fetching_config(LogSettings(bootstrap_servers=servers))
    return Records(KafkaReading(tuple(sorted(config.items()))), topic)


@pytest.fixture
def reader(records: Records) -> Iterator[RecordReader]:
    with closing(records.opener.open()) as opened:
        yield opened


def texts(partition: int, offset: int) -> tuple[bytes, bytes | None]:
    """A key and a value. Each fifth record is a tombstone."""
    return b"k%d/%d" % (partition, offset), None if offset % 5 == 4 else b"v%d/%d" % (partition, offset)


def memory_lot(partition: int, offset: int) -> RecordColumns:
    key, value = texts(partition, offset)
    return RecordColumns(TOPIC, partition, [offset], [0], [key], [value], [POS], [b"u"], [b"1"], {})


def offsets(lots: Sequence[RecordColumns], partition: int) -> list[int]:
    return [offset for lot in lots if lot.partition == partition for offset in lot.offsets]


def test_a_stretch_brings_each_record_once_in_order(records: Records, reader: RecordReader) -> None:
    lots = records.read(reader, (0, 3, 12), (1, BEGINNING, 5))
    assert (offsets(lots, 0), offsets(lots, 1)) == (list(range(3, 12)), list(range(5)))


def test_every_column_of_a_lot_has_one_value_a_record(records: Records, reader: RecordReader) -> None:
    for lot in records.read(reader, (0, 0, COUNT), (1, 0, COUNT)):
        assert lot.topic == records.topic
        found = zip(lot.keys, lot.values, strict=True)
        assert list(found) == [texts(lot.partition, offset) for offset in lot.offsets]
        marks = zip(lot.pos, lot.op, lot.ver, lot.times_ms, strict=True)
        assert {mark[:3] for mark in marks} == {(POS, b"u", b"1")}
        assert len(lot.times_ms) == len(lot.offsets) > 0


@pytest.mark.parametrize("begins", [(0, 10), (10, 0), (5, 5)])
def test_a_read_may_go_on_back_and_over_a_gap(records: Records, reader: RecordReader, begins: tuple[int, int]) -> None:
    for begin in begins:
        assert offsets(records.read(reader, (0, begin, begin + 4)), 0) == list(range(begin, begin + 4))


def test_an_empty_stretch_brings_nothing(records: Records, reader: RecordReader) -> None:
    assert records.read(reader) == []
    assert records.read(reader, (0, 7, 7)) == []
    assert offsets(records.read(reader, (0, 7, 8)), 0) == [7]


def test_a_read_that_was_given_up_skips_nothing(records: Records, reader: RecordReader) -> None:
    begun = reader.read([Span(records.topic, 0, 0, COUNT)])
    assert next(begun).offsets[0] == 0
    close: Callable[[], None] = getattr(begun, "close")  # noqa: B009 - a generator has it, the port does not say so
    close()
    assert offsets(records.read(reader, (0, 0, COUNT)), 0) == list(range(COUNT))


def test_an_opener_travels_and_opens_readers_of_its_own(records: Records) -> None:
    there = pickle.loads(pickle.dumps(records.opener))
    assert isinstance(hash(records.opener), int)
    with closing(there.open()) as one, closing(there.open()) as other:
        found = [offsets(records.read(reader, (1, 18, COUNT)), 1) for reader in (one, other)]
    assert found == [[18, 19], [18, 19]]
