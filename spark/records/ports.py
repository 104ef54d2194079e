"""The ports of the queries to the log, beside the records: small ports, put together in :mod:`cdc.wiring`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from cdc.figures.measures import Heads
from cdc.record.progress import EpochsState, Offsets, Progress
from cdc.record.schema import TableSchema


@dataclass(frozen=True, slots=True)
class SinkTopics:
    """The topics of a sink: ``ids`` topic -> Kafka's id of it, ``partitions`` topic -> how many are read.

    ``compaction_lag_s``: how old a record is at least before the cleaner may take it. ``retention_s``: how long the
    cleaner leaves the record of a delete (the least of all topics). ``views``: those that are a view's, each with its
    name as a table: capture's progress says nothing of them. ``histories``: those that are histories, each with the
    offsets that its partitions begin with now. Nothing is compacted there, and age alone removes records.
    ``streams``: those of streams, which no LSN speaks of.
    """

    ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    compaction_lag_s: float = 0.0
    retention_s: float = math.inf
    views: Mapping[str, str] = field(default_factory=dict)
    histories: Offsets = field(default_factory=dict, compare=False)
    streams: frozenset[str] = frozenset()

    def without(self, some: Collection[str]) -> SinkTopics:
        """The others."""
        ids = {topic: one for topic, one in self.ids.items() if topic not in some}
        partitions = {topic: n for topic, n in self.partitions.items() if topic in ids}
        views = {topic: table for topic, table in self.views.items() if topic in ids}
        histories = {topic: parts for topic, parts in self.histories.items() if topic in ids}
        return replace(
            self, ids=ids, partitions=partitions, views=views, histories=histories, streams=self.streams & ids.keys()
        )


class TopicLook(NamedTuple):
    """The topic that a position by offset rests on. ``epochs``: of each partition's leader, one for each partition."""

    topic_id: str
    epochs: Mapping[int, int]


class LogQuestions(Protocol):
    """Questions to the broker. LogError when it does not answer."""

    def topics(self, sink: str) -> SinkTopics:
        """The topics of this sink's tables as they are now. TopicError when one is gone, or is not the one that
        ``init`` made."""

    def ends(self, topics: SinkTopics) -> Offsets:
        """Where each partition ends now."""

    def epochs(self) -> EpochsState:
        """The epochs that were noted, and where each begins."""

    def rekeyed(self) -> frozenset[str]:
        """The topics that hold rows of Debezium's under a former key of their table."""

    def looks(self, topics: Collection[str]) -> Mapping[str, TopicLook] | None:
        """These topics as they are at the moment, those that there are. None where each record bears a position of its
        own, whichever topic it stands in: then nobody has to look."""

    def newest(self) -> tuple[int, int] | None:
        """The epoch and the LSN up to which the log holds the source now. None where nothing says it."""

    def schemas(self) -> list[TableSchema]:
        """Every version of every table, as the schema topic holds them now."""


class HeadReader(Protocol):
    """Reads the first record behind a place of a partition."""

    def read(self, places: Collection[tuple[str, int, int]], ends: Offsets) -> Heads:
        """For each (topic, partition, offset) what stands there or behind it, below ``ends``. Places of which nothing
        came in about a second are left out. LogError when it fails."""

    def close(self) -> None:
        """End the connection to the brokers."""


class ProgressFeed(Protocol):
    """The progress topic, followed."""

    def poll(self, timeout_s: float) -> list[Progress]:
        """Records since the last call, in order. Waits for the first at most so long. LogError when it fails."""

    def close(self) -> None:
        """End the connection to the brokers."""
