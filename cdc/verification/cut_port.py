"""The port of verification to the source: one state of it at a time, and the rows of a table there.

The ports are below both sides: verification and repair call them, :mod:`connectors.postgres.server.cut_reader`
implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName


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
