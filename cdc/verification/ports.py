"""The ports of a verification: the source at one state of it at a time, the stores, and the runners of views.

They are below both sides: verification and repair call them, :mod:`connectors.postgres.server.cut_reader` implements
those of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from cdc.freshness.rules import ReadsWatermarks
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName

if TYPE_CHECKING:
    import pyarrow as pa


class Cut(NamedTuple):
    """One state of the source. Every change committed below ``settled`` is in it, and none at or above ``fence``.

    ``certain``: that every such change was visible has been proven, not only waited for.
    """

    fence: int
    settled: int
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTable:
    """A table to compare: its shape now, its shape as the stores know it, about how many rows.

    ``query``: the text of a view, run with ``search_path``, in place of a table's rows. ``finish``: its function on
    finished documents, from a row on the wire to one.
    ``left_out``: columns that stand in neither shape because they cannot be compared: column -> why.
    """

    shape: TableSchema
    stored: TableSchema
    rows: int
    partitioned: bool = False
    query: str = ""
    search_path: tuple[str, ...] = ()
    finish: Callable[[bytes], bytes] | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> TableName:
        """The table's name, as it is now."""
        return self.shape.table


class SourceReader(Protocol):
    """Reads the source at one cut at a time. Keys are store keys, rows canonical (:mod:`cdc.wire.canonical`)."""

    def cut(self) -> Cut:
        """End the last cut and begin a new one."""

    def rows(self, table: VerifiedTable) -> Iterator[tuple[Sequence[str], Sequence[bytes]]]:
        """All rows of the table at this cut: keys and rows, in batches."""

    def rows_of(self, table: VerifiedTable, keys: Sequence[str]) -> dict[str, bytes]:
        """Those of these keys that have a row at this cut."""

    def insert_lsn(self) -> int:
        """An LSN that every commit so far lies below."""


class RepairRow(NamedTuple):
    """A row to be written. ``key``: the record's key as JSON, ``after``: the row as on the wire, None for a delete."""

    key: bytes
    after: bytes | None


class SourceRows(Protocol):
    """Reads the source at one cut at a time."""

    def cut(self) -> Cut:
        """End the last cut and begin a new one."""

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        """Those of these keys (store keys) that have a row at this cut, in batches."""


class VerifiedSource(SourceReader, SourceRows, Protocol):
    """The source at one cut at a time, for comparing and for repairing."""


class StoredVersion(Protocol):
    """A version that a store holds. A deleted one is remembered by its position alone."""

    @property
    def pos(self) -> str:
        """Its position as text. Empty for a row that somebody else wrote."""

    @property
    def row(self) -> bytes | None:
        """The row as JSON of plain values. None for a delete."""


class ScansStore(Protocol):
    """The part of ``sinks.contract.port.StoreReader`` that is used here."""

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Every stored version of a table, in no order, in bounded memory."""

    def get(self, schema: TableSchema, key: str) -> StoredVersion | None:
        """The stored version of one key. None where the store has none."""


@runtime_checkable
class LooksUpMany(Protocol):
    """A store that answers for many keys at once. One without it is asked for each."""

    def get_many(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredVersion]:
        """The answers of :meth:`ScansStore.get`, by key. Keys of which the store has nothing are left out."""


class RepairTarget(Protocol):
    """A store to be repaired."""

    def put(self, shape: TableSchema, pos: str, rows: Sequence[RepairRow]) -> Sequence[str]:
        """Write each row that is at or above what the store holds. Returns why it refused some, one reason each."""

    def remove(self, shape: TableSchema, versions: Mapping[str, str]) -> None:
        """Take away what is stored under these keys at exactly these positions. An empty one: at none."""


class PublishedDocument(NamedTuple):
    """The newest record of a document. ``after``: its row as on the wire, None for a deletion."""

    pos: str
    after: bytes | None


class AsksRunners(Protocol):
    """The runners of views, and the documents that they have published."""

    def recompute(self, view: TableName, keys: Sequence[bytes], timeout_s: float) -> Mapping[bytes, str]:
        """Have the documents of these records computed and published once more, newer than anything so far.

        Returns why there is no document of some. RunnerSilent when its runner does not answer in time. LogError.
        """

    def published(self, view: TableName, keys: Collection[bytes]) -> Mapping[bytes, PublishedDocument]:
        """The newest records of these keys that the view's topic has now. LogError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedStore:
    """A store, opened as one of several writers. ``tables``: those of the captured ones that it keeps.

    ``views``: those of its tables that are views, each with its topic.
    ``fills_lost_tables``: whether a repair may fill a table of which the store holds nothing.
    """

    reader: ScansStore
    watermarks: ReadsWatermarks
    target: RepairTarget
    tables: Sequence[TableName]
    fills_lost_tables: bool = True
    views: Mapping[TableName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationPorts:
    """Everything that a verification uses. ``stores``: by sink. ``tables``: the captured ones, by name. ``lacking``:
    those of which the log lacks changes as of now, each with the sentence about it. LogError when it is not known.
    ``left_out``: tables and views that never can be compared, each with why.
    ``runners``: of views, None where none can be asked.
    """

    source: VerifiedSource
    stores: Mapping[str, VerifiedStore]
    tables: Mapping[TableName, VerifiedTable] = field(default_factory=dict)
    lacking: Callable[[], Mapping[str, str]] = dict
    left_out: Mapping[str, str] = field(default_factory=dict)
    runners: AsksRunners | None = None
