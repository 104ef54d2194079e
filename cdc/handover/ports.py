"""The ports of a handover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.handover.keys import KeyQuestion
from cdc.ports import CompactedTopic, Topics
from cdc.schema import TableSchema


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

    def publish_everything(self) -> bool:
        """Let the publication send every kind of change, TRUNCATE too. False when it does already."""


class Keys(Protocol):
    """Questions to the source's tables about their keys."""

    def primary(self) -> Mapping[str, Sequence[str]]:
        """Table -> the columns of its primary key, empty without one."""

    def answer(self, questions: Sequence[KeyQuestion]) -> Sequence[KeyQuestion]:
        """Those of the questions that a row answers with yes."""


class ConnectorState(NamedTuple):
    """``differing``: options that run otherwise than the settings want. ``unread``: why rows may be missing that it was
    asked for, as a sentence. Empty where none are. ``shown_lsn``: every commit below it is in the topics. None before
    its snapshot is complete. ``messages``: the topic of logical messages, where there is one."""

    differing: Sequence[str]
    unread: str
    shown_lsn: int | None
    messages: str = ""


class DebeziumConnector(Protocol):
    """Debezium's connector. Every method may be repeated. ConnectError when Kafka Connect refuses or is silent."""

    def facts(self) -> ConnectorState:
        """How it runs. ConnectError when it, or a task of it, has failed or is not there."""

    def stop(self) -> bool:
        """End its tasks, and return when they have ended. False where there is no connector."""

    def withdraw(self) -> bool:
        """Remove it with its offsets. False where there is none."""

    def unread(self) -> str:
        """Why rows may be missing that it was asked for, also where it is stopped. Empty where none are."""

    def resume(self) -> None:
        """Start it. Returns when it runs."""


class NativeWriter(Protocol):
    """The native capture."""

    def prepare(self) -> None:
        """Check or make publication, topics and shapes, as ``cdc init`` does."""

    def shapes(self) -> Sequence[TableSchema]:
        """The newest shape of each table that the schema topic knows."""


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
