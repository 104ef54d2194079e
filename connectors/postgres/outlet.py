"""The way out: records straight on, or past those that are in the log already, or behind one that waits."""

from __future__ import annotations

from collections.abc import Callable

from cdc.ports import Record
from connectors.postgres.held import Held, Pending
from connectors.postgres.seen import Seen

Emit = Callable[[Record], None]
OVERFLOW_RECORDS = 1000
OVERFLOW_BYTES = 8 << 20
"""How many records, and bytes of them, one call collects at most before ``overflow`` is called, roughly."""


class Outlet:
    """Collects records. ``emit`` is the function for the next one: read it again after every call of anything else
    here. ``overflow`` receives what was collected where it grows too large."""

    def __init__(self, overflow: Callable[[list[Record]], object], held: Held, seen: Seen, held_bytes: int) -> None:
        self._records: list[Record] = []
        self._direct: Emit = self._records.append
        self.emit: Emit = self._direct
        self._filters = False
        self._overflow = overflow
        self._held = held
        self._seen = seen
        self._held_bytes = held_bytes
        self._many = 0
        self._many_bytes = 0

    def take(self) -> list[Record]:
        """What was collected since the last call; the list is the caller's."""
        taken = self._records
        self._records = []
        self._direct = self._records.append
        self.emit = self._behind if self._held else self._usual()
        return taken

    def begin(self, commit_lsn: int) -> bool:
        """A transaction opens; returns whether all of it is in the log, so that nothing need be emitted."""
        self._filters = self._seen.partly(commit_lsn)
        if not self._held:
            self.emit = self._usual()
        return self._seen.whole(commit_lsn)

    def wait(self, pending: Pending, xid: int) -> None:
        """A record that lacks values; it and what follows it come out at the next :meth:`release` at the latest."""
        if not (self._filters and self._seen.has(pending.lane, pending.headers[0][1])):
            self._held.wait(pending, xid)
            self.emit = self._behind
            self._within_limit()

    def many(self, size_bytes: int = 0) -> None:
        """One more record of many was emitted in one go."""
        self._many += 1
        self._many_bytes += size_bytes
        if self._many >= OVERFLOW_RECORDS or self._many_bytes >= OVERFLOW_BYTES:
            self._many = self._many_bytes = 0
            self._overflow(self.take())

    def release(self) -> None:
        """Emit what is held, with its values."""
        if self._held:
            self._held.release(self._counted)
            self.emit = self._usual()

    def _usual(self) -> Emit:
        return self._unseen if self._filters else self._direct

    def _counted(self, record: Record) -> None:
        self._direct(record)
        self.many(len(record[1]) + len(record[2] or b""))

    def _unseen(self, record: Record) -> None:
        if not self._seen.has(record[0], record[3][0][1]):
            self._direct(record)

    def _behind(self, record: Record) -> None:
        if not (self._filters and self._seen.has(record[0], record[3][0][1])):
            self._held.follow(record)
            self._within_limit()

    def _within_limit(self) -> None:
        if self._held.full or self._held.size_bytes > self._held_bytes:
            self.release()
