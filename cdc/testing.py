"""Memory doubles of the ports, for tests of what stands on them; yours too.

They keep the same promises as the real parts and are held to them by the same contract suites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cdc.clock import ManualClock
from cdc.errors import CdcError, LogError, PoisonError
from cdc.ports import Headers
from cdc.records import Lot, Span

__all__ = ["ManualClock", "MemoryCompactedTopic", "MemoryLog", "MemoryReading", "MemoryRecords", "Record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as a topic holds it."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class MemoryLog:
    """:class:`cdc.ports.RecordLog` in memory.

    ``auto_ack`` (default): a record is held as soon as it is produced; otherwise it waits for
    :meth:`acknowledge`. ``refuse``: records for which this returns true are refused as too large, and
    nothing produced after one is ever acked (H57, H70).
    """

    def __init__(self, *, auto_ack: bool = True, refuse: Callable[[bytes, bytes | None], bool] | None = None) -> None:
        self.records: list[Record] = []
        """What the broker holds, in the order of arrival."""
        self._waiting: list[tuple[str, int, bytes, bytes | None, Headers]] = []
        self._next: dict[tuple[str, int], int] = {}
        self._acked = 0
        self._auto_ack = auto_ack
        self._refuse = refuse
        self._failure: PoisonError | None = None

    def produce(self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers) -> None:
        self._raise_failure()
        self._waiting.append((topic, partition, key, value, tuple(headers)))
        if self._auto_ack:
            self.acknowledge()

    def acknowledge(self, count: int | None = None) -> None:
        """Let the broker hold the next ``count`` waiting records, all by default."""
        for _ in range(len(self._waiting) if count is None else count):
            if self._failure is not None:
                return
            self._hold(*self._waiting.pop(0))

    def acked(self) -> int:
        self._raise_failure()
        return self._acked

    def poll(self, timeout_s: float) -> None:
        self._raise_failure()

    def flush(self, timeout_s: float) -> None:
        self._raise_failure()
        if self._waiting:
            raise LogError(f"{len(self._waiting)} records unanswered after {timeout_s:g} s")

    def of(self, topic: str, partition: int | None = None) -> list[Record]:
        """The records of a topic, or of one of its partitions."""
        return [r for r in self.records if r.topic == topic and partition in (None, r.partition)]

    def _hold(self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers) -> None:
        if self._refuse is not None and self._refuse(key, value):
            self._failure = PoisonError(f"a record of {topic} is larger than the broker takes")
            return
        offset = self._next.get((topic, partition), 0)
        self._next[(topic, partition)] = offset + 1
        record = Record(topic=topic, partition=partition, offset=offset, key=key, value=value, headers=tuple(headers))
        self.records.append(record)
        self._acked += 1

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class MemoryCompactedTopic:
    """:class:`cdc.ports.CompactedTopic` in memory; ``writes`` counts the calls that appended something."""

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


@dataclass(frozen=True)
class MemoryReading:
    """:class:`cdc.records.Reading` over lots that are given; ``failure`` is raised in their place."""

    lots: tuple[Lot, ...]
    failure: CdcError | None = None

    def open(self) -> MemoryRecords:
        return MemoryRecords(self)

    def __hash__(self) -> int:
        return id(self)


class MemoryRecords:
    """:class:`cdc.records.RecordReader`: one lot for each record, so that no caller counts on more."""

    def __init__(self, reading: MemoryReading) -> None:
        self._reading = reading
        self._busy = False
        self.closed = False

    def read(self, spans: Iterable[Span]) -> Iterator[Lot]:
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


def _single(lot: Lot, span: Span) -> Iterator[Lot]:
    for number, offset in enumerate(lot.offsets):
        if max(0, span.start) <= offset < span.end:
            yield Lot(
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
