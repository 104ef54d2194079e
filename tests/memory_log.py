"""Memory doubles of the ports, for tests of what stands on them.

They keep the promises of the real parts: one contract suite runs over both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdc.process.clock import ManualClock
from cdc.process.errors import CdcError, LogError, PoisonError
from cdc.record.ports import Record, StreamBatch
from cdc.record.position import Position
from cdc.wire.dead_letter import DeadLetter
from cdc.wire.format import POS
from cdc.wire.records import RecordColumns, Span

__all__ = [
    "ManualClock",
    "MemoryBroker",
    "MemoryCompactedTopic",
    "MemoryDeadLetters",
    "MemoryLetterFeed",
    "MemoryReading",
    "MemoryRecords",
    "MemoryStream",
    "MemoryStreamLog",
    "MemoryTopics",
    "StoredRecord",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as a topic holds it."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class MemoryBroker:
    """Topics in memory. They outlive the logs that write to them, as a broker outlives a process.

    ``topics``: topic -> number of partitions. One that is not named exists from its first record on, with as many
    partitions as records were appended to.
    """

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        self.partitions: dict[str, int] = dict(topics or {})
        """Topic -> number of partitions."""
        self.records: list[StoredRecord] = []
        """Every record, in the order of arrival."""
        self._next: dict[tuple[str, int], int] = {}

    def append(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> int:
        """Store one record. Its offset."""
        offset = self.end(topic, partition)
        self._next[topic, partition] = offset + 1
        self.partitions[topic] = max(partition + 1, self.partitions.get(topic, 0))
        self.records.append(
            StoredRecord(topic=topic, partition=partition, offset=offset, key=key, value=value, headers=tuple(headers))
        )
        return offset

    def end(self, topic: str, partition: int) -> int:
        """The next offset of a partition."""
        return self._next.get((topic, partition), 0)

    def of(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        """The records of a topic, or of one of its partitions."""
        return [r for r in self.records if r.topic == topic and partition in (None, r.partition)]


class MemoryTopics:
    """:class:`cdc.record.ports.Topics` on a :class:`MemoryBroker`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._broker.partitions
        return {topic: known[topic] for topic in topics if topic in known}

    def end_offsets(self, partitions: Mapping[str, int]) -> dict[str, dict[int, int]]:
        return {t: {p: self._broker.end(t, p) for p in range(count)} for t, count in partitions.items()}


class MemoryStreamLog:
    """:class:`cdc.record.ports.StreamLog` on a :class:`MemoryBroker`.

    ``auto_ack`` (default): what was produced arrives when :meth:`acked` is called next. Otherwise when :meth:`deliver`
    is. A process that is killed is a log that is dropped: what it had not delivered never arrives. ``refuse``: records
    for which this returns true are refused as too large, and nothing behind one is ever acked.
    """

    def __init__(
        self,
        broker: MemoryBroker | None = None,
        *,
        auto_ack: bool = True,
        refuse: Callable[[bytes, bytes | None], bool] = lambda key, value: False,
    ) -> None:
        self.broker = broker or MemoryBroker()
        self._auto_ack = auto_ack
        self._refuse = refuse
        self._lanes: list[tuple[str, int]] = []
        self._expected: list[int] = []
        self._offsets: dict[str, dict[int, int]] = {}
        self._highest: dict[int, Position] = {}
        self._waiting: deque[tuple[int, list[Record]]] = deque()
        self._newest = 0
        self._acked = 0
        self._failure: CdcError | None = None

    def open(self, topic: str, next_offsets: Sequence[int]) -> int:
        base = len(self._lanes)
        self._lanes += [(topic, partition) for partition in range(len(next_offsets))]
        self._expected += next_offsets
        self._offsets[topic] = dict(enumerate(next_offsets))
        return base

    def produce(self, records: Sequence[Record]) -> int:
        self._raise_failure()
        if records:
            self._newest += 1
            self._waiting.append((self._newest, list(records)))
        return self._newest

    @property
    def newest(self) -> int:
        return self._newest

    def acked(self, timeout_s: float = 0) -> int:
        if self._auto_ack:
            self.deliver()
        self._raise_failure()
        return self._acked

    def deliver(self, groups: int | None = None) -> None:
        """Let the next ``groups`` arrive, all by default."""
        for _ in range(len(self._waiting) if groups is None else groups):
            number, records = self._waiting.popleft()
            for record in records:
                self._arrive(record)
            if self._failure is not None:
                self._waiting.clear()
                return
            self._acked = number

    def offsets(self) -> dict[str, dict[int, int]]:
        return self._offsets

    def ahead(self, lsn: int) -> dict[str, dict[int, str]]:
        found: dict[str, dict[int, str]] = {}
        for lane, position in self._highest.items():
            if position.commit_lsn >= lsn:
                topic, partition = self._lanes[lane]
                found.setdefault(topic, {})[partition] = position.text()
        return found

    def _arrive(self, record: Record) -> None:
        lane, key, value, headers = record
        topic, partition = self._lanes[lane]
        if self._failure is not None:
            return
        if self._refuse(key, value):
            self._failure = PoisonError(f"a record of {topic} is larger than the broker takes")
            return
        offset = self.broker.append(topic, partition, key, value, headers)
        if offset != self._expected[lane]:
            self._failure = LogError(f"{topic} partition {partition} has offset {offset}: somebody else writes to it")
            return
        self._expected[lane] = self._offsets[topic][partition] = offset + 1
        position = Position.parse(headers[0][1].decode()) if headers and headers[0][0] == POS else None
        if position is not None and position.streamed:
            self._highest[lane] = max(position, self._highest.get(lane, position))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class MemoryDeadLetters:
    """:class:`cdc.wire.dead_letter.DeadLetters` in memory.

    ``answering`` stands for the application that feeds a store: what it returns of the letters of one write is
    appended behind them. ``clock`` moves by what a follower waits.
    """

    def __init__(
        self,
        letters: Iterable[DeadLetter] = (),
        *,
        answering: Callable[[list[DeadLetter]], Iterable[DeadLetter]] = lambda written: (),
        clock: ManualClock | None = None,
    ) -> None:
        self.all = list(letters)
        """Every letter, order and answer, in order."""
        self._answering = answering
        self._clock = clock or ManualClock()

    def read(self) -> list[DeadLetter]:
        return list(self.all)

    def write(self, letters: Iterable[DeadLetter]) -> None:
        written = list(letters)
        self.all += written
        self.all += self._answering(written)

    def follow(self) -> MemoryLetterFeed:
        """Yield the letters that are written from now on."""
        return MemoryLetterFeed(self, self._clock)


class MemoryLetterFeed:
    """:class:`cdc.wire.dead_letter.LetterFeed` of :class:`MemoryDeadLetters`."""

    def __init__(self, letters: MemoryDeadLetters, clock: ManualClock) -> None:
        self._letters = letters
        self._clock = clock
        self._next = len(letters.all)
        self.closed = False

    def poll(self, timeout_s: float) -> list[DeadLetter]:
        found = self._letters.all[self._next :]
        self._next += len(found)
        if not found:
            self._clock.advance(timeout_s)
        return found

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class MemoryReading:
    """:class:`cdc.wire.records.ReaderOpener` over lots that are given. ``failure`` is raised in their place."""

    lots: tuple[RecordColumns, ...]
    failure: CdcError | None = None

    def open(self) -> MemoryRecords:
        return MemoryRecords(self)

    def __hash__(self) -> int:
        return id(self)


class MemoryRecords:
    """:class:`cdc.wire.records.RecordReader`: one lot for each record, so that no caller counts on more."""

    def __init__(self, reading: MemoryReading) -> None:
        self._reading = reading
        self._busy = False
        self.closed = False

    def read(self, spans: Iterable[Span]) -> Iterator[RecordColumns]:
        if self._reading.failure is not None:
            raise self._reading.failure
        assert not self._busy, "a reader is in the middle of another read"
        self._busy = True
        try:
            for span in spans:
                for lot in self._reading.lots:
                    if (lot.topic, lot.partition) == (span.topic, span.partition):
                        yield from _single(lot, span)
        finally:
            self._busy = False

    def close(self) -> None:
        self.closed = True


def _single(lot: RecordColumns, span: Span) -> Iterator[RecordColumns]:
    for number, offset in enumerate(lot.offsets):
        if max(0, span.start) <= offset < span.end:
            yield RecordColumns(
                topic=lot.topic,
                partition=lot.partition,
                offsets=[offset],
                times_ms=[lot.times_ms[number]],
                keys=[lot.keys[number]],
                values=[lot.values[number]],
                pos=[lot.pos[number]],
                op=[lot.op[number]],
                ver=[lot.ver[number]],
                headers={0: lot.headers[number]} if number in lot.headers else {},
            )


class MemoryStream:
    """:class:`cdc.record.ports.ChangeStream` over batches that are given. Each read returns the next one.

    ``at_end`` is called by each read behind the last batch, and may raise. ``clock`` moves by what a read waits.
    """

    def __init__(
        self,
        batches: Iterable[StreamBatch] = (),
        *,
        at_end: Callable[[], None] = lambda: None,
        clock: ManualClock | None = None,
    ) -> None:
        self.batches = deque(batches)
        self.at_end = at_end
        self.received = 0
        self.last_feedback_s = 0.0
        self.acknowledged: list[int] = []
        """Every acknowledgement, in order."""
        self.closed = False
        self._clock = clock or ManualClock()

    def read(self, timeout_s: float) -> StreamBatch:
        self.last_feedback_s = self._clock.monotonic()
        if not self.batches:
            self._clock.advance(timeout_s or 0.001)
            self.at_end()
            return StreamBatch([], None)
        self._clock.advance(0.001)
        batch = self.batches.popleft()
        self.received = max(self.received, batch.wal_end or 0)
        return batch

    def acknowledge(self, lsn: int) -> None:
        self.acknowledged.append(lsn)

    def close(self) -> None:
        self.closed = True


class MemoryCompactedTopic:
    """:class:`cdc.record.ports.CompactedTopic` in memory. ``writes`` counts the calls that appended something."""

    def __init__(self, records: Mapping[bytes, bytes] | None = None) -> None:
        self._newest = dict(records or {})
        self.writes = 0

    def read(self) -> dict[bytes, bytes]:
        return dict(self._newest)

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        appended = list(records)
        self.writes += bool(appended)
        for key, value in appended:
            self._newest.pop(key, None)
            if value is not None:
                self._newest[key] = value
