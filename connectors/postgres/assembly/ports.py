"""The ports of an assembler: what it asks, what it gets at its start, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cdc.capture.advance import CommitTimes
from cdc.record.ports import Record
from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.record.tables_aside import CannotFollow
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import Masks
from connectors.postgres.assembly.outbox_events import OutboxPorts
from connectors.postgres.assembly.pending_records import Reselect, Undecided
from connectors.postgres.encoding.encoder import TableEncoder
from connectors.postgres.protocol.messages import Relation


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The members of every record that say where it comes from."""

    name: str
    database: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Memory, in bytes: records buffered, wide rows remembered, rows to be netted before they are spilled, records of
    tables that wait before they are spilled, and how many bytes of these there may be in all."""

    held_bytes: int = 8 << 20
    recent_bytes: int = 8 << 20
    netted_bytes: int = 32 << 20
    waiting_memory_bytes: int = 16 << 20
    waiting_bytes: int = 1 << 30
    spill_folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A transaction of which every record was returned. ``xid``: 64 bit. ``rows``: its row messages."""

    xid: int
    commit_lsn: int
    end_lsn: int
    committed_us: int
    rows: int


class SchemaSource(Protocol):
    """Knows tables by their announcements."""

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        """The table's shape with its version, known to every reader before this returns. None: not captured, or set
        aside. CannotFollow for a table that has to be set aside.

        LATER when the catalog has to be read for it and does not show yet what transaction ``xid`` (64 bit) did, for
        ``timeout_s``. 0 for an announcement that was kept until now."""


class AsideRegister(Protocol):
    """Keeps which tables are set aside."""

    def set_aside(self, table: TableName, why: CannotFollow, since_lsn: int, xid: int) -> None:
        """Durably note that the log lacks the table's changes of commits from ``since_lsn`` on, unless that is noted
        already. ``xid``: the newest transaction of the stream. Raises ``why`` for a table that is never set aside."""


class Never:
    """Sets no table aside. Implements :class:`AsideRegister`."""

    def set_aside(self, table: TableName, why: CannotFollow, since_lsn: int, xid: int) -> None:
        raise why


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The result of one feed: its records, in order, and the transactions that are complete with them. The lists are
    the caller's."""

    records: list[Record]
    commits: list[Committed]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblerPorts:
    """The questions of an assembler, and the outlet for records that one answer cannot carry.

    ``lanes`` gives a topic's first lane and how many there are. ``partition`` is (key, count) -> partition.
    ``overflow`` receives records before :meth:`Assembler.feed` returns, where one feed makes too many for memory: they
    come before those that it returns. ``encoder`` makes a shape's encoder, or finds one that was made before. ``tell``
    is called when a table begins to wait (true) and when it follows again. ``asides`` keeps which tables are set aside.
    ``topic`` gives a table's, None while it has none. ``kept`` is called with an announcement that is not asked of
    ``schemas`` yet, because its table cannot be read, and raises CannotFollow for one whose rows must not be kept.
    ``masks``: of the tables' columns. A row is masked before anything keeps it. ``outbox``: None without one.
    """

    schemas: SchemaSource
    lanes: Callable[[str], tuple[int, int]]
    partition: Callable[[bytes, int], int]
    reselect: Reselect
    overflow: Callable[[list[Record]], object]
    masks: Masks
    encoder: Callable[[TableSchema], TableEncoder] | None = None
    tell: Callable[[TableName, bool], None] = lambda table, waits: None
    asides: AsideRegister = field(default_factory=Never)
    topic: Callable[[TableName], str | None] = lambda table: None
    kept: Callable[[Relation], None] = lambda relation: None
    outbox: OutboxPorts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where an assembler begins. ``near_xid``: any 64-bit transaction id of now. In the log already are transactions
    with ``commit_lsn < after_lsn``, and in each lane the records up to its position in ``seen``. ``times``: of the
    commits so far."""

    near_xid: int = 0
    after_lsn: int = 0
    seen: Mapping[int, Position] = field(default_factory=dict)
    times: CommitTimes | None = None
