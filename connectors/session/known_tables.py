"""The facts that a session has before it streams: the state topic's documents, tables, topics and shapes. Pure but
for one look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cdc.capture.table_masks import MaskNotes, masks_of
from cdc.capture.transaction_visibility import Visibility
from cdc.capture.windows import Windows
from cdc.process.clock import Clock
from cdc.process.errors import ConfigError, DamagedError
from cdc.record.position import Position
from cdc.record.progress import EpochsState, Offsets, Progress, require_begun, require_turn
from cdc.record.source_lineage import SourceLineage
from cdc.record.state import ChunkState, SlotState, SnapshotState, TopicsState, find_all
from cdc.record.topic_names import progress_topic, schema_topic, state_topic
from cdc.settings.model import Settings
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.postgres.assembly.assembler import Assembler
from connectors.postgres.server.connections import Connection
from connectors.postgres.server.failover import Promotion
from connectors.postgres.server.reselect import PostgresReselect
from connectors.postgres.server.walsender import ReplicationStream
from connectors.session.asides import SessionAsides, SetAside
from connectors.session.captured_topics import CapturedTopics, PartitionNumbers, SessionWorker
from connectors.session.late_records import NoteRetry
from connectors.session.side_queries import SideQueries


class KnownTables(NamedTuple):
    """Read from the state topic and the topic of shapes."""

    topics: CapturedTopics
    asides: SetAside
    registry: SchemaRegistry


def known_tables(settings: Settings, known: KnownState, clock: Clock, waiting: Callable[[], None]) -> KnownTables:
    """Read them. ``waiting``: called while the brokers do not answer, may raise. Raises LogError."""
    state, shapes = (
        KafkaCompactedTopic(settings.log, topic, waiting=waiting)
        for topic in (state_topic(settings.name), schema_topic(settings.name))
    )
    documents = state.read()
    registry = SchemaRegistry(shapes, notes=MaskNotes(masks_of(settings), state, documents))
    asides = SetAside(
        state,
        documents,
        epoch=known.slot.epoch,
        clock=clock,
        histories=lambda table: topics.keeps_history(table),  # noqa: PLW0108 - the topics are known below
        accept=registry.accept_key,
    )
    topics = CapturedTopics(
        settings,
        known.topics,
        clock,
        registry=registry,
        waiting=waiting,
        asides=asides,
        documents=documents,
    )
    return KnownTables(topics, asides, registry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers, checked to be the pipeline's own. ``side``: a session beside the stream. It holds the lock."""

    side: Connection
    admin: TopicAdmin
    known: KnownState


@dataclass(frozen=True, slots=True)
class LogStanding:
    """How far the log is. ``ends``: next offset of each written partition. ``position``: lsn of the newest progress
    record, or where the slot begins. ``written_lsn``: what the source had written behind ``ends``. ``at_us``: the
    newest commit time that the log knows."""

    ends: Offsets
    progress: Progress | None
    position: int
    written_lsn: int
    at_us: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Topic -> number of partitions."""
        return {topic: len(parts) for topic, parts in self.ends.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The log, ready for the stream's records. ``bases``: first lane of each topic. ``seen``: lane -> the highest
    streamed position that it holds."""

    log: KafkaStreamLog
    bases: Mapping[str, int]
    seen: Mapping[int, Position]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The known tables: topics, lanes, registered shapes, which are set aside. ``note_retry``: ends when the
    session does."""

    topics: CapturedTopics
    asides: SetAside
    lanes: PartitionNumbers
    registry: SchemaRegistry
    note_retry: NoteRetry


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStream:
    """The stream, which nobody else can move now. ``visible``: a snapshot taken before it began. ``near_xid``: a 64-bit
    transaction id of now."""

    stream: ReplicationStream
    visible: Visibility
    near_xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAssembly:
    """The maker of the stream's records, and the windows for rows of later snapshots. ``later``: what carries those
    out. ``looks``: what asks the servers meanwhile. ``rounds``: follows tables again that were set aside."""

    windows: Windows
    reselect: PostgresReselect
    assembler: Assembler
    later: SessionWorker | None
    looks: SideQueries
    rounds: SessionAsides


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownState:
    """``cut_lsn``: the last moment at which the first snapshot read. ``promotion``: the server is a standby of the one
    that the pipeline was on, and ``slot`` has its timeline. ``noted``: the state topic has ``slot`` as it is here."""

    topics: TopicsState
    slot: SlotState
    epochs: EpochsState
    cut_lsn: int
    promotion: Promotion | None = None
    noted: bool = True

    @property
    def lineage(self) -> SourceLineage:
        """The server whose WAL the session's progress records speak of."""
        return SourceLineage.of_slot(self.slot)


def snapshot_stand(documents: Mapping[bytes, bytes]) -> tuple[int, int] | None:
    """Of the first snapshot's chunks, how many are done and how many are planned. None while none runs."""
    head = SnapshotState.find(documents)
    if head is None or head.state == "complete":
        return None
    chunks = find_all(documents, ChunkState)
    newest: dict[str, int] = {}
    for chunk in chunks:
        newest[chunk.table] = max(chunk.generation, newest.get(chunk.table, 0))
    counted = [chunk for chunk in chunks if chunk.generation == newest[chunk.table]]
    return sum(chunk.state == "done" for chunk in counted), len(counted)


def known_of(documents: Mapping[bytes, bytes], *, name: str) -> KnownState | str:
    """The known state of the pipeline ``name``, once its first snapshot is complete. Until then the cause it waits for.

    Compaction keeps what came last, so no change may come before. ConfigError when ``cdc init`` is due, or it is
    another's turn to write. DamagedError where the noted topics are not those of the tables.
    """
    require_turn(documents, "native")
    topics, slot, snapshot = TopicsState.find(documents), SlotState.find(documents), SnapshotState.find(documents)
    epochs = EpochsState.find(documents) or EpochsState()
    require_begun(epochs, slot)
    if topics is None:
        raise ConfigError("the pipeline has no topics yet", hint="cdc init makes them")
    written = {*topics.written, progress_topic(name)}
    if not topics.topics.keys() >= written:
        [missing, *_] = sorted(written - topics.topics.keys())
        raise DamagedError(f"the topics document in the state topic says nothing of {missing}")
    if slot is not None and snapshot is not None and snapshot.state == "complete":
        return KnownState(topics=topics, slot=slot, epochs=epochs, cut_lsn=snapshot.last_cut_lsn)
    return "cdc snapshot has not been run" if snapshot is None else "the snapshot is not complete"
