"""Records of topics in memory, for those that read them in lots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cdc.errors import CdcError
from cdc.wire.records import Lot, Span


@dataclass(frozen=True)
class MemoryReading:
    """:class:`cdc.wire.records.ReaderOpener` over lots that are given. ``failure`` is raised in their place."""

    lots: tuple[Lot, ...]
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
