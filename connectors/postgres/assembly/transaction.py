"""The open transaction, its position, its count of records and what its events share, and the way out of its records:
straight on, or past those that are in the log already, or behind one that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from cdc.capture.advance import CommitTimes
from cdc.record.ports import Record
from cdc.record.position import Position
from cdc.record.tables_aside import CannotFollow
from cdc.wire.envelope import Stamp
from connectors.postgres.assembly.pending_records import Entry, Pending, PendingRecords
from connectors.postgres.assembly.waiting_tables import WaitingTables
from connectors.postgres.protocol.messages import Begin, Insert, Origin, Tuple, Update
from connectors.postgres.protocol.pgoutput import decode

_HALF_ROUND, _ROUND = 1 << 31, 1 << 32


class Transaction:
    """State between BEGIN and COMMIT. ``begin`` is None outside.

    ``seq``: the last tx_seq given away. ``events``: the same of the outbox, which counts for itself. ``pos``: template
    of the position header, to be filled with a tx_seq. ``times``: of the commits.
    ``serial`` grows whenever what :meth:`stamp` says changes.
    """

    __slots__ = (
        "_before_lsn", "_near_xid", "_now_ns", "_origin", "_stamp", "begin", "epoch", "events", "pos", "rows", "seq",
        "serial", "skipped", "times", "xid",
    )  # fmt: skip

    def __init__(self, epoch: int, near_xid: int, times: CommitTimes | None = None) -> None:
        self.epoch = epoch
        self.times = times or CommitTimes()
        self.begin: Begin | None = None
        self.skipped = False
        self.xid = near_xid
        self.pos = b""
        self.seq = 0
        self.events = 0
        self.rows = 0
        self.serial = 0
        self._before_lsn: int | None = None
        self._origin: Origin | None = None
        self._now_ns = 0
        self._stamp: Stamp | None = None

    @property
    def lsn(self) -> int:
        """The commit LSN of the open transaction. Outside one where the last ended, 0 before the first."""
        return self.begin.final_lsn if self.begin is not None else self._before_lsn or 0

    def captured_at(self, now_ns: int) -> None:
        """The time that events show from now on as that of their capture."""
        self._now_ns = now_ns
        self._changed()

    def open(self, begin: Begin) -> None:
        """``xid`` becomes the one of 64 bits that is nearest to the transaction before."""
        self.begin = begin
        self.xid = widened(begin.xid, self.xid)
        self.pos = self._template(begin.final_lsn)
        self.times.open(begin.final_lsn, begin.committed_us)
        self.seq = self.rows = self.events = 0
        self._changed()

    def came_from(self, origin: Origin) -> None:
        """Note that the transaction was replicated to the source from another server."""
        self._origin = origin
        self._changed()

    def close(self, end_lsn: int | None) -> None:
        """Its COMMIT came, ending at ``end_lsn``. None: the stream broke off."""
        self.begin = None
        self._origin = None
        self._before_lsn = end_lsn
        self.skipped = False

    def take(self, count: int) -> int:
        """Give away ``count`` numbers. Returns the first."""
        first = self.seq + 1
        self.seq += count
        return first

    def stamp(self) -> Stamp:
        """The members that every record of the open transaction shares. Fails outside one."""
        if self._stamp is None:
            begin = self.begin
            assert begin is not None
            self._stamp = Stamp(
                epoch=self.epoch,
                commit_lsn=begin.final_lsn,
                committed_us=begin.committed_us,
                now_ns=self._now_ns,
                xid=self.xid,
                before_lsn=self._before_lsn,
                origin=self._origin.name if self._origin else None,
                origin_lsn=self._origin.lsn if self._origin else None,
            )
        return self._stamp

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """The open transaction is as it was, whichever is visited meanwhile."""
        kept = self.xid, self.pos, self.seq, self._stamp
        try:
            yield
        finally:
            self.xid, self.pos, self.seq, self._stamp = kept
            self.serial += 1

    def visit(self, stamp: Stamp) -> None:
        """Write in an earlier transaction: to be called inside :meth:`elsewhere`."""
        assert stamp.xid is not None
        self.xid = stamp.xid
        self.pos = self._template(stamp.commit_lsn)
        self._stamp = stamp
        self.serial += 1

    def _template(self, commit_lsn: int) -> bytes:
        return b"%08x%016x" % (self.epoch, commit_lsn) + b"%08x"

    def _changed(self) -> None:
        self.serial += 1
        self._stamp = None


def widened(xid: int, near: int) -> int:
    """The 64-bit transaction id that ends in these 32 bits and is nearest to ``near``.

    >>> widened(3, 2**32 - 5) - 2**32, widened(2**32 - 5, 2**32 + 3) - 2**32
    (3, -5)
    """
    full = near - near % _ROUND + xid
    if full > near + _HALF_ROUND and full >= _ROUND:
        return full - _ROUND
    if full < near - _HALF_ROUND:
        return full + _ROUND
    return full


# Wide rows of the open transaction, for values that a later change of the same row leaves out.
#
# The usual pattern of an object mapper is INSERT, then UPDATE of the same row in one transaction: the update's TOASTed
# values are those of the insert, and asking the source for them would be slower and later. It is only a shortcut: what
# was forgotten for want of room is looked up.

Place = tuple[int, bytes]
"""Lane of the table's partition 0, and key."""
_PAYLOAD_AT = 25


class RecentRows:
    """``rows``: by place, the message that brought the row, or its values. The stream drops places from it
    whose row changed to one that is not wide."""

    def __init__(self, limit_bytes: int) -> None:
        self.rows: dict[Place, bytes | Tuple] = {}
        self._limit_bytes = limit_bytes
        self._size_bytes = 0

    def keep(self, place: Place, row: bytes | Tuple, size_bytes: int) -> None:
        """Remember the newest row at ``place``. Past the limit, forget all until the transaction ends."""
        self._size_bytes += size_bytes
        if self._size_bytes > self._limit_bytes:
            self.rows.clear()
        else:
            self.rows[place] = row

    def row(self, place: Place) -> Tuple | None:
        """The newest row at ``place``, if it is known."""
        found = self.rows.get(place)
        if isinstance(found, bytes):
            message = decode(found[_PAYLOAD_AT:])
            return message.new if isinstance(message, Insert | Update) else None
        return found

    def forget_table(self, lane: int) -> None:
        """Forget the rows of one lane."""
        for place in [place for place in self.rows if place[0] == lane]:
            del self.rows[place]

    def clear(self) -> None:
        """The transaction ended."""
        self.rows.clear()
        self._size_bytes = 0


Emit = Callable[[Record], None]
OVERFLOW_RECORDS = 1000
OVERFLOW_BYTES = 8 << 20
"""How many records, and bytes of them, one call collects at most before ``overflow`` is called, roughly."""


class Collector:
    """Collects records. ``emit`` is the function for the next one: read it again after every call of anything else
    here. ``overflow`` receives what was collected where it grows too large. ``cannot`` is called with a table that has
    to be set aside, and calls :meth:`leave`."""

    def __init__(
        self,
        overflow: Callable[[list[Record]], object],
        held: PendingRecords,
        seen: LogTails,
        held_bytes: int,
        waiting: WaitingTables,
        cannot: Callable[[CannotFollow], None],
    ) -> None:
        self._records: list[Record] = []
        self._direct: Emit = self._records.append
        self.emit: Emit = self._direct
        self._filters = False
        self._overflow = overflow
        self._held = held
        self._waiting = waiting
        self._cannot = cannot
        self._seen = seen
        self._held_bytes = held_bytes
        self._many = 0
        self._many_bytes = 0

    def take(self) -> list[Record]:
        """The records collected since the last call. The list is the caller's."""
        taken = self._records
        self._records = []
        self._direct = self._records.append
        self.emit = self._next()
        return taken

    def begin(self, commit_lsn: int) -> bool:
        """A transaction opens. Returns whether all of it is in the log, so that nothing need be emitted."""
        self._filters = self._seen.partly(commit_lsn)
        self.emit = self._next()
        return self._seen.whole(commit_lsn)

    def wait(self, pending: Pending) -> None:
        """A record that lacks values. It and what follows it come out at the next :meth:`release`, or :meth:`resume`
        where its table waits."""
        last = pending.gone[-1][3] if pending.gone else pending.headers
        if self._filters and self._seen.has(pending.lane, last[0][1]):
            return
        if pending.lane in self._waiting:
            self._apart(pending)
        else:
            self._held.wait(pending)
            self.emit = self._next()
            self._within_limit()

    def many(self, size_bytes: int = 0) -> None:
        """One more record of many was emitted in one go."""
        self._many += 1
        self._many_bytes += size_bytes
        if self._many >= OVERFLOW_RECORDS or self._many_bytes >= OVERFLOW_BYTES:
            self._many = self._many_bytes = 0
            self._overflow(self.take())

    def release(self) -> None:
        """Emit what is buffered, with its values. A table that cannot have them now begins to wait."""
        while self._held:
            try:
                # While one table cannot be read others may not be for long either: 100 locks are not 100 times 2 s.
                self._held.release(self._counted, self._waiting.begin, brief=bool(self._waiting.lanes))
            except CannotFollow as why:
                self._cannot(why)
        self.emit = self._next()

    def oldest_of(self, lanes: set[int]) -> int | None:
        """The lowest commit LSN of what is buffered or waits of these lanes."""
        found = (self._held.oldest_of(lanes), self._waiting.oldest_of(lanes))
        return min((lsn for lsn in found if lsn is not None), default=None)

    def leave(self, lanes: range) -> None:
        """A table is set aside: drop what is buffered or waits of it, and what comes until :meth:`arrived`."""
        self._held.leave(lanes)
        self._waiting.leave(lanes)
        self.emit = self._next()

    def arrived(self) -> None:
        """The transaction in which tables were set aside is over, and everything of it has come through here."""
        self._waiting.arrived()
        self.emit = self._next()

    def resume(self) -> None:
        """Emit what of the waiting tables can have its values now."""
        self._waiting.resume(self._counted)
        self.emit = self._next()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Take records of earlier transactions, some of which may be in the log. Their missing values are looked up at
        the end."""
        kept, self._filters = self._filters, True
        self.emit = self._next()
        try:
            yield
            self.release()
        finally:
            self._filters = kept
            self.emit = self._next()

    def _next(self) -> Emit:
        return self._sorted if self._waiting else self._behind if self._held else self._usual()

    def _usual(self) -> Emit:
        return self._unseen if self._filters else self._direct

    def _counted(self, record: Record) -> None:
        if record[0] in self._waiting.left or self._seen.has(record[0], record[3][0][1]):
            return
        self._direct(record)
        self.many(len(record[1]) + len(record[2] or b""))

    def _unseen(self, record: Record) -> None:
        if not self._seen.has(record[0], record[3][0][1]):
            self._direct(record)

    def _sorted(self, record: Record) -> None:
        """While a table waits: its records go to its queue."""
        if record[0] not in self._waiting:
            (self._behind if self._held else self._usual())(record)
        elif not (self._filters and self._seen.has(record[0], record[3][0][1])):
            self._apart(record)

    def _apart(self, entry: Entry) -> None:
        self._waiting.add(entry)

    def _behind(self, record: Record) -> None:
        if not (self._filters and self._seen.has(record[0], record[3][0][1])):
            self._held.follow(record)
            self._within_limit()

    def _within_limit(self) -> None:
        if self._held.full or self._held.size_bytes > self._held_bytes:
            self.release()


# Nothing twice: which of the records that the stream brings again are in the log already.
#
# Streamed records of a partition stand in it in the order of their positions. So every record at or below the highest
# position found at a partition's end is there, and none above it is. Transactions below the progress LSN need no look
# at their records at all.


class LogTails:
    """``lanes``: the highest streamed position found in each lane's tail, for those that have one."""

    def __init__(self, after_lsn: int, epoch: int, lanes: Mapping[int, Position]) -> None:
        self._after_lsn = after_lsn
        self._lanes = {lane: position.text().encode() for lane, position in lanes.items()}
        self._until_lsn = max((p.commit_lsn for p in lanes.values() if p.epoch == epoch), default=-1)

    def whole(self, commit_lsn: int) -> bool:
        """Whether everything of the transaction is in the log."""
        return commit_lsn < self._after_lsn

    def partly(self, commit_lsn: int) -> bool:
        """Whether some of the transaction may be in the log."""
        return commit_lsn <= self._until_lsn

    def has(self, lane: int, pos: bytes) -> bool:
        """Whether the record at ``pos`` (32 hex digits) is in the lane."""
        return pos <= self._lanes.get(lane, b"")
