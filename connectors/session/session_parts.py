"""The part that each step of opening a session leaves for the next: frozen, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.position import Position
from cdc.progress import Offsets, Progress
from cdc.visibility import Visibility
from cdc.windows import Windows
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.postgres.assemble import Assembler
from connectors.postgres.connections import Connection
from connectors.postgres.reselect import PostgresReselect
from connectors.postgres.stream import ReplicationStream
from connectors.session.asides import Rounds, SetAside
from connectors.session.captured import CapturedTopics, Lanes, Running
from connectors.session.known_state import KnownState
from connectors.session.looks import Looks
from connectors.session.note_retry import NoteRetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers, checked to be the pipeline's own. ``side``: a session beside the stream. It holds the lock."""

    side: Connection
    admin: TopicAdmin
    known: KnownState


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStanding:
    """How far the log is. ``ends``: next offset of each written partition. ``position``: lsn of the newest progress
    record, or where the slot begins. ``written_lsn``: what the source had written behind ``ends``."""

    ends: Offsets
    progress: Progress | None
    position: int
    written_lsn: int

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
    lanes: Lanes
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
class Following:
    """The maker of the stream's records, and the windows for rows of later snapshots. ``later``: what carries those
    out. ``looks``: what asks the servers meanwhile. ``rounds``: follows tables again that were set aside."""

    windows: Windows
    reselect: PostgresReselect
    assembler: Assembler
    later: Running | None
    looks: Looks
    rounds: Rounds
