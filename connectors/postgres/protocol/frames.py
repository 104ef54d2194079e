"""The frames of a streaming replication session, and the one place that decides what is acknowledged to the server.

Source of the formats: PostgreSQL documentation, "Streaming Replication Protocol". Times there count
microseconds since 2000-01-01.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from cdc.process.errors import DecodeError

XLOG_DATA: Final = 0x77  # 'w': start lsn, end lsn, clock, then the plugin's message
KEEPALIVE: Final = 0x6B  # 'k': end of WAL, clock, whether an answer is wanted
_POSTGRES_EPOCH_US = 946_684_800_000_000
_KEEPALIVE = struct.Struct(">cQqB")
_STATUS = struct.Struct(">cQQQqB")


class Keepalive(NamedTuple):
    """The server is alive and has sent everything below ``wal_end`` that concerns us (exclusive)."""

    wal_end: int
    sent_us: int
    reply_requested: bool


def keepalive(frame: bytes) -> Keepalive:
    """Read a ``k`` frame. ``sent_us`` since 1970. DecodeError when its length is another one."""
    if len(frame) != _KEEPALIVE.size:
        raise DecodeError(f"a keepalive has {_KEEPALIVE.size} bytes, this one has {len(frame)}")
    _, wal_end, clock, reply = _KEEPALIVE.unpack(frame)
    return Keepalive(wal_end, clock + _POSTGRES_EPOCH_US, bool(reply))


def status(*, written: int, flushed: int, now_ns: int, reply: bool) -> bytes:
    """A standby status update. The server may forget everything below ``flushed``. ``written`` is for show."""
    clock = now_ns // 1000 - _POSTGRES_EPOCH_US
    return _STATUS.pack(b"r", written, flushed, flushed, clock, reply)


class Feedback:
    """The feedback to the server: flushed and applied are our position, which only :meth:`hold` moves.

    ``position``: the lsn of the newest progress record that the broker holds. Anything received beyond is reported as
    written, never as flushed.
    """

    __slots__ = ("position", "received")

    def __init__(self, position: int) -> None:
        self.position = position
        self.received = position

    def receive(self, lsn: int) -> None:
        """Something up to ``lsn`` came in."""
        self.received = max(self.received, lsn)

    def hold(self, lsn: int) -> bool:
        """A progress record of this lsn is stored by the broker. Whether the position moved. It never moves back."""
        if lsn <= self.position:
            return False
        self.position = lsn
        return True

    def status(self, now_ns: int, *, reply: bool) -> bytes:
        """The frame to send."""
        written = max(self.received, self.position)
        return status(written=written, flushed=self.position, now_ns=now_ns, reply=reply)
