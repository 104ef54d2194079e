"""A log and a view's topic in memory, for those that run a view without servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cdc.process.errors import ActiveError
from cdc.record.position import Position
from cdc.record.progress import Offsets, Progress
from cdc.record.schema import TableSchema
from cdc.views.log_cut import Fence
from cdc.views.view_ports import RunnerAnswer
from cdc.views.view_records import ViewRecord
from cdc.wire.dead_letter import DeadLetter
from cdc.wire.format import POS
from cdc.wire.records import Headers, RecordColumns, Span

Change = tuple[bytes, bytes | None, bytes, bytes, bytes]
"""Key, value, pos, op, ver."""


@dataclass
class MemoryViewInput:
    """:class:`cdc.views.view_ports.ViewInput` over lists of records. One lot for each record.

    ``partitions``: topic and partition to records, each with its offset. ``newest``: the progress record, if any.
    ``progress_ms``: when that was written. ``times_ms``: topic, partition and offset to a record's timestamp, where it
    is another one. ``headers``: the same to all headers, of a record that has more than its three. ``dead``: the dead
    letters. ``state``: the state topic's records.
    """

    shapes: Mapping[str, TableSchema]
    partitions: dict[tuple[str, int], list[tuple[int, Change]]] = field(default_factory=dict)
    newest: Progress | None = None
    progress_ms: int = 0
    times_ms: dict[tuple[str, int, int], int] = field(default_factory=dict)
    headers: dict[tuple[str, int, int], Headers] = field(default_factory=dict)
    compaction_lag_s: float = 60.0
    retention_s: float = 86_400.0
    dead: list[DeadLetter] = field(default_factory=list)
    state: dict[bytes, bytes] = field(default_factory=dict)

    def progress(self) -> Progress | None:
        """The newest progress record."""
        return self.newest

    def beyond(self, offsets: Offsets) -> bool:
        """Whether there is a record behind one of these offsets."""
        return any(
            topic in offsets and records and records[-1][0] >= offsets[topic].get(partition, 0)
            for (topic, partition), records in self.partitions.items()
        )

    def read(self, spans: Iterable[Span]) -> Iterator[RecordColumns]:
        """Each record of the spans as a lot of its own."""
        for span in spans:
            for offset, (key, value, pos, op, ver) in self.partitions.get((span.topic, span.partition), []):
                if max(0, span.start) <= offset < span.end:
                    time_ms = self.times_ms.get((span.topic, span.partition, offset), self.progress_ms)
                    more = self.headers.get((span.topic, span.partition, offset))
                    headers = {} if more is None else {0: more}
                    yield RecordColumns(
                        span.topic, span.partition, [offset], [time_ms], [key], [value], [pos], [op], [ver], headers
                    )

    def letters(self, start: int) -> tuple[Sequence[DeadLetter], int]:
        """See the protocol."""
        return self.dead[start:], len(self.dead)

    def documents(self) -> Mapping[bytes, bytes]:
        """See the protocol."""
        return self.state

    def shape(self, topic: str, version: int) -> TableSchema:
        """The shape of a topic's table. It has one version."""
        return self.shapes[topic]


@dataclass
class MemoryViewTopic:
    """A view's topic: what was committed, by partition. ``claims``: its progress records. ``writer``: who may write.
    ``held``: why nothing is published. ``topic_id``: Kafka's. ``answers``: to those who asked for documents once
    more."""

    records: dict[int, list[ViewRecord]] = field(default_factory=dict)
    claims: list[Fence] = field(default_factory=list)
    writer: int = 0
    held: Sequence[str] = ()
    topic_id: str = "first"
    answers: list[RunnerAnswer] = field(default_factory=list)


class MemoryViewOutput:
    """:class:`cdc.views.view_ports.ViewOutput`. The last one that was opened writes.

    ``before`` and ``after`` are called before and behind each commit: what they raise is a kill there.
    """

    def __init__(
        self, topic: MemoryViewTopic, before: Callable[[], None] | None = None, after: Callable[[], None] | None = None
    ) -> None:
        self._topic = topic
        topic.writer += 1
        self._writer = topic.writer
        self._before = before
        self._after = after
        self._newest: Position | None = None

    def publish(self, records: Sequence[ViewRecord], claim: Fence | None) -> Mapping[int, int]:
        """All records and the claim, or nothing. ActiveError when another one was opened since."""
        self._require_writer()
        if self._before is not None:
            self._before()
        for record in records:
            self._topic.records.setdefault(record.partition, []).append(record)
        if claim is not None:
            self._topic.claims.append(claim)
            self._topic.held = ()
        if self._after is not None:
            self._after()
        return {partition: len(found) for partition, found in self._topic.records.items()}

    def behind(self, ends: Mapping[int, int]) -> tuple[list[bytes], Mapping[int, int]]:
        """The keys behind offsets, and the ends."""
        found = [r for p, records in self._topic.records.items() for r in records[ends.get(p, 0) :]]
        self._newest = _newest(found)
        return [r.key for r in found], {partition: len(records) for partition, records in self._topic.records.items()}

    def newest(self) -> Position | None:
        """See the protocol."""
        return self._newest

    def tell(self, held: Sequence[str]) -> None:
        """See the protocol."""
        self._topic.held = held

    def claimed(self) -> Fence | None:
        """The newest claim."""
        return self._topic.claims[-1] if self._topic.claims else None

    def answer(self, answer: RunnerAnswer) -> None:
        """See the protocol. ActiveError when another one was opened since."""
        self._require_writer()
        if self._before is not None:
            self._before()
        self._topic.answers.append(answer)

    def answered(self) -> str:
        """See the protocol."""
        return self._topic.answers[-1].id if self._topic.answers else ""

    def _require_writer(self) -> None:
        if self._writer != self._topic.writer:
            raise ActiveError("another runner keeps this view now")


def _newest(records: Iterable[ViewRecord]) -> Position | None:
    return max((Position.parse(dict(r.headers)[POS].decode()) for r in records), default=None)
