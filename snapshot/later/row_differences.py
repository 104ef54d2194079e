"""How many rows a reading has changed in the log: pure.

A table is read again where something may be missing, and mostly nothing is. The topic says so afterwards: each
row that the reading wrote stands behind the record of its key that was the newest before. Compaction keeps that record
as long as the row is younger than ``min.compaction.lag.ms``. So a topic is looked at once, at the reading's end, and
the answer counts if the reading took less than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cdc.wire.floors import read_floor
from cdc.wire.format import DELETE_OP, READ_OP, TRUNCATE_OP
from cdc.wire.records import LoggedRecord
from cdc.wire.row import row_reader

MOST_RECORDS = 100_000
MOST_BYTES = 32 * 1024**2
"""Of a topic that is looked at: 0.9 s of a processor's time (measured), and some 25 MB for a moment."""
_FLOOR_OP, _DELETE_OP, _READ_OP = TRUNCATE_OP.encode(), DELETE_OP.encode(), READ_OP.encode()
_LOWEST = b""
_TIME, _NS_DIGITS = b'"ts_ns":', 19
"""19 digits until the year 2286."""


class NotComparable(ValueError):
    """The log does not say what it had before. The argument says why."""


class _NewestRow(NamedTuple):
    """The newest record of a key: its position, and a digest of its row. None for one that was deleted."""

    pos: bytes
    row: int | None


class RowDifferences:
    """One reading's. ``floor``: its position's text. ``columns``: of the table, as it was read. ``begun``: the position
    of the first row that it wrote, below its floor where the table was rewritten meanwhile and read anew.
    ``started_ns``: when it began. In an idle database the reading before it wrote at the same positions."""

    def __init__(self, floor: str, columns: Sequence[str], begun: str = "", started_ns: int = 0) -> None:
        if not floor:
            raise NotComparable("nothing of it was written")
        self._floor = floor.encode()
        self._begun = min(begun or floor, floor).encode()
        self._started_ns = started_ns
        self._row = row_reader(columns)
        self._partitions: dict[int, dict[int, _NewestRow]] = {}
        self._floors: dict[int, bytes] = {}
        self._differing: set[tuple[int, int]] = set()
        self._size_bytes = 0

    def take(self, records: Iterable[LoggedRecord]) -> int:
        """Every record of the topic, each partition's in order. Returns how many rows differ from what was there.

        NotComparable for a topic that is too large, or that others have written to.
        """
        for record in records:
            self._take(record)
        return len(self._differing)

    def _take(self, record: LoggedRecord) -> None:
        partition, key, value, pos, op = record
        if value is None:
            return  # a tombstone, behind the delete that counts
        self._size_bytes += len(key or b"") + len(value)
        if self._size_bytes > MOST_BYTES:
            raise NotComparable(f"its topic has more than {MOST_BYTES // 1024**2} MB")
        if key is None or pos is None:
            raise NotComparable("its topic has records of another writer")
        if op == _FLOOR_OP:
            self._empty(partition, key, value, pos)
            return
        known, name = self._partitions.setdefault(partition, {}), hash(key)
        before = known.get(name)
        if before is not None and pos < before.pos:
            return  # an older one, sent again
        row = None if op == _DELETE_OP else hash(self._row(value))
        if op == _READ_OP and pos >= self._begun and self._ours(value):
            was = before.row if before is not None and before.pos >= self._floors.get(partition, _LOWEST) else None
            if was != row:
                self._differing.add((partition, name))
        known[name] = _NewestRow(pos, row)

    def _ours(self, value: bytes) -> bool:
        """Whether a record was made since the reading began: the last time in its envelope says so."""
        _, found, tail = value.rpartition(_TIME)
        digits = tail[:_NS_DIGITS]
        return not found or not digits.isdigit() or int(digits) >= self._started_ns

    def _empty(self, partition: int, key: bytes, value: bytes, pos: bytes) -> None:
        """A truncate, or the mark of a sweep: of this reading, or of an earlier one."""
        floor = read_floor(key, value, pos.decode()).floor.encode()
        last = self._floors.get(partition, _LOWEST)
        if floor == self._floor and self._ours(value):
            known = self._partitions.get(partition, {})
            gone = (name for name, one in known.items() if one.row is not None and last <= one.pos < floor)
            self._differing.update((partition, name) for name in gone)
        self._floors[partition] = max(last, floor)


def said_of(differing: int) -> str:
    """The result of a comparison in words.

    >>> said_of(0), said_of(1), said_of(1200)
    ('no row differed from the log', '1 row differed from the log', '1,200 rows differed from the log')
    """
    if not differing:
        return "no row differed from the log"
    return f"{differing:,} row{'' if differing == 1 else 's'} differed from the log"
