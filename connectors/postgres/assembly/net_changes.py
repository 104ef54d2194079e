"""The changes of a transaction to each key of a table whose key constraint is deferrable, settled at its COMMIT.

Inside such a transaction several rows may share a key: ``update t set id = id + 1`` sends U 1->2, U 2->3,
U 3->4, and a delete of the old key followed by a create of the new one, in order, would leave one row of three.
But before and after it each key has at most one row. So per key the rows that came are set against the
rows that went, as multisets of their text: what is left over is the row after, or the row before, or neither.

This needs no knowledge of which of two equal rows is meant, so the streams that look alike for different tables
come out right: rows (1,a), (2,a) shifted by one, and the row (1,a) moved twice, both send the same. Key 2
has one row come and an equal one go, its state is what it was, and nothing is written for it.

Old rows must be whole (REPLICA IDENTITY FULL). The settled keys come in an order that depends on the keys alone,
never on how much memory there was, so positions are the same at every replay.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO

from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import Retry, SourceError

declare("netting_spilled")

_BUCKETS = 256
_HEAD = struct.Struct(">IIIqQI")
"""table, generation, length of key, count, LSN, length of row."""
_ENTRY_BYTES = 700
"""The memory of an entry beside its key and rows, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledKey:
    """One key whose row is another than before. ``before``, ``after``: None where there is no row.

    ``lsn``: of the last change that touched it. ``unclear``: what came and went does not leave at most one of
    each, which a table with a unique key cannot do. ``before`` and ``after`` are examples then, and the caller
    must look.
    """

    table: int
    key: bytes
    lsn: int
    before: bytes | None
    after: bytes | None
    unclear: bool = False


@dataclass(slots=True)
class _Key:
    lsn: int = 0
    rows: Counter[bytes] = field(default_factory=Counter)


Part = dict[tuple[int, int, bytes], _Key]
"""Keys of one bucket, by table, generation and key."""


class Netting:
    """Collects rows of one transaction. Use as a context or call :meth:`close`.

    ``limit_bytes``: what it may hold before it moves to a temporary file in ``folder``. SourceError when that
    file cannot be written.
    """

    def __init__(self, limit_bytes: int, folder: str | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._folder = folder
        self._keys: Part = {}
        self._generations: dict[int, int] = {}
        self._held_bytes = 0
        self._spill: _Spill | None = None

    def __enter__(self) -> Netting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def empty(self) -> bool:
        """Whether no row was collected."""
        return not self._keys and self._spill is None

    def came(self, table: int, key: bytes, row: bytes, lsn: int) -> None:
        """A row is there now."""
        self._count(table, key, row, lsn, 1)

    def went(self, table: int, key: bytes, row: bytes, lsn: int) -> None:
        """A row is there no more."""
        self._count(table, key, row, lsn, -1)

    def forget(self, table: int) -> None:
        """The table was emptied: nothing collected of it counts."""
        self._generations[table] = self._generations.get(table, 0) + 1

    def hand_over(self, table: int, other: Netting) -> None:
        """Another collects what was collected of the table so far."""
        for part in [self._keys] if self._spill is None else self._spilled():
            for (owner, generation, key), entry in part.items():
                if (owner, generation) == (table, self._generations.get(table, 0)):
                    for row, count in entry.rows.items():
                        other._count(table, key, row, entry.lsn, count)
        self.forget(table)

    def settle(self) -> Iterator[SettledKey]:
        """Every key whose row changed, in an order fixed by the keys. Collects nothing afterwards."""
        if self._spill is None:
            buckets: dict[int, Part] = defaultdict(dict)
            for place, entry in self._keys.items():
                buckets[_bucket(place[2])][place] = entry
            parts: Iterator[Part] = (buckets[number] for number in sorted(buckets))
        else:
            parts = self._spilled()
        for part in parts:
            for place in sorted(part):
                if place[1] == self._generations.get(place[0], 0):
                    yield from _settled(place[0], place[2], part[place])

    def close(self) -> None:
        """Drop everything."""
        self._keys.clear()
        self._generations.clear()
        self._held_bytes = 0
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def _count(self, table: int, key: bytes, row: bytes, lsn: int, by: int) -> None:
        place = (table, self._generations.get(table, 0), key)
        entry = self._keys.get(place)
        if entry is None:
            entry = self._keys[place] = _Key()
            self._held_bytes += len(key) + _ENTRY_BYTES
        entry.lsn = lsn
        left = entry.rows[row] + by
        if left:
            if left == by:
                self._held_bytes += len(row)
            entry.rows[row] = left
        else:
            del entry.rows[row]
            self._held_bytes -= len(row)
        if self._held_bytes > self._limit_bytes:
            self._move()

    def _spilled(self) -> Iterator[Part]:
        self._move()
        assert self._spill is not None
        return self._spill.parts()

    def _move(self) -> None:
        if self._spill is None:
            self._spill = _Spill(self._folder)
        for place, entry in self._keys.items():
            self._spill.add(place, entry)
        self._spill.flush()
        crash_point("netting_spilled")
        self._keys.clear()
        self._held_bytes = 0


class _Spill:
    """Entries in a temporary file, by bucket of their key."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise self._failed(error) from None
        self._blocks: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._waiting: dict[int, list[bytes]] = defaultdict(list)
        self._end = 0

    def add(self, place: tuple[int, int, bytes], entry: _Key) -> None:
        table, generation, key = place
        waiting = self._waiting[_bucket(key)]
        # A key whose rows cancelled so far still carries the LSN of its last change.
        for row, count in entry.rows.items() or [(b"", 0)]:
            waiting.append(_HEAD.pack(table, generation, len(key), count, entry.lsn, len(row)) + key + row)

    def flush(self) -> None:
        try:
            # It may have been read since: a table was handed over.
            self._file.seek(self._end)
            for bucket, entries in self._waiting.items():
                block = b"".join(entries)
                self._file.write(block)
                self._blocks[bucket].append((self._end, len(block)))
                self._end += len(block)
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from None
        self._waiting.clear()

    def parts(self) -> Iterator[Part]:
        for bucket in sorted(self._blocks):
            found: Part = defaultdict(_Key)
            for start, length in self._blocks[bucket]:
                self._file.seek(start)
                _read(self._file.read(length), found)
            yield found

    def close(self) -> None:
        # The bytes in its buffer are of no use, and a full disk would refuse them once more.
        with suppress(OSError):
            self._file.close()

    def _failed(self, error: OSError) -> SourceError:
        return SourceError(
            f"a transaction that must be netted cannot be spilled to {self._folder or tempfile.gettempdir()}: "
            f"{error.strerror}",
            hint="make room there, or name another folder: [capture] spill_path",
            retry=Retry.LATER,
        )


def _read(block: bytes, into: Part) -> None:
    at = 0
    while at < len(block):
        table, generation, key_length, count, lsn, row_length = _HEAD.unpack_from(block, at)
        at += _HEAD.size
        key = block[at : at + key_length]
        at += key_length
        row = block[at : at + row_length]
        at += row_length
        entry = into[(table, generation, key)]
        entry.lsn = max(entry.lsn, lsn)
        if count:
            entry.rows[row] += count


def _settled(table: int, key: bytes, entry: _Key) -> Iterator[SettledKey]:
    came = [row for row, count in entry.rows.items() for _ in range(count)]
    went = [row for row, count in entry.rows.items() for _ in range(-count)]
    if came or went:
        yield SettledKey(
            table=table,
            key=key,
            lsn=entry.lsn,
            before=went[0] if went else None,
            after=came[0] if came else None,
            unclear=len(came) > 1 or len(went) > 1,
        )


def _bucket(key: bytes) -> int:
    return zlib.crc32(key) % _BUCKETS
