"""The frames of a streaming replication session, the few messages of the server between them, and the feedback that
acknowledges to it what :mod:`cdc.capture.advance` allows.

Source of the formats: PostgreSQL documentation, "Streaming Replication Protocol", where times count microseconds since
2000-01-01, and https://www.postgresql.org/docs/18/protocol-message-formats.html. Nothing here reads: :class:`Incoming`
is fed with bytes as they come, in any pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from cdc.process.errors import DecodeError
from connectors.postgres.protocol.messages import XLOG_DATA
from connectors.postgres.protocol.oversized_fields import Abridging

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


COPY_BOTH: Final = ord("W")
READY: Final = ord("Z")
_COPY_DATA, _COPY_DONE, _ERROR, _NOTICE = ord("d"), ord("c"), ord("E"), ord("N")
_PASSED = frozenset(b"SACZK1")
"""Parameters, notifications, a command's end, readiness: of no concern in a stream."""
_HEAD = Struct(">BI")
_LONGEST_BYTES = 1 << 20
"""Of a message that is no frame."""


QUOTES_VALUES = ("22", "42")
"""Classes of SQLSTATE whose sentences quote what an expression was given: a row filter's a value of a row, also of a
column with a mask."""


class ServerNotice(NamedTuple):
    """An error or a notice of the server's."""

    sqlstate: str
    primary: str

    @classmethod
    def parse(cls, payload: bytes) -> ServerNotice:
        """From the body of an ErrorResponse or a NoticeResponse."""
        fields = {field[:1]: field[1:].decode("utf-8", "replace") for field in payload.split(b"\0") if field}
        return cls(fields.get(b"C", ""), fields.get(b"M", "").strip())


class Incoming:
    """Takes messages apart. ``limit``: a frame that is longer is abridged to rows of this size.

    ``notice`` is called for each. ``error``: why the server gave up. ``ended``: nothing more will come. ``kinds``: of
    what shows whether the copy began, until it is taken.
    """

    def __init__(self, limit: int, notice: Callable[[ServerNotice], None]) -> None:
        self._limit = limit
        self._notice = notice
        self._data = b""
        self._at = 0
        self._parts: list[bytes] = []
        self._missing = 0
        self._large: Abridging | None = None
        self.error: ServerNotice | None = None
        self.ended = False
        self.kinds: list[int] = []

    def feed(self, data: bytes) -> None:
        """Take what was read. Call :meth:`frames` until it has none before the next."""
        if self._missing > len(data):
            # The rest of a long message: joined once, when it is complete.
            self._parts.append(data)
            self._missing -= len(data)
            return
        left = self._data[self._at :] if self._at else self._data
        self._data = b"".join([left, *self._parts, data]) if left or self._parts else data
        self._parts, self._missing, self._at = [], 0, 0

    def frames(self, most: int) -> list[bytes]:
        """Up to ``most`` frames, in order. One that is no XLogData is the last of its list. None yet where the copy
        begins. DecodeError for what has no place in a stream."""
        # The hot loop of reading: two numbers and one copy per frame, nothing else.
        if self._missing:
            return []
        head = _HEAD.unpack_from
        found: list[bytes] = []
        append = found.append
        data, at, end = self._data, self._at, len(self._data)
        while end - at >= 5 and self._large is None:
            kind, size = head(data, at)
            stop = at + 1 + size
            if kind != _COPY_DATA:
                if stop > end:
                    self._await(kind, stop - end)
                    break
                self._other(kind, data[at + 5 : stop])
                at = stop
                if kind == COPY_BOTH:
                    break
                continue
            if stop > end:
                at = self._begin(size - 4, stop - end, at)
                break
            frame = data[at + 5 : stop]
            at = stop
            append(frame)
            if frame[:1] != _XLOG_DATA or len(found) == most:
                break
        self._at = at
        if self._large is not None:
            found += self._abridge(self._large)
        return found

    def _begin(self, size_bytes: int, missing: int, at: int) -> int:
        """Of a frame that is not there as a whole."""
        if size_bytes <= self._limit:
            self._missing = missing
            return at
        self._large = Abridging(size_bytes, self._limit)
        return at + 5

    def _abridge(self, large: Abridging) -> list[bytes]:
        self._at = large.feed(self._data, self._at)
        if large.frame is None:
            return []
        self._large = None
        return [large.frame]

    def _await(self, kind: int, missing: int) -> None:
        if missing > _LONGEST_BYTES:
            raise DecodeError(f"the server sent something else than a stream (a message of kind {chr(kind)!r})")
        self._missing = missing

    def _other(self, kind: int, payload: bytes) -> None:
        if kind in (COPY_BOTH, READY):
            self.kinds.append(kind)
        if kind == _NOTICE:
            self._notice(ServerNotice.parse(payload))
        elif kind == _ERROR:
            self.error = self.error or ServerNotice.parse(payload)
            self.ended = True
        elif kind == _COPY_DONE:
            self.ended = True
        elif kind not in _PASSED and kind != COPY_BOTH:
            raise DecodeError(f"the server sent something else than a stream (a message of kind {chr(kind)!r})")


_XLOG_DATA = bytes((XLOG_DATA,))
