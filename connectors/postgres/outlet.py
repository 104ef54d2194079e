"""The way out: records straight on, or past those that are in the log already, or behind one that waits."""

from __future__ import annotations

from collections.abc import Callable

from cdc.ports import Record
from cdc.position import Position
from connectors.postgres.held import Held, Pending
from connectors.postgres.seen import Seen

Emit = Callable[[Record], None]
DRAIN_RECORDS = 1000
DRAIN_BYTES = 8 << 20
"""How many records, and bytes of them, one call emits at most before ``drain`` is called, roughly."""


class Outlet:
    """``emit`` is the function for the next record: ask for it again after every call of anything else here."""

    def __init__(self, direct: Emit, drain: Callable[[], None], held: Held, seen: Seen, held_bytes: int) -> None:
        self.emit = direct
        self._direct = direct
        self._filters = False
        self._drain = drain
        self._held = held
        self._seen = seen
        self._held_bytes = held_bytes
        self._since_drain = 0
        self._since_drain_bytes = 0

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
        self._since_drain += 1
        self._since_drain_bytes += size_bytes
        if self._since_drain >= DRAIN_RECORDS or self._since_drain_bytes >= DRAIN_BYTES:
            self._since_drain = self._since_drain_bytes = 0
            self._drain()

    def release(self) -> None:
        """Emit what is held, with its values."""
        if self._held:
            self._held.release(self._counted)
            self.emit = self._usual()

    def restart(self, last: Position) -> None:
        """The stream starts anew: drop what is held, and let nothing pass up to ``last``."""
        self._held.clear()
        self._seen.emitted(last)
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
