"""Records of tables that wait, on disk: first in, first out, in files that go as they are read.

A block is its length and an entry's fields. A field is its length and its bytes. Lengths below zero stand for what has
none. Nothing but the process that wrote them reads these files, and no version of it outlives them.
"""

from __future__ import annotations

import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import IO

from cdc.record.ports import Record, Withheld
from connectors.postgres.assembly.pending_records import Entry, Pending
from connectors.postgres.encoding.encoder import TableEncoder
from connectors.postgres.protocol.messages import UNCHANGED, Unchanged

SEGMENT_BYTES = 32 << 20
"""A file takes no more blocks once it is as large. It is removed when its last block was read."""
_LENGTH = struct.Struct(">q")
_PENDING = struct.Struct(">qqqQI")
"""lane, first and last lane of the topic, xid, encoder."""
_COUNT = struct.Struct(">I")
_NULL, _UNCHANGED, _WITHHELD = -1, -2, -3
_RECORD, _LACKING = b"R", b"P"

Field = bytes | Unchanged | None


class Blocks:
    """A queue of blocks of bytes in files of a folder. The system's temporary one without. OSError when one cannot be
    written or read."""

    def __init__(self, folder: str | None, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments: deque[_Segment] = deque()
        self._count = 0
        self.size_bytes = 0
        """Of the blocks that were not read yet."""

    def __len__(self) -> int:
        return self._count

    @property
    def file_bytes(self) -> int:
        """Of the files, blocks that were read included."""
        return sum(segment.end for segment in self._segments)

    def append(self, block: bytes) -> int:
        """Add a block. Returns the bytes that it takes."""
        if not self._segments or self._segments[-1].end >= self._segment_bytes:
            self._segments.append(_Segment(self._folder))
        size_bytes = self._segments[-1].append(block)
        self._count += 1
        self.size_bytes += size_bytes
        return size_bytes

    def pop(self) -> bytes:
        """Take the oldest block."""
        first = self._segments[0]
        block = first.pop()
        self._count -= 1
        self.size_bytes -= _LENGTH.size + len(block)
        if first.read_out and len(self._segments) > 1:
            self._segments.popleft().close()
        elif first.read_out:
            first.clear()
        return block

    def close(self) -> None:
        """Delete the files and forget what was queued."""
        for segment in self._segments:
            segment.close()
        self._segments.clear()
        self._count = self.size_bytes = 0


class Spilled:
    """The same of entries."""

    def __init__(self, folder: str | None, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._blocks = Blocks(folder, segment_bytes)
        self._encoders: list[TableEncoder] = []
        self._numbers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def size_bytes(self) -> int:
        """Of the entries that were not read yet."""
        return self._blocks.size_bytes

    @property
    def file_bytes(self) -> int:
        """Of the files, entries that were read included."""
        return self._blocks.file_bytes

    def append(self, entry: Entry) -> int:
        """Add an entry. Returns the bytes that it takes."""
        return self._blocks.append(_written(entry, self._number))

    def pop(self) -> Entry:
        """Take the oldest entry."""
        return _read(_Reader(self._blocks.pop()), self._encoders)

    def close(self) -> None:
        """Delete the files and forget what was queued."""
        self._blocks.close()

    def _number(self, encoder: TableEncoder) -> int:
        """Encoders are compiled functions, which stay in memory."""
        number = self._numbers.get(id(encoder))
        if number is None:
            number = self._numbers[id(encoder)] = len(self._encoders)
            self._encoders.append(encoder)
        return number


class _Segment:
    """One file. ``end``: where the next block goes."""

    def __init__(self, folder: str | None) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close()
        self._at = 0
        self.end = 0

    @property
    def read_out(self) -> bool:
        return self._at == self.end

    def append(self, block: bytes) -> int:
        self._file.seek(self.end)
        self._file.write(_LENGTH.pack(len(block)) + block)
        size_bytes = _LENGTH.size + len(block)
        self.end += size_bytes
        return size_bytes

    def pop(self) -> bytes:
        self._file.seek(self._at)
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        block = self._file.read(length)
        self._at += _LENGTH.size + length
        return block

    def clear(self) -> None:
        self._at = self.end = 0
        self._file.seek(0)
        self._file.truncate()

    def close(self) -> None:
        # The bytes in its buffer are of no use, and a full disk would refuse them once more.
        with suppress(OSError):
            self._file.close()


def _written(entry: Entry, number_of: Callable[[TableEncoder], int]) -> bytes:
    return b"".join(_pending(entry, number_of) if isinstance(entry, Pending) else [_RECORD, *_record(entry)])


def _pending(entry: Pending, number_of: Callable[[TableEncoder], int]) -> Iterable[bytes]:
    lanes = entry.lanes
    yield _LACKING
    yield _PENDING.pack(entry.lane, lanes.start, lanes.stop, entry.xid, number_of(entry.encoder))
    yield from _fields([entry.key, entry.before, entry.tail])
    yield from _headers(entry.headers)
    yield from _fields(entry.values)
    yield _COUNT.pack(len(entry.gone))
    for record in entry.gone:
        yield from _record(record)


def _record(record: Record) -> Iterable[bytes]:
    lane, key, value, headers = record
    yield _LENGTH.pack(lane)
    yield from _fields([key, value])
    yield from _headers(headers)


def _headers(headers: Sequence[tuple[str, bytes]]) -> Iterable[bytes]:
    return _fields([part for name, value in headers for part in (name.encode(), value)])


def _fields(values: Sequence[Field]) -> Iterable[bytes]:
    yield _COUNT.pack(len(values))
    for value in values:
        if isinstance(value, Withheld):
            yield _LENGTH.pack(_WITHHELD) + _LENGTH.pack(value.size_bytes)
        elif isinstance(value, bytes):
            yield _LENGTH.pack(len(value))
            yield value
        else:
            yield _LENGTH.pack(_NULL if value is None else _UNCHANGED)


class _Reader:
    """A block, from its first byte on."""

    def __init__(self, block: bytes) -> None:
        self._block = block
        self._at = 0

    def take(self, size_bytes: int) -> bytes:
        found = self._block[self._at : self._at + size_bytes]
        self._at += size_bytes
        return found

    def number(self) -> int:
        (found,) = _LENGTH.unpack(self.take(_LENGTH.size))
        return int(found)

    def count(self) -> int:
        (found,) = _COUNT.unpack(self.take(_COUNT.size))
        return int(found)

    def fields(self) -> list[Field]:
        return [self._field() for _ in range(self.count())]

    def texts(self) -> list[bytes]:
        return [field for field in self.fields() if isinstance(field, bytes)]

    def headers(self) -> list[tuple[str, bytes]]:
        parts = self.texts()
        return [(name.decode(), value) for name, value in zip(parts[::2], parts[1::2], strict=True)]

    def record(self) -> Record:
        lane = self.number()
        key, value = self.fields()
        assert isinstance(key, bytes) and not isinstance(value, Unchanged)
        return lane, key, value, self.headers()

    def _field(self) -> Field:
        match self.number():
            case n if n >= 0:
                return self.take(n)
            case n if n == _WITHHELD:
                return Withheld(self.number())
            case n:
                return None if n == _NULL else UNCHANGED


def _read(reader: _Reader, encoders: Sequence[TableEncoder]) -> Entry:
    if reader.take(1) == _RECORD:
        return reader.record()
    lane, start, stop, xid, encoder = _PENDING.unpack(reader.take(_PENDING.size))
    key, before, tail = reader.texts()
    return Pending(
        lane=lane,
        lanes=range(start, stop),
        xid=xid,
        key=key,
        before=before,
        tail=tail,
        encoder=encoders[encoder],
        headers=reader.headers(),
        values=reader.fields(),
        gone=tuple(reader.record() for _ in range(reader.count())),
    )
