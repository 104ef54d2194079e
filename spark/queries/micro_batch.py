"""A micro-batch: stretches of partitions that Spark planned, read and applied in slices of some bytes.

Spark bounds a batch in records alone, and 20,000 records of 100 kB are 2 GB: no batch is ever in memory whole. Each
slice is applied, shown and written into the watermark before the next one, so a process that ended goes on behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from threading import Event
from typing import NamedTuple

import pyarrow as pa

from cdc.record.progress import Offsets
from cdc.wire.records import RecordColumns, RecordReader, Span, numbered_by_slice
from spark.records.debezium_records import TaskTranslation, Translation
from spark.records.source import records_of
from spark.session.failures import Halted

MOST_ROWS = 200_000
"""Rows of a task's slice, at most: their documents take a store some seconds."""
_FIRST_ROWS, _LEAST_ROWS = 20_000, 5_000
_SLICE_S = 15.0

Reached = Mapping[tuple[str, int], int]
"""(topic, partition) -> the offset behind what was read. Partitions of which nothing was read are left out."""


class MicroBatch(NamedTuple):
    """A micro-batch, or a slice of one. ``starts`` and ``ends`` name the same partitions. Either may be
    :data:`spark.records.source.EARLIEST`. ``translation``: what the tasks had that read this slice."""

    starts: Offsets
    ends: Offsets
    reader: RecordReader
    halting: Event
    translate: Translation | None = None
    translation: TaskTranslation | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """The offsets that it covers, a stretch for each partition."""
        return spans_between(self.starts, self.ends)

    @property
    def most_rows(self) -> int:
        """Records in it, gaps counted too."""
        return sum(span.most_records for span in self.spans)

    @property
    def offsets(self) -> Offsets:
        """Where a store is that shows all of it. Without partitions that nobody has begun to read."""
        return {topic: {p: end for p, end in parts.items() if end >= 0} for topic, parts in self.ends.items()}

    def upto(self, reached: Reached) -> MicroBatch:
        """The slice of it that ends where a reader is."""
        open_spans = {(span.topic, span.partition): span.start for span in self.spans}
        ends = {
            topic: {p: reached.get((topic, p), open_spans.get((topic, p), end)) for p, end in parts.items()}
            for topic, parts in self.ends.items()
        }
        return self._replace(ends=ends)

    def behind(self, piece: MicroBatch) -> MicroBatch | None:
        """The rest of it behind a slice. None for nothing. Halted when the query is to end."""
        rest = self._replace(starts=piece.ends)
        if not rest.spans:
            return None
        if self.halting.is_set():
            raise Halted("the query was told to end")
        return rest

    def slices(self, most_bytes: int) -> Iterator[tuple[MicroBatch, pa.Table]]:
        """All of it, read here: each slice with its records. Halted, between two, when the query has to end."""
        reached: dict[tuple[str, int], int] = {}
        rest: MicroBatch | None = self
        groups = groupby(numbered_by_slice(self.reader.read(self.spans), most_bytes), key=itemgetter(0))
        group = next(groups, None)
        while rest is not None:
            records = records_of(noting(reached, (lot for _, lot in group[1]) if group is not None else ()))
            group = next(groups, None)
            piece = rest.upto(reached) if group is not None else rest
            yield piece, records if self.translate is None else self.translate(records)
            rest = rest.behind(piece)


class SlicePace:
    """How many rows a slice of the tasks has: as many as the store takes in 15 s, so that a fill is seen to go on."""

    def __init__(self) -> None:
        self._per_s: float | None = None

    def rows(self, tasks: int) -> int:
        """For each of so many tasks. The first slice is a small one."""
        most = _FIRST_ROWS if self._per_s is None else round(self._per_s * _SLICE_S / tasks)
        return max(_LEAST_ROWS, min(MOST_ROWS, most))

    def note(self, rows: int, took_s: float) -> None:
        """A slice of so many rows showed after this time. A small one says nothing: a job has a time of its own."""
        if rows >= _LEAST_ROWS and took_s > 0:
            self._per_s = rows / took_s


def noting(reached: dict[tuple[str, int], int], lots: Iterable[RecordColumns]) -> Iterator[RecordColumns]:
    """The same lots. ``reached`` gets the offset behind each."""
    for lot in lots:
        reached[lot.topic, lot.partition] = lot.offsets[-1] + 1
        yield lot


def shares(spans: Iterable[Span], count: int) -> list[list[Span]]:
    """Spans in at most ``count`` shares of about the same work. A partition stays in one, for its order."""
    found: list[list[Span]] = [[] for _ in range(count)]
    for span in sorted(spans, key=lambda span: -span.most_records):
        min(found, key=lambda share: sum(one.most_records for one in share)).append(span)
    return [share for share in found if share]


def spans_between(starts: Offsets, ends: Offsets) -> tuple[Span, ...]:
    """The spans between a batch's offsets. ``starts`` may be :data:`spark.records.source.EARLIEST`."""
    return tuple(
        Span(topic, partition, starts[topic][partition], end)
        for topic, parts in ends.items()
        for partition, end in parts.items()
        if end > max(0, starts[topic][partition])
    )
