"""A log in memory for frames: the double of the ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cdc.record.progress import Offsets, Progress
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.records import RecordColumns
from spark.frames.frame_columns import chosen
from spark.frames.options import FrameOptions
from spark.frames.ports import EventTopic, FrameTopic, FrameTopics
from tests.memory_log import MemoryReading


@dataclass
class MemoryFrameLog:
    """Implements :class:`spark.frames.ports.FrameLog` over shapes and lots. Each topic ends behind its last record.

    ``lengths``: topic -> partition -> next offset, where a topic is longer than what is left of it.
    """

    shapes: list[TableSchema]
    lots: list[RecordColumns] = field(default_factory=list)
    partitions: int = 1
    compaction_lag_ms: int = 60_000
    last: Progress | None = None
    lengths: dict[str, dict[int, int]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    of_events: dict[str, EventTopic] = field(default_factory=dict)

    def find(self, patterns: Iterable[str]) -> FrameTopics:
        topics = {shape.table: shape.topic for shape in self.shapes}
        return FrameTopics(
            topics={
                table: FrameTopic(
                    topics[table], self.ids.get(topics[table], "id"), self.partitions, self.compaction_lag_ms
                )
                for table in chosen(topics, list(patterns), "shop")
            }
        )

    def versions(self, table: TableName) -> list[TableSchema]:
        return [shape for shape in self.shapes if shape.table == table]

    def ends(self, partitions: Mapping[str, int]) -> Offsets:
        return {topic: {p: self._end(topic, p) for p in range(count)} for topic, count in partitions.items()}

    def offsets_at(self, ends: Offsets, time_ms: int) -> Offsets:
        return {
            topic: {p: min(self._young(topic, p, time_ms), default=end) for p, end in parts.items()}
            for topic, parts in ends.items()
        }

    def progress(self) -> Progress | None:
        return self.last

    def newest_progress(self) -> Progress | None:
        return self.last

    def events(self, topic: str) -> EventTopic:
        return self.of_events[topic]

    def _end(self, topic: str, partition: int) -> int:
        known = self.lengths.get(topic, {}).get(partition, 0)
        return max((offset + 1 for lot in self._of(topic, partition) for offset in lot.offsets), default=known)

    def _young(self, topic: str, partition: int, time_ms: int) -> list[int]:
        return [
            offset
            for lot in self._of(topic, partition)
            for offset, at_ms in zip(lot.offsets, lot.times_ms, strict=True)
            if at_ms >= time_ms
        ]

    def _of(self, topic: str, partition: int) -> list[RecordColumns]:
        return [lot for lot in self.lots if (lot.topic, lot.partition) == (topic, partition)]


@dataclass
class MemoryConnect:
    """Implements :class:`spark.frames.ports.Connect`."""

    own: MemoryFrameLog
    given: Mapping[str, str] = field(default_factory=dict)

    def settings(self, path: str) -> Mapping[str, str]:
        return self.given

    def log(self, options: FrameOptions) -> MemoryFrameLog:
        return self.own

    def reading(self, options: FrameOptions) -> MemoryReading:
        return MemoryReading(tuple(self.own.lots))
