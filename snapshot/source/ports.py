"""The ports of a snapshot. Put together in :mod:`cdc.wiring`.

Everything here is handed to worker processes, so an implementation is plain data that opens things when asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import psycopg

from cdc.capture.transaction_visibility import Visibility
from cdc.record.ports import CompactedTopic, Headers
from cdc.record.schema import TableSchema
from cdc.record.server_facts import PublicationFacts, ServerFacts, SlotFacts
from cdc.record.state import ReadingState, RequestState, SlotState, TopicsState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from cdc.wire.records import LoggedRecord

Session = psycopg.Connection[Any]


class Problem(Protocol):
    """Why a table cannot be captured, and what helps."""

    @property
    def message(self) -> str:
        """The fault, as a sentence in the user's words."""

    @property
    def hint(self) -> str:
        """The remedy."""


class LeafPort(Protocol):
    """A table that holds rows."""

    @property
    def oid(self) -> int:
        """The oid of the table."""

    @property
    def table(self) -> TableName:
        """Its name with its schema."""


class Captured(Protocol):
    """A table that the settings name, with the tables that hold its rows: itself, or its partitions."""

    @property
    def oid(self) -> int:
        """The oid of the table, for a partitioned one that of its root."""

    @property
    def table(self) -> TableName:
        """Its name with its schema."""

    @property
    def topic(self) -> str:
        """The topic of its records."""

    @property
    def leaves(self) -> Sequence[LeafPort]:
        """The tables that store its rows: itself, or its partitions."""

    @property
    def problems(self) -> Sequence[Problem]:
        """The faults that keep it from being captured. Empty where nothing does."""


class SourcePort(Protocol):
    """The database. Sessions have their text form and timeouts pinned."""

    def session(self, application_name: str, *, replication: bool = False, lock_timeout_s: float = 0) -> Session:
        """A new session, in autocommit mode. SourceError or ConfigError when there is none."""

    def tables(self, session: Session) -> Sequence[Captured]:
        """The captured tables, by name. ConfigError when the settings name one that does not exist."""

    def shape(self, session: Session, table: Captured) -> TableSchema:
        """A table's columns as the publication delivers them, not yet registered."""

    def require(self, session: Session, known: SlotState, position: int) -> None:
        """IdentityError or SlotError unless it is the same server, and its slot still has all from ``position`` on."""

    def facts(self, session: Session) -> tuple[ServerFacts, SlotFacts | None, PublicationFacts | None]:
        """The server, the slot and the publication that the settings name."""


class LaterSourcePort(SourcePort, Protocol):
    """The database, as later snapshots need it. Its ``tables`` are those that exist. None hides another."""

    def barrier(self, session: Session) -> Visibility:
        """The transactions visible now. Every one that is not ended is in its list of running ones."""


class TopicsPort(Protocol):
    """The topic of each table."""

    def topic(self, table: TableName) -> str | None:
        """The table's topic. None when it has none as far as is known."""

    def refresh(self) -> None:
        """Read what others may have added."""

    @property
    def new_partitions(self) -> Mapping[str, Mapping[str, int]]:
        """Partitions of which the stream has brought changes, and that no look has compared: table -> oid -> the
        transaction that attached it."""

    def settle_partitions(self, compared: Mapping[str, Mapping[str, int]]) -> None:
        """A look has compared these, and what it found is with the brokers."""

    def hindrance(self, request: RequestState) -> str:
        """Why the table of a request must not be read now. Empty where it may be."""

    def read(self, state: ReadingState) -> None:
        """A reading is over."""

    def add(self, table: Any, reason: str) -> str:
        """Make a table's topic, note it and ask for its rows. ConfigError when it cannot be captured."""


class Feed(Protocol):
    """The state topic, followed."""

    @property
    def caught_up(self) -> bool:
        """Whether its end has been seen once."""

    def poll(self, timeout_s: float) -> Sequence[tuple[bytes, bytes | None]]:
        """Records since the last call, in order. LogError when it fails."""

    def close(self) -> None:
        """End the connection to the brokers."""


class Shapes(Protocol):
    """The registry of shapes."""

    def register(self, schema: TableSchema) -> TableSchema:
        """The shape with the version it is known by. Brokers hold it before this returns."""

    def get(self, table: TableName, version: int) -> TableSchema:
        """The shape of a table at a version. KeyError where it was never registered."""

    @property
    def size(self) -> int:
        """How many versions are known."""

    def versions(self) -> Sequence[TableSchema]:
        """Every version of every table, older ones first."""


class RowLog(Protocol):
    """The topics, for one of several writers. A refused row raises PoisonError at the next call of anything here."""

    def rows(self, topic: str, partition_count: int, pairs: Iterable[tuple[bytes, bytes]], headers: Headers) -> None:
        """Hand over (key, value) pairs. May block while the queue is full."""

    def produce(self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers) -> None:
        """Hand one record over, to a partition of the caller's choice."""

    def flush(self, timeout_s: float) -> None:
        """Return when the brokers hold everything. LogError when that takes longer."""

    def abort(self) -> None:
        """Send nothing more."""


class LogPort(Protocol):
    """The cluster."""

    def state(self) -> CompactedTopic:
        """The state topic."""

    def shapes(self) -> Shapes:
        """The registry of shapes, as the brokers have it now."""

    def rows(self) -> RowLog:
        """A writer of rows. Each call opens one of its own."""

    def check(self, topics: TopicsState) -> None:
        """TopicError when a topic is gone, made anew, or has another partition count than it was made with."""


class InspectionEdges(Protocol):
    """The ports of a look at the catalog."""

    @property
    def settings(self) -> Settings:
        """The pipeline's settings."""

    @property
    def source(self) -> SourcePort:
        """The database."""


class LaterEdges(Protocol):
    """Everything that later snapshots need."""

    @property
    def settings(self) -> Settings:
        """The pipeline's settings."""

    @property
    def source(self) -> LaterSourcePort:
        """The database."""

    @property
    def state(self) -> CompactedTopic:
        """The state topic, for single reads and writes."""

    @property
    def shapes(self) -> Shapes:
        """The registry of shapes."""

    @property
    def topics(self) -> TopicsPort:
        """The captured tables and their topics."""

    def feed(self) -> Feed:
        """Follow the state topic from its beginning on. LogError when the brokers do not answer."""

    def records(self, topic: str, most: int) -> Iterator[LoggedRecord] | None:
        """Every record of a table's topic as it is now, each partition's in order. None where there are more than
        ``most``. LogError, and Closed when the session ends."""


class Edges(Protocol):
    """Everything at once."""

    @property
    def settings(self) -> Settings:
        """The pipeline's settings."""

    @property
    def source(self) -> SourcePort:
        """The database."""

    @property
    def log(self) -> LogPort:
        """The cluster."""

    @property
    def lock(self) -> tuple[int, int]:
        """The advisory lock under which the topics are written: shared by workers, exclusive for capture."""


class Reporter(Protocol):
    """Receives the progress of a snapshot. Calls come from one thread."""

    def say(self, sentence: str) -> None:
        """Something a person wants to know."""

    def plan(self, tables: Mapping[str, TableTotals]) -> None:
        """The tables and what is known of their size. Again when it changes."""

    def progress(self, table: str, rows: int, share: float) -> None:
        """Rows read so far, those of earlier runs included, and how much of the table that is, 0 to 1."""


class NoReport:
    """A reporter that nobody listens to. Implements :class:`Reporter`."""

    def say(self, sentence: str) -> None: ...

    def plan(self, tables: Mapping[str, TableTotals]) -> None: ...

    def progress(self, table: str, rows: int, share: float) -> None: ...


class TableTotals(Protocol):
    """A table as it is planned."""

    @property
    def row_estimate(self) -> int:
        """About how many rows it has, by the catalog."""

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
