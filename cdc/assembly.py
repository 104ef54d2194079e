"""The port of the code that makes records of the stream's bytes, as capture uses it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from cdc.ports import Record


class CompleteTransaction(Protocol):
    """A transaction of which every record was returned."""

    @property
    def xid(self) -> int:
        """Its 64-bit transaction id."""

    @property
    def end_lsn(self) -> int:
        """The LSN behind its COMMIT, which may be acknowledged once its records are durable."""

    @property
    def committed_us(self) -> int:
        """When it committed, in microseconds since 1970."""

    @property
    def rows(self) -> int:
        """How many rows the stream carried for it, also of tables that are not captured."""


class Assembly(Protocol):
    """Records in order, and the transactions that are complete with them."""

    @property
    def records(self) -> Sequence[Record]:
        """Records for the log, in the order in which they have to be written."""

    @property
    def commits(self) -> Sequence[CompleteTransaction]:
        """Transactions that ended within the frames, in commit order."""


class Assembles(Protocol):
    """From frames to records."""

    @property
    def in_transaction(self) -> bool:
        """Whether a COMMIT is still to come."""

    @property
    def open_commit_us(self) -> int | None:
        """When the transaction was committed whose COMMIT is still to come, in us since 1970. None outside one."""

    @property
    def newest_xid(self) -> int:
        """The newest 64-bit transaction id of the source that was seen, before the first one an id of that time."""

    @property
    def oldest_waiting(self) -> int | None:
        """The commit LSN of the oldest record that was not returned because its table waits. None without any."""

    @property
    def waiting_lanes(self) -> frozenset[int]:
        """The lanes of tables that wait."""

    def feed(self, frames: Sequence[bytes], now_ns: int) -> Assembly:
        """Take whole XLogData messages, in order. ``now_ns``: when they were captured, since 1970.

        Returns their records and the transactions that end with them. Raises DecodeError for bytes that it does not
        know, and all that a port raises. It cannot be used after an exception.
        """

    def resume(self) -> Sequence[Record]:
        """Try the tables that wait. Returns the records that can be had now, some of each table at most."""

    def counts(self) -> Counter[tuple[str, str]]:
        """Changes written so far, by (table, op)."""

    def lost(self) -> Counter[tuple[str, str]]:
        """Values that the encoding cannot express and that were written as null, by (table, column)."""
