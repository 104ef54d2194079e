"""Events of a topic that is not compacted, as raw columns up to a cut: decided in the driver, read in tasks. No Spark.

A cut is a progress record: each record below its LSN lies below its offsets, and none behind them is of an earlier time
than the cut's. Another program's topic, whose times are those of the broker, has its ends for a cut. A batch brings one
row more, the marker, which has the cut's time and no partition: so a topic at rest holds no window open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc.process.errors import TopicError, UsageError
from cdc.record.position import CHUNK_SEQ, SNAPSHOT_SEQ, Position
from cdc.record.progress import Offsets, Progress
from cdc.wire.format import AT, GAP_OP, POS, READ_OP, TRUNCATE_OP
from cdc.wire.records import RecordColumns, RecordReader, Span
from spark.frames.frame import StreamOffsets, require_forward
from spark.frames.ports import EventTopic

_US = pa.timestamp("us", "UTC")
_FIELDS: list[pa.Field[Any]] = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field(POS, pa.binary()),
    pa.field(AT, _US, nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("refusal", pa.string()),
]
SCHEMA = pa.schema(_FIELDS)
"""``at``: the commit's time, as the running maximum. ``refusal``: why a record is no event, null for one."""
MARKER = -1
"""The partition of a marker."""
REPEATED, GAP, FOREIGN = "repeated", "gap", "foreign"
"""Values of ``refusal``: read before, changes are missing here, none of ours."""
_NO_EVENTS = (READ_OP.encode(), TRUNCATE_OP.encode())
_NOT_STREAMED = (b"%08x" % SNAPSHOT_SEQ, b"%08x" % CHUNK_SEQ)
_REST_US = 5_000_000
"""How much later a cut without new records has to be to make a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCut:
    """Where a batch ends. ``floors``: partition -> the highest streamed position (as text) below it."""

    offsets: Mapping[int, int]
    at_us: int = 0
    floors: Mapping[int, str]

    @classmethod
    def of(cls, progress: Progress, topic: str) -> EventCut:
        """The cut of a progress record."""
        offsets = progress.offsets.get(topic, {})
        floor, ahead = Position(progress.epoch, progress.lsn, 0).text(), progress.ahead.get(topic, {})
        floors = {p: max(floor, ahead.get(p, "")) for p in offsets}
        return cls(offsets=offsets, at_us=progress.at_us, floors=floors)

    @property
    def highest(self) -> str:
        """No streamed record below the cut has a higher position. Empty where it has none."""
        return max(self.floors.values(), default="")

    def is_news(self, reached: EventCut) -> bool:
        """Whether a batch from there to here is worth its while."""
        return self.offsets != reached.offsets or self.at_us - reached.at_us >= _REST_US

    def document(self, pipeline: str, topic: EventTopic) -> dict[str, Any]:
        """The cut as Spark's checkpoint keeps it. The same cut gives the same text."""
        place = StreamOffsets(pipeline, {topic.topic: topic.id}, {topic.topic: self.offsets}).document()
        floors = {str(p): pos for p, pos in sorted(self.floors.items())}
        return place | {"at_us": self.at_us, "floors": floors}


def read_cut(document: Mapping[str, Any], pipeline: str, topic: EventTopic) -> EventCut:
    """Read :meth:`EventCut.document` back. Errors as :meth:`spark.frames.frame.StreamOffsets.read`."""
    offsets = StreamOffsets(pipeline, {topic.topic: topic.id}, {}).read(document)[topic.topic]
    floors = {int(p): pos for p, pos in document.get("floors", {}).items()}
    return EventCut(offsets=offsets, at_us=document.get("at_us", 0), floors=floors)


def require_events(topic: EventTopic, *, joined: bool = False) -> None:
    """UsageError for a topic that is compacted, and for one of another program's whose times are not the broker's, or
    whose events are to be joined with a table by their positions: they have none."""
    if topic.compacted:
        raise UsageError(
            f"{topic.topic} is compacted: it is a table and forgets, so no event of it can be counted",
            hint="use a view for figures of a table as it is, or its history: [history] tables",
        )
    if not topic.ours and not topic.append_time:
        raise UsageError(
            f"{topic.topic} is none of the pipeline's, and its records have the times that their writers gave",
            hint="set message.timestamp.type=LogAppendTime on it: lateness counts from the broker's time",
        )
    if joined and not topic.ours:
        raise UsageError(
            f"{topic.topic} is none of the pipeline's, so its events have no place among the changes of a table",
            hint="as_of goes with outbox events and histories; leave it out",
        )


def spans_between(start: EventCut, end: EventCut, topic: EventTopic) -> list[Span]:
    """The ranges of a batch. TopicError where it would go back, and where retention has cut what it begins with."""
    require_forward({topic.topic: start.offsets}, {topic.topic: end.offsets}, StreamOffsets("", {}, {}), limited=False)
    found = []
    for partition, behind in sorted(end.offsets.items()):
        begin = start.offsets.get(partition)
        first = topic.starts.get(partition, 0)
        if begin is not None and begin < min(first, behind):
            raise TopicError(
                f"partition {partition} of {topic.topic} begins at offset {first}, and offset {begin} was to be read: "
                "its records were kept for too short a time",
                hint="cdc stream rebuild begins anew from what is there; a longer keep prevents it",
            )
        span = Span(topic.topic, partition, max(begin or 0, first), behind)
        if span.most_records:
            found.append(span)
    return found


def read_events(
    spans: Sequence[Span], floors: Mapping[int, str], marker_us: int, *, ours: bool, reader: RecordReader
) -> Iterator[pa.RecordBatch]:
    """The records of a task's ranges, each partition's in order, and the marker where ``marker_us`` is not 0.

    Of a topic of ours a streamed record at or below the partition's highest position is REPEATED: an old capture wrote
    it once more. Rows of snapshots are no events and left out. Of another's topic the newest time is the marker's.
    """
    highest = {partition: floor.encode() for partition, floor in floors.items()}
    newest_us = 0
    for lot in reader.read(spans):
        if ours:
            yield _own(lot, highest)
        else:
            times = [time_ms * 1000 for time_ms in lot.times_ms]
            newest_us = max([newest_us, *times])
            yield _batch(lot, times, [None] * len(times))
    marker_us = marker_us or newest_us
    if marker_us:
        yield pa.RecordBatch.from_pylist([{AT: marker_us, "partition": MARKER, "offset": 0}], schema=SCHEMA)


def _own(lot: RecordColumns, highest: dict[int, bytes]) -> pa.RecordBatch:
    top, headers, ats, times_ms = highest.get(lot.partition, b""), lot.headers, lot.at, lot.times_ms
    times: list[int] = []
    refusals: list[str | None] = []
    passed: list[int] = []
    for number, (pos, op) in enumerate(zip(lot.pos, lot.op, strict=True)):
        at, own = ats[number] if ats else None, headers.get(number)
        if own and own[-1][0] == AT:
            at = own[-1][1]
        # A record of before this header has the broker's time.
        times.append(times_ms[number] * 1000 if at is None else int(at or 0))
        why = None
        if pos is None or len(pos) != len(top or pos):
            why = FOREIGN
        elif op in _NO_EVENTS:
            passed.append(number)
        elif op == GAP_OP.encode():
            why = GAP
        elif pos[24:] in _NOT_STREAMED:
            passed.append(number)
        elif pos <= top:
            why = REPEATED
        else:
            top = pos
        refusals.append(why)
    highest[lot.partition] = top
    batch = _batch(lot, times, refusals)
    if not passed:
        return batch
    out = set(passed)
    return batch.take(pa.array([number for number in range(len(refusals)) if number not in out], pa.int64()))


def _batch(lot: RecordColumns, times_us: list[int], refusals: Sequence[str | None]) -> pa.RecordBatch:
    count = len(lot.offsets)
    array: Any = pa.array
    return pa.RecordBatch.from_arrays(
        [
            array(lot.keys, pa.binary()),
            array(lot.values, pa.binary()),
            array(lot.pos, pa.binary()),
            array(times_us, _US),
            pa.repeat(pa.scalar(lot.partition, pa.int32()), count),
            array(lot.offsets, pa.int64()),
            array(refusals, pa.string()),
        ],
        schema=SCHEMA,
    )


def ended(offsets: Offsets, topic: EventTopic) -> EventCut:
    """The cut at the ends of another program's topic."""
    return EventCut(offsets=offsets[topic.topic], floors={})
