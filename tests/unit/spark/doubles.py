"""The log in memory, as stores see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cdc.record.progress import EpochsState, Offsets, Progress
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.dead_letter import DeadLetter
from spark.records.ports import SinkTopics, TopicLook
from tests.unit.spark.records import TOPIC


def orders(version: int = 1, *, extra: tuple[str, ...] = ()) -> TableSchema:
    """The shape of ``public.orders``: id, status, and text columns behind."""
    names = ("status", *extra)
    return TableSchema(
        table=TableName("public", "orders"),
        topic=TOPIC,
        version=version,
        oid=1,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=(
            Column(name="id", attnum=1, type="int8", type_oid=20, kind="int8", nullable=False, key_position=1),
            *(
                Column(name=name, attnum=number, type="text", type_oid=25, kind="text")
                for number, name in enumerate(names, 2)
            ),
        ),
    )


@dataclass
class MemoryFacts:
    """:class:`spark.records.ports.LogQuestions`: say what it answers."""

    shapes: list[TableSchema] = field(default_factory=lambda: [orders()])
    end: int = 1000
    topic_id: str = "id1"
    partitions: int = 1
    noted: EpochsState = field(default_factory=EpochsState)
    asked_shapes: int = 0
    reaches: tuple[int, int] | None = None
    views: Mapping[str, str] = field(default_factory=dict)
    keyed_anew: frozenset[str] = frozenset()
    seen: dict[str, TopicLook] | None = None
    """As they are found when they are looked at. None where nobody looks."""

    def topics(self, sink: str) -> SinkTopics:
        ids, partitions = {TOPIC: self.topic_id}, {TOPIC: self.partitions}
        return SinkTopics(ids=ids, partitions=partitions, compaction_lag_s=60.0, views=self.views)

    def ends(self, topics: SinkTopics) -> Offsets:
        return {TOPIC: dict.fromkeys(range(self.partitions), self.end)}

    def epochs(self) -> EpochsState:
        return self.noted

    def rekeyed(self) -> frozenset[str]:
        return self.keyed_anew

    def looks(self, topics: Collection[str]) -> Mapping[str, TopicLook] | None:
        return None if self.seen is None else {topic: self.seen[topic] for topic in topics if topic in self.seen}

    def newest(self) -> tuple[int, int] | None:
        return self.reaches

    def schemas(self) -> list[TableSchema]:
        self.asked_shapes += 1
        return list(self.shapes)


@dataclass
class MemoryDead:
    """:class:`cdc.wire.dead_letter.DeadLetters`; ``failures`` are raised before anything is taken, behind ``look``."""

    letters: list[DeadLetter] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    look: Callable[[], None] = lambda: None

    def read(self) -> list[DeadLetter]:
        return list(self.letters)

    def write(self, letters: Iterable[DeadLetter]) -> None:
        self.look()
        if self.failures:
            raise self.failures.pop(0)
        self.letters.extend(letters)


@dataclass
class MemoryFeed:
    """:class:`spark.records.ports.ProgressFeed`: what is put into ``waiting`` comes out once."""

    waiting: list[Progress] = field(default_factory=list)
    closed: bool = False

    def poll(self, timeout_s: float) -> list[Progress]:
        found, self.waiting = self.waiting, []
        return found

    def close(self) -> None:
        self.closed = True
