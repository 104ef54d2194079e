"""Frames without the values that no record could carry, so that a field of 200 MB takes no 200 MB of memory.

A frame's length is known before its bytes come. One that is longer than any record made of it may be is taken apart on
its way in: values that keep their row within the limit stay as they are, the others are passed over and leave length
and sha256 behind (:class:`connectors.postgres.protocol.messages.Omitted`). The policy for oversized records decides
about such a row, as about a record that was built.

Nothing here reads: :class:`Abridging` is fed with bytes as they come, in any pieces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from typing import Final

from connectors.postgres.protocol.messages import XLOG_DATA, Omitted
from connectors.postgres.protocol.pgoutput import write_omitted

SHORTEST: Final = 8
"""How much shorter a value's JSON is than its text at most, and a little: six characters of a bit string are one of
base64, and nothing else comes near."""
_SMALL_BYTES = 64 * 1024
"""What is kept of a value in any case: keys, whose index holds them compressed, are among the values."""
_ROWS = b"IUD"
_MESSAGE = ord("M")
_MARKERS = b"KON"
_TEXT, _WITHOUT_TEXT = ord("t"), b"nu"
_PREFIX_BYTES = 64
"""Of the prefix of a message that is as large. A longer one is nobody's here."""
_HEADER_BYTES = 26
"""An XLogData header and the message's kind."""

Want = Generator[int, bytes, None]
"""Asks for so many bytes. Less than 0: for the sha256 of so many that are passed over. At its end the rest is, too."""


class Abridged(bytes):
    """A frame without some of its values: :func:`connectors.postgres.protocol.pgoutput.decode` has to be told."""


def row_limit(max_message_bytes: int) -> int:
    """The most text that a row may have which fits into a record of so many bytes."""
    return SHORTEST * max_message_bytes


class Abridging:
    """One frame of ``size_bytes`` on its way in. Of each of its rows at most ``limit`` bytes are kept, and values of
    up to 64 KB."""

    def __init__(self, size_bytes: int, limit: int) -> None:
        self._left = size_bytes
        self._kept = bytearray()
        self._parts: list[bytes] = []
        self._passed = hashlib.sha256()
        self._asking = _frame(self._kept, size_bytes, limit)
        self._wanted = next(self._asking)

    def feed(self, data: bytes | memoryview, at: int = 0) -> int:
        """Take what belongs to the frame from ``at`` on. Returns where the rest begins."""
        end = min(len(data), at + self._left)
        self._left -= end - at
        while at < end and self._wanted:
            taken = min(abs(self._wanted), end - at)
            if self._wanted > 0:
                self._parts.append(bytes(data[at : at + taken]))
                self._wanted -= taken
            else:
                self._passed.update(data[at : at + taken])
                self._wanted += taken
            at += taken
            if not self._wanted:
                self._next()
        return end

    @property
    def frame(self) -> Abridged | None:
        """The frame, once all of it has come."""
        return None if self._left else Abridged(b"".join((self._kept, *self._parts)))

    def _next(self) -> None:
        found, self._parts = b"".join(self._parts) or self._passed.digest(), []
        self._passed = hashlib.sha256()
        try:
            self._wanted = self._asking.send(found)
        except StopIteration:
            self._wanted = 0


def abridged(frame: bytes | memoryview, limit: int) -> Abridged:
    """A frame that is there as a whole."""
    abridging = Abridging(len(frame), limit)
    abridging.feed(frame)
    found = abridging.frame
    assert found is not None
    return found


def _frame(out: bytearray, size_bytes: int, limit: int) -> Want:
    """Puts what is kept into ``out``. A frame that makes no sense ends where that shows, so that decoding says so."""
    out += yield _HEADER_BYTES
    left = size_bytes - _HEADER_BYTES
    kind = out[-1]
    if out[0] == XLOG_DATA and kind in _ROWS:
        yield from _rows(out, left, limit)
    elif out[0] == XLOG_DATA and kind == _MESSAGE:
        # No record can carry its content: flags, LSN and prefix stay, and the content is empty.
        out += yield 9
        for _ in range(min(left - 9, _PREFIX_BYTES)):
            out += yield 1
            if not out[-1]:
                break
        else:
            out += bytes(1)
        out += bytes(4)


def _rows(out: bytearray, left: int, limit: int) -> Want:
    """The oid, then as many rows as there are."""
    out += yield 4
    left -= 4
    while left >= 3:
        head = yield 3
        out += head
        left -= 3
        if head[0] not in _MARKERS:
            return
        kept = 0
        for _ in range(int.from_bytes(head[1:])):
            taken, size_bytes = yield from _value(out, left, limit - kept)
            if not taken:
                return
            left -= taken
            kept += size_bytes
    if left:
        out += yield left


def _value(out: bytearray, left: int, room: int) -> Generator[int, bytes, tuple[int, int]]:
    """How many bytes the value took in the frame, 0 where it makes no sense, and how many of them are kept."""
    if not left:
        return 0, 0
    out += yield 1
    if out[-1] != _TEXT:
        return int(out[-1] in _WITHOUT_TEXT), 0
    if left < 5:
        return 0, 0
    length = yield 4
    size_bytes = int.from_bytes(length)
    if 5 + size_bytes > left:
        return 0, 0
    if size_bytes > _SMALL_BYTES and size_bytes > room:
        digest = yield -size_bytes
        out[-1:] = write_omitted(Omitted(size_bytes, digest))
        return 5 + size_bytes, 0
    out += length
    if size_bytes:
        out += yield size_bytes
    return 5 + size_bytes, size_bytes
