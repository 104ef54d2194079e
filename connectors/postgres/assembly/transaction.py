"""The open transaction: its position, its count of records, and what its events share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc.wire.envelope import Stamp
from connectors.postgres.protocol.messages import Begin, Insert, Origin, Tuple, Update
from connectors.postgres.protocol.pgoutput import decode

_HALF_ROUND, _ROUND = 1 << 31, 1 << 32


class Transaction:
    """State between BEGIN and COMMIT. ``begin`` is None outside.

    ``seq``: the last tx_seq given away. ``pos``: template of the position header, to be filled with a tx_seq.
    ``serial`` grows whenever what :meth:`stamp` says changes.
    """

    __slots__ = (
        "_before_lsn", "_near_xid", "_now_ns", "_origin", "_stamp", "begin", "epoch", "pos", "rows", "seq", "serial",
        "skipped", "xid",
    )  # fmt: skip

    def __init__(self, epoch: int, near_xid: int) -> None:
        self.epoch = epoch
        self.begin: Begin | None = None
        self.skipped = False
        self.xid = near_xid
        self.pos = b""
        self.seq = 0
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
        self.seq = self.rows = 0
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


class Recent:
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
