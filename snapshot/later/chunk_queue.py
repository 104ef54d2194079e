"""The chunks of a table that are still to be read in windows, and how many rows a reading has changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cdc.wire.envelope import row_reader
from cdc.wire.format import DELETE_OP, READ_OP, TRUNCATE_OP
from cdc.wire.records import LoggedRecord, read_floor
from snapshot.source.planned_tables import Chunk, LeafForm, blocks_at_once, leaf_chunks

KEYS_PER_CHUNK = 1000
UNRANGED_BYTES = 64 * 1024**2
"""A leaf that cannot be read range by range is read whole, up to this size."""


@dataclass(slots=True)
class _Leaf:
    form: LeafForm
    chunks: Iterator[Chunk]
    done_below: int = 0
    done_all: bool = False


class TooLarge(Exception):
    """A leaf cannot be read range by range, and is too large to be read at once. The argument is its name."""


class ChunkQueue:
    """The chunks of one reading. ``window_bytes``: heap and TOAST of one chunk, about.

    ``done``: ``next`` by leaf oid, of an earlier run. ``whole``: all of the table is wanted, so that it has no leaf any
    more (its last partition was detached) has to be seen too. Raises TooLarge.
    """

    def __init__(
        self,
        leaves: Sequence[LeafForm],
        *,
        keys: Sequence[Sequence[str]] | None = None,
        window_bytes: int,
        server_version: int,
        done: Mapping[int, int | None] | None = None,
        whole: bool = False,
    ) -> None:
        self._returned: list[Chunk] = []
        self._out: set[Chunk] = set()
        self._finished: dict[int, dict[int, int | None]] = {}
        self._leaves: dict[int, _Leaf] = {}
        if keys is not None:
            every = [tuple(key) for key in keys]
            groups = (every[start : start + KEYS_PER_CHUNK] for start in range(0, len(every), KEYS_PER_CHUNK))
            self._returned = [Chunk(keys=tuple(group)) for group in groups]
            return
        if not leaves and whole:
            self._returned = [Chunk()]
        for form in leaves:
            step = blocks_at_once(form, chunk_bytes=window_bytes, server_version=server_version)
            if step is None and form.size_bytes > UNRANGED_BYTES:
                raise TooLarge(str(form.table))
            reached = (done or {}).get(form.oid, 0)
            chunks = leaf_chunks(form, step, reached) if reached is not None else iter(())
            self._leaves[form.oid] = _Leaf(form, chunks, reached or 0, reached is None)

    @property
    def left(self) -> bool:
        """Whether anything is not done."""
        return bool(self._returned or self._out) or any(not leaf.done_all for leaf in self._leaves.values())

    @property
    def share(self) -> float:
        """How much is done, by blocks. 1.0 only when all is."""
        total = sum(max(leaf.form.heap_blocks, 1) for leaf in self._leaves.values())
        if not self.left:
            return 1.0
        done = sum(
            max(leaf.form.heap_blocks, 1) if leaf.done_all else min(leaf.done_below, leaf.form.heap_blocks)
            for leaf in self._leaves.values()
        )
        return min(done / total, 0.999) if total else 0.0

    def take(self) -> Chunk | None:
        """The next chunk to be read. None when all that is left is out."""
        chunk = self._returned.pop(0) if self._returned else self._next()
        if chunk is not None:
            self._out.add(chunk)
        return chunk

    def done(self, chunk: Chunk) -> None:
        """The brokers hold a chunk's rows."""
        self._out.discard(chunk)
        if chunk.leaf is None:
            return
        leaf = self._leaves[chunk.leaf.oid]
        finished = self._finished.setdefault(chunk.leaf.oid, {})
        finished[chunk.low] = chunk.high
        while leaf.done_below in finished:
            high = finished.pop(leaf.done_below)
            if high is None:
                leaf.done_all = True
                break
            leaf.done_below = high

    def put_back(self, chunk: Chunk, *, smaller: bool = False) -> None:
        """A chunk has to be read once more. ``smaller``: in two halves, where it has any."""
        self._out.discard(chunk)
        self._returned[:0] = chunk.halves() if smaller else [chunk]

    def progress(self) -> list[dict[str, Any]]:
        """By leaf, as the state topic holds it."""
        return [
            {
                "oid": leaf.form.oid,
                "schema": leaf.form.table.schema,
                "name": leaf.form.table.table,
                "filenode": leaf.form.filenode,
                "blocks": leaf.form.heap_blocks,
                "next": None if leaf.done_all else leaf.done_below,
            }
            for leaf in self._leaves.values()
        ]

    def _next(self) -> Chunk | None:
        return next((chunk for leaf in self._leaves.values() for chunk in leaf.chunks), None)


# How many rows a reading has changed in the log: pure.
#
# A table is read again where something may be missing, and mostly nothing is. The topic says so afterwards: each row
# that the reading wrote stands behind the record of its key that was the newest before. Compaction keeps that record
# as long as the row is younger than ``min.compaction.lag.ms``. So a topic is looked at once, at the reading's end, and
# the answer counts if the reading took less than that.

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
