"""A broker in memory, and the stream's log on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cdc.errors import CdcError, LogError, PoisonError
from cdc.ports import Record
from cdc.position import Position
from cdc.wire.format import POS


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
    """:class:`cdc.ports.Topics` on a :class:`MemoryBroker`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._broker.partitions
        return {topic: known[topic] for topic in topics if topic in known}

    def end_offsets(self, partitions: Mapping[str, int]) -> dict[str, dict[int, int]]:
        return {t: {p: self._broker.end(t, p) for p in range(count)} for t, count in partitions.items()}


class MemoryStreamLog:
    """:class:`cdc.ports.StreamLog` on a :class:`MemoryBroker`.

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
