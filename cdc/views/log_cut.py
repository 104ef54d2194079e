"""A cut of the log: of each partition the records before the first streamed one at or behind a fence. Pure.

A progress record says that every change below its LSN lies below its offsets. So a cut at that LSN holds whole
transactions over all tables. Within a partition streamed positions grow: what is left out is the partition's end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cdc.record.position import MAX_EPOCH, Position
from cdc.record.progress import Offsets, Progress
from cdc.wire.format import SEEN_LSN
from cdc.wire.records import BEGINNING, RecordColumns, Span


class Fence(NamedTuple):
    """``(epoch, lsn)``: everything below is in, everything else is not. Fences compare."""

    epoch: int
    lsn: int

    def floor(self) -> Position:
        """Below every document of this fence, above those of all before."""
        return Position(self.epoch, self.lsn, 0)

    def above(self, met: Position | None) -> Position:
        """The position that documents of this fence are numbered above: above all that it holds, below all that comes.

        ``met``: what others have published. Where that is of the same fence, its numbers are taken.
        """
        return met if met is not None and (met.epoch, met.commit_lsn) == self else self.floor()


BEFORE_ALL = Fence(0, 0)
NEVER = Fence(MAX_EPOCH + 1, 0)
"""Beyond all."""


class TopicRecord(NamedTuple):
    """One record of a table's topic that is ours: it has a position, an operation and a version."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    pos: str
    op: str
    version: int
    time_ms: int
    seen_lsn: bytes | None = None
    """Of a tombstone, where its header says it."""


def fence_at(pos: Position) -> Fence:
    """The fence that a document's position is of."""
    return Fence(pos.epoch, pos.commit_lsn)


def fence_of(progress: Progress) -> Fence:
    """The fence that a progress record sets."""
    return Fence(progress.epoch, progress.lsn)


def spans_to(progress: Progress, starts: Offsets, topics: Iterable[str]) -> list[Span]:
    """The spans to read up to a progress record. ``starts``: what was read before, by topic and partition."""
    return [
        Span(topic, partition, starts.get(topic, {}).get(partition, BEGINNING), end)
        for topic in sorted(topics)
        for partition, end in sorted(progress.offsets.get(topic, {}).items())
        if starts.get(topic, {}).get(partition, BEGINNING) < end
    ]


class LogCut:
    """Takes lots of records in, and gives those before the fence.

    ``ends``: for each partition where the next cut begins: behind what was given, at the first that was not.
    ``foreign``: records that are none of ours, passed over. One beyond the fence is ours only where the progress record
    says that its partition is ahead so far: else it would end the partition, and all behind it went unread.
    ``beyond_ms``: the timestamp of the oldest record seen beyond the fence, None where there was none.
    """

    def __init__(self, progress: Progress, spans: Iterable[Span]) -> None:
        fence = fence_of(progress)
        self._below = f"{fence.epoch:08x}{fence.lsn:016x}"
        self._ahead = progress.ahead
        self.ends: dict[str, dict[int, int]] = {}
        self._closed: set[tuple[str, int]] = set()
        self.foreign = 0
        self.beyond_ms: int | None = None
        for span in spans:
            self.ends.setdefault(span.topic, {})[span.partition] = span.end

    def take(self, lot: RecordColumns) -> Iterator[TopicRecord]:
        """The records of a lot that lie in the cut. Lots of a partition come in the order of their offsets."""
        place = (lot.topic, lot.partition)
        if place in self._closed:
            return
        for record in _ours(lot):
            if record is None:
                self.foreign += 1
                continue
            # A position's text compares as it does. Nearly every record is below.
            if record.pos[:_EPOCH_AND_LSN] >= self._below and Position.parse(record.pos).streamed:
                if record.pos > self._ahead.get(lot.topic, {}).get(lot.partition, ""):
                    self.foreign += 1
                    continue
                self._closed.add(place)
                self.ends[lot.topic][lot.partition] = record.offset
                self.beyond_ms = min(record.time_ms, self.beyond_ms or record.time_ms)
                return
            yield record


_EPOCH_AND_LSN = 24
_POSITION = re.compile(rb"[0-9a-f]{32}").fullmatch


def _ours(lot: RecordColumns) -> Iterator[TopicRecord | None]:
    """Each record of a lot, None in place of one that is none of ours."""
    topic, partition, more = lot.topic, lot.partition, lot.headers
    columns = zip(lot.offsets, lot.times_ms, lot.keys, lot.values, lot.pos, lot.op, lot.ver, strict=True)
    for number, (offset, time_ms, key, value, pos, op, version) in enumerate(columns):
        lacks = key is None or pos is None or op is None or version is None
        if lacks or not version.isdigit() or not op.isascii() or _POSITION(pos) is None:
            yield None
            continue
        seen_lsn = dict(more[number]).get(SEEN_LSN) if number in more else None
        yield TopicRecord(
            topic, partition, offset, key, value, pos.decode(), op.decode(), int(version), time_ms, seen_lsn
        )
