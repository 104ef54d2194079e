"""Postgres and Kafka as snapshots use them: :mod:`snapshot.source.ports`. Plain data, because worker processes open
their own sessions and producers from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Message

from cdc.capture.table_masks import MaskNotes, masks_of, rules_of
from cdc.capture.transaction_visibility import Visibility
from cdc.capture.windows import Windows
from cdc.process.clock import Clock
from cdc.process.errors import ConfigError
from cdc.record.ports import CompactedTopic
from cdc.record.schema import TableSchema
from cdc.record.server_facts import PublicationFacts, ServerFacts, SlotFacts
from cdc.record.state import SlotState, TopicsState
from cdc.record.topic_names import schema_topic, state_topic
from cdc.settings.model import Settings
from cdc.wire.records import Headers, LoggedRecord, split_headers
from connectors.kafka import compacted_topic as compacted
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import facts_of_made
from connectors.kafka.bulk import BulkLog, read_small
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.dead_letters import Oversized
from connectors.kafka.feed import CompactedFeed
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.topic_problems import raise_first, state_problems
from connectors.postgres.server.catalog_facts import read_publication, read_server, read_slot
from connectors.postgres.server.catalog_shapes import captured_schema, resolve_tables
from connectors.postgres.server.connections import connect, describe, writer_lock
from connectors.postgres.server.failover import require_not_promoted
from connectors.postgres.server.slot import barrier, require_same_server, require_usable
from connectors.postgres.server.table_selection import note_parts
from connectors.session.captured_topics import CapturedTopics, Later
from snapshot.later.request_scheduler import RequestScheduler
from snapshot.source.ports import Captured, RowLog, Session

log = logging.getLogger(__name__)

_WORKER_MEMORY_BYTES = 32 * 1024**2
"""Records in flight of one worker."""


@dataclass(frozen=True, slots=True)
class SnapshotEdges:
    """:class:`snapshot.source.ports.Edges` on Postgres and Kafka."""

    settings: Settings

    @property
    def source(self) -> SnapshotSource:
        return SnapshotSource(self.settings)

    @property
    def log(self) -> SnapshotLog:
        return SnapshotLog(self.settings)

    @property
    def lock(self) -> tuple[int, int]:
        return writer_lock(self.settings.name)


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """:class:`snapshot.source.ports.SourcePort` on Postgres."""

    settings: Settings

    def session(self, application_name: str, *, replication: bool = False, lock_timeout_s: float = 0) -> Session:
        return connect(
            self.settings.source,
            application_name=application_name,
            replication=replication,
            options={"lock_timeout": str(int(lock_timeout_s * 1000))},
        )

    def tables(self, session: Session) -> Sequence[Captured]:
        if self.settings.tables:
            state = compacted.KafkaCompactedTopic(self.settings.log, state_topic(self.settings.name))
            note_parts(session, MaskNotes(rules_of(self.settings), state, state.read()))
        return resolve_tables(session, self.settings)

    def shape(self, session: Session, table: Captured) -> TableSchema:
        return captured_schema(session, self.settings, table.oid, topic=table.topic)

    def require(self, session: Session, known: SlotState, position: int) -> None:
        server, slot = read_server(session), read_slot(session, known.slot)
        require_not_promoted(server, known, slot)
        require_same_server(server, known, describe(self.settings.source))
        require_usable(slot, known, position)

    def facts(self, session: Session) -> tuple[ServerFacts, SlotFacts | None, PublicationFacts | None]:
        return (
            read_server(session),
            read_slot(session, self.settings.slot),
            read_publication(session, self.settings.publication),
        )


@dataclass(frozen=True, slots=True)
class SnapshotLog:
    """:class:`snapshot.source.ports.LogPort` on Kafka."""

    settings: Settings

    def state(self) -> CompactedTopic:
        return compacted.KafkaCompactedTopic(self.settings.log, state_topic(self.settings.name))

    def shapes(self) -> SchemaRegistry:
        topic, state = compacted.KafkaCompactedTopic(self.settings.log, schema_topic(self.settings.name)), self.state()
        return SchemaRegistry(topic, notes=MaskNotes(masks_of(self.settings), state, state.read()))

    def rows(self) -> RowLog:
        log = self.settings.log
        oversized = None
        if "dead-letter" in (log.oversized, *log.oversized_tables.values()):
            topics = TopicsState.find(self.state().read())
            oversized = Oversized.of(self.settings, topics.tables if topics is not None else {})
        return BulkLog(log, memory_limit=_WORKER_MEMORY_BYTES, oversized=oversized)

    def check(self, topics: TopicsState) -> None:
        admin = TopicAdmin(self.settings.log)
        raise_first(state_problems(topics, facts_of_made(admin, topics.topics), admin.cluster_id()))


@dataclass(frozen=True, slots=True)
class PostgresLaterSource(SnapshotSource):
    """:class:`snapshot.source.ports.LaterSourcePort` on Postgres. ``notes``: gets the parts of tables with masks, at
    each look."""

    notes: MaskNotes = field(compare=False)
    _told: set[str] = field(default_factory=set, compare=False)

    def tables(self, session: Session) -> Sequence[Captured]:
        # First: one that leaves its table right behind this is known then.
        note_parts(session, self.notes)
        return resolve_tables(session, self.settings, missing=self._tell)

    def _tell(self, missing: ConfigError) -> None:
        if missing.message not in self._told:
            self._told.add(missing.message)
            log.warning("tables_missing", extra={"why": missing.message})

    def barrier(self, session: Session) -> Visibility:
        return barrier(session)


@dataclass(frozen=True, slots=True)
class CaptureEdges:
    """:class:`snapshot.source.ports.LaterEdges` inside a capture session."""

    settings: Settings
    source: PostgresLaterSource
    state: CompactedTopic
    shapes: SchemaRegistry
    topics: CapturedTopics
    require_open: Callable[[], None] = lambda: None

    def records(self, topic: str, most: int) -> Iterator[LoggedRecord] | None:
        found = read_small(self.settings.log, topic, most, waiting=self.require_open)
        return None if found is None else (_record(message) for message in found)

    def feed(self) -> CompactedFeed:
        return CompactedFeed(self.settings.log, state_topic(self.settings.name))


def _record(message: Message) -> LoggedRecord:
    pos, op, _ = split_headers(cast(Headers, message.headers() or ()))
    return LoggedRecord(message.partition() or 0, message.key(), message.value(), pos, op)


def later_of(settings: Settings, clock: Clock) -> Later:
    """The factory of a session's later snapshots. See :data:`connectors.session.captured_topics.Later`."""

    def later(windows: Windows, topics: CapturedTopics, shapes: SchemaRegistry, epoch: int) -> RequestScheduler:
        state = KafkaCompactedTopic(settings.log, state_topic(settings.name), waiting=windows.require_open)
        source = PostgresLaterSource(settings, notes=shapes.notes)
        edges = CaptureEdges(settings, source, state, shapes, topics, windows.require_open)
        return RequestScheduler(edges, windows, epoch=epoch, clock=clock)

    return later
