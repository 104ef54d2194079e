"""How far one look at the progress topic reads, on a consumer in memory."""

from __future__ import annotations

from typing import cast

from confluent_kafka import KafkaError, Message, TopicPartition

from cdc.process.clock import ManualClock
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.settings.model import LogSettings
from connectors.kafka.feed import ProgressTopic

SETTINGS = LogSettings(bootstrap_servers="none:9092")


class Record:
    """A progress record, or the note of the partition's end."""

    def __init__(self, offset: int, value: bytes | None) -> None:
        self._offset = offset
        self._value = value

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._value is None else None

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return PROGRESS_KEY

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000 + self._offset


class Partition:
    """A consumer of a topic that grows by ``grows`` records with each answer, and takes ``takes_s`` for it."""

    def __init__(self, clock: ManualClock, grows: int = 0, takes_s: float = 0.0, segment: int = 0) -> None:
        self.values: list[bytes] = []
        self.at = 0
        self.asked = 0
        self.gaps = 0
        """Answers that bring nothing, though there is more."""
        self._clock = clock
        self._segment = segment
        """The records of the oldest one: no answer goes over its end."""
        self._grows = grows
        self._takes_s = takes_s

    def write(self, records: int) -> None:
        for _ in range(records):
            self.values.append(Progress(epoch=1, lsn=len(self.values) + 1, offsets={}).to_json())

    def assign(self, partitions: list[TopicPartition], /) -> None:
        self.at = 0

    def poll(self, timeout: float, /) -> Message | None:
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        self._clock.sleep(self._takes_s)
        if self.at and timeout and self.gaps:
            self.gaps -= 1
            return []
        if self.at == self._segment and self._segment and not timeout:
            return []
        end = max(self._segment, self.at) if self.at < self._segment else self.at + num_messages
        taken = self.values[self.at : min(end, self.at + num_messages)]
        found = [Record(self.at + n, value) for n, value in enumerate(taken)]
        self.at += len(found)
        self.write(self._grows)
        return cast(list[Message], found)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        self.asked += 1
        return 0, len(self.values)

    def close(self) -> None:
        self.at = 0


def looked(partition: Partition, clock: ManualClock) -> int:
    newest = ProgressTopic(SETTINGS, "p", partition).catch_up(0.05, clock=clock)
    return 0 if newest is None else newest.lsn


def test_h443_one_look_reads_up_to_the_topics_end() -> None:
    clock = ManualClock()
    partition = Partition(clock)
    partition.write(1000)
    feed = ProgressTopic(SETTINGS, "p", partition)
    newest = feed.catch_up(0.05, clock=clock)
    assert newest is not None
    assert (newest.lsn, feed.written_ms) == (1000, 1999)


def test_h443_an_answer_without_records_ends_no_look() -> None:
    clock = ManualClock()
    partition = Partition(clock, takes_s=0.05)
    partition.write(100)
    partition.gaps = 3
    assert looked(partition, clock) == 100


def test_h443_a_look_ends_in_a_topic_that_outgrows_it() -> None:
    clock = ManualClock()
    partition = Partition(clock, grows=30)
    partition.write(100)
    # The end when it was asked: what came meanwhile is for the next look.
    assert 100 <= looked(partition, clock) < 300


def test_h443_a_look_takes_a_bounded_time() -> None:
    clock = ManualClock()
    begun_s = clock.monotonic()
    partition = Partition(clock, takes_s=1.0)
    partition.write(100_000)
    assert 0 < looked(partition, clock) < 1000
    assert clock.monotonic() - begun_s <= 7.0


def test_h443_a_level_reader_does_not_ask_for_the_end() -> None:
    clock = ManualClock()
    partition = Partition(clock)
    partition.write(20)
    feed = ProgressTopic(SETTINGS, "p", partition)
    feed.catch_up(0.05, clock=clock)
    # At its first look it cannot know: what comes first may be a small old segment.
    assert partition.asked == 1
    partition.write(20)
    newest = feed.catch_up(0.05, clock=clock)
    assert newest is not None
    assert newest.lsn == 40
    assert partition.asked == 1


def test_a_new_reader_is_not_level_with_a_first_small_answer() -> None:
    """The oldest segment of a compacted topic may hold few records, and a broker answers with one segment."""
    clock = ManualClock()
    partition = Partition(clock, segment=7)
    partition.write(50)
    assert looked(partition, clock) == 50


def test_h443_the_newest_readable_record_stays() -> None:
    clock = ManualClock()
    partition = Partition(clock)
    partition.write(30)
    partition.values[-1] = b"{"
    assert looked(partition, clock) == 29
