"""How frames ask the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cdc.record.progress import Offsets, Progress
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.records import ReaderOpener
from spark.frames.options import FrameOptions


class FrameTopic(NamedTuple):
    """A table's topic as it is now. ``id``: Kafka's own, another one for a topic made anew."""

    topic: str
    id: str
    partitions: int
    compaction_lag_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTopics:
    """The topics of a frame: table -> topic."""

    topics: Mapping[TableName, FrameTopic]

    @property
    def partitions(self) -> dict[str, int]:
        """topic -> partition count."""
        return {one.topic: one.partitions for one in self.topics.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTopic:
    """A topic of events as it is now. ``starts``: partition -> the first offset that is left. ``ours``: the pipeline
    writes it. ``append_time``: its records have the broker's time. ``keep_ms``: how long they stay, -1 for ever."""

    topic: str
    id: str
    partitions: int
    starts: Mapping[int, int]
    ours: bool
    compacted: bool
    append_time: bool
    keep_ms: int


class FrameLog(Protocol):
    """The log of one pipeline. Each answer is as of its call. LogError when the brokers do not answer, TopicError and
    UsageError where what was asked for is not there."""

    def find(self, patterns: Iterable[str]) -> FrameTopics:
        """The topics of the tables that the patterns name."""
        ...

    def versions(self, table: TableName) -> list[TableSchema]:
        """Every version of a table's shape, older ones first."""
        ...

    def ends(self, partitions: Mapping[str, int]) -> Offsets:
        """The next offsets of all partitions of topics (topic -> partition count), below each open transaction."""
        ...

    def offsets_at(self, ends: Offsets, time_ms: int) -> Offsets:
        """The first offset of each partition whose record is as young as a time, its end where none is."""
        ...

    def progress(self) -> Progress | None:
        """The newest progress record."""
        ...

    def newest_progress(self) -> Progress | None:
        """The same, by a reader that is kept: for one who asks again and again."""
        ...

    def events(self, topic: str) -> EventTopic:
        """A topic of events. TopicError where there is none."""
        ...


class Connect(Protocol):
    """Opens what a frame reads through: the log for the driver, and what opens a reader in a task."""

    def settings(self, path: str) -> Mapping[str, str]:
        """The options that a settings file gives. ConfigError where it cannot be read."""
        ...

    def log(self, options: FrameOptions) -> FrameLog:
        """The pipeline's log. LogError, at once, when no broker takes a connection."""
        ...

    def reading(self, options: FrameOptions) -> ReaderOpener:
        """The opener of a reader. It is plain data, holds references and no secret, and can be pickled."""
        ...
