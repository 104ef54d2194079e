"""The ports of a handover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.handover.keys import KeyQuestion
from cdc.ports import CompactedTopic, Topics
from cdc.progress import Offsets
from cdc.schema import TableSchema
from cdc.state import SlotState, TopicsState


class LockedSession(NamedTuple):
    """A session of the source that holds the native writer's lock."""

    pid: int
    application: str


class HandoverDatabase(Protocol):
    """The Postgres server. SourceError when it does not answer."""

    def facts(self) -> tuple[ServerFacts, SlotFacts | None]:
        """The server, and the pipeline's slot. None where the server has none."""

    def writer(self) -> LockedSession | None:
        """The session that holds the native writer's lock, if one does."""

    def mark(self) -> int:
        """Write a transaction of its own, so that the stream moves. An LSN below it, above all before."""

    def publish_everything(self) -> bool:
        """Let the publication send every kind of change, TRUNCATE too. False when it does already."""


class Keys(Protocol):
    """Questions to the source's tables about their keys."""

    def primary(self) -> Mapping[str, Sequence[str]]:
        """Table -> the columns of its primary key, empty without one."""

    def answer(self, questions: Sequence[KeyQuestion]) -> Sequence[KeyQuestion]:
        """Those of the questions that a row answers with yes."""


class ConnectorState(NamedTuple):
    """``differing``: options that run otherwise than the settings want. ``incremental``: it reads an incremental
    snapshot just now. ``shown_lsn``: every commit below it is in the topics. None before its snapshot is complete."""

    differing: Sequence[str]
    incremental: bool
    shown_lsn: int | None


class DebeziumConnector(Protocol):
    """Debezium's connector. Every method may be repeated. ConnectError when Kafka Connect refuses or is silent."""

    def facts(self) -> ConnectorState:
        """How it runs. ConnectError when it, or a task of it, has failed or is not there."""

    def stop(self) -> bool:
        """End its tasks, and return when they have ended. False where there is no connector."""

    def withdraw(self) -> bool:
        """Remove it with its offsets. False where there is none."""

    def place_stopped(self, lsn: int) -> None:
        """Let it stand there, stopped, so that its next start reads from ``lsn`` on and takes no snapshot."""

    def resume(self) -> None:
        """Start it. Returns when it runs."""


class NativeWriter(Protocol):
    """The native capture."""

    def prepare(self) -> None:
        """Check or make publication, topics and shapes, as ``cdc init`` does."""

    def shapes(self) -> Sequence[TableSchema]:
        """The newest shape of each table that the schema topic knows."""

    def write_up_to(self, mark: int) -> int:
        """Write every transaction up to the first that ends beyond ``mark``, acknowledge it, and stop. Its end."""

    def ahead(self, slot: SlotState, topics: TopicsState, start: int, ends: Offsets) -> Mapping[str, Mapping[int, str]]:
        """Topic -> partition -> the position of the newest record below ``ends``, where it lies above ``start``.

        The slot is read from ``start`` on, and stays where it is.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverPorts:
    """Everything that a handover uses. ``state``, ``progress``: the pipeline's topics of those names."""

    source: HandoverDatabase
    keys: Keys
    connector: DebeziumConnector
    native: NativeWriter
    topics: Topics
    state: CompactedTopic
    progress: CompactedTopic
