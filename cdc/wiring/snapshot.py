"""The snapshot's edges: plain data, because worker processes open their own sessions and producers from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.settings import Settings
from cdc.state import TopicsState
from cdc.wiring import open_schemas, open_state, require_broker

if TYPE_CHECKING:
    from cdc.checks.facts import PublicationFacts, ServerFacts, SlotFacts
    from cdc.ports import CompactedTopic
    from cdc.schema import TableSchema
    from cdc.state import SlotState
    from connectors.kafka.schemas import SchemaRegistry
    from snapshot.ports import Captured, Reporter, RowLog, Session
    from snapshot.run import FirstSnapshot
    from snapshot.summary import Summary as SnapshotSummary

__all__ = ["SnapshotEdges", "SnapshotSummary", "build_snapshot"]

_WORKER_MEMORY_BYTES = 32 * 1024**2
"""Records in flight of one worker."""


def build_snapshot(settings: Settings, reporter: Reporter, *, workers: int | None = None) -> FirstSnapshot:
    """One run of the first snapshot; ``workers`` over the settings'. LogError, at once, when no broker takes a
    connection."""
    from snapshot.run import FirstSnapshot

    require_broker(settings)
    return FirstSnapshot(SnapshotEdges(settings), reporter, workers=workers)


@dataclass(frozen=True, slots=True)
class SnapshotEdges:
    """:class:`snapshot.ports.Edges` on Postgres and Kafka."""

    settings: Settings

    @property
    def source(self) -> SnapshotSource:
        return SnapshotSource(self.settings)

    @property
    def log(self) -> SnapshotLog:
        return SnapshotLog(self.settings)

    @property
    def lock(self) -> tuple[int, int]:
        from connectors.postgres.session import writer_lock

        return writer_lock(self.settings.name)


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """:class:`snapshot.ports.Source` on Postgres."""

    settings: Settings

    def session(self, application_name: str, *, replication: bool = False, lock_timeout_s: float = 0) -> Session:
        from connectors.postgres.session import connect

        return connect(
            self.settings.source,
            application_name=application_name,
            replication=replication,
            options={"lock_timeout": str(int(lock_timeout_s * 1000))},
        )

    def tables(self, session: Session) -> Sequence[Captured]:
        from connectors.postgres.catalog import resolve_tables

        return resolve_tables(session, self.settings)

    def shape(self, session: Session, table: Captured) -> TableSchema:
        from connectors.postgres.catalog import table_schema

        return table_schema(
            session,
            table.oid,
            topic=table.topic,
            encoding=self.settings.log.encoding,
            publication=self.settings.publication,
        )

    def require(self, session: Session, known: SlotState, position: int) -> None:
        from connectors.postgres.facts import read_server, read_slot
        from connectors.postgres.failover import require_not_promoted
        from connectors.postgres.session import describe
        from connectors.postgres.slot import require_same_server, require_usable

        server, slot = read_server(session), read_slot(session, known.slot)
        require_not_promoted(server, known, slot)
        require_same_server(server, known, describe(self.settings.source))
        require_usable(slot, known, position)

    def facts(self, session: Session) -> tuple[ServerFacts, SlotFacts | None, PublicationFacts | None]:
        from connectors.postgres.facts import read_publication, read_server, read_slot

        return (
            read_server(session),
            read_slot(session, self.settings.slot),
            read_publication(session, self.settings.publication),
        )


@dataclass(frozen=True, slots=True)
class SnapshotLog:
    """:class:`snapshot.ports.Log` on Kafka."""

    settings: Settings

    def state(self) -> CompactedTopic:
        return open_state(self.settings)

    def shapes(self) -> SchemaRegistry:
        return open_schemas(self.settings)

    def rows(self) -> RowLog:
        from connectors.kafka.bulk import BulkLog

        log = self.settings.log
        oversized = None
        if "dead-letter" in (log.oversized, *log.oversized_tables.values()):
            from connectors.kafka.oversized import Oversized

            topics = TopicsState.find(open_state(self.settings).read())
            oversized = Oversized.of(self.settings, topics.tables if topics is not None else {})
        return BulkLog(log, memory_limit=_WORKER_MEMORY_BYTES, oversized=oversized)

    def check(self, topics: TopicsState) -> None:
        from connectors.kafka.admin import TopicAdmin, raise_first, state_problems

        admin = TopicAdmin(self.settings.log)
        raise_first(state_problems(topics, admin.describe(topics.topics), admin.cluster_id()))
