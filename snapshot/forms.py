"""How tables are cut into chunks: pure.

A chunk is a range of heap blocks of one leaf, read by ``ctid``. The last one of a leaf has no end, so rows that
went behind the planned size before the cut are read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.topic import TableName

RANGES_SINCE = 140_000
"""server_version_num from which a range of ctids is read without the rest of the table."""
_LEAST_BYTES = 4 * 1024**2
_ROUNDS = 8
"""Chunks per worker at least, so that all end at about the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafLook:
    """A table that holds rows, as the catalog has it now.

    ``filenode``: of its heap. ``size_bytes``: heap and TOAST. ``row_estimate``: the planner's. ``by_range``: whether
    our role may ask for ``ctid``, which rights on columns alone do not allow.
    """

    oid: int
    table: TableName
    filenode: int
    heap_blocks: int
    size_bytes: int
    row_estimate: int = 0
    by_range: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogMarks:
    """What tells later that a table was changed without an event, also where that was changed back.

    The members are those of :class:`cdc.state.FormState`.
    """

    publication: str
    entries: str
    types: dict[str, int]
    links: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """A captured table as the catalog has it now: where its rows lie, and the registered shape they are written in."""

    table: TableName
    topic: str
    oid: int
    version: int
    leaves: tuple[LeafLook, ...]
    marks: CatalogMarks | None = field(default=None, compare=False)

    @property
    def size_bytes(self) -> int:
        return sum(leaf.size_bytes for leaf in self.leaves)

    @property
    def row_estimate(self) -> int:
        return sum(leaf.row_estimate for leaf in self.leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What decides how large a chunk is. ``most_bytes``: ``[snapshot] chunk_bytes``."""

    workers: int
    most_bytes: int
    server_version: int

    def chunk_bytes(self, total_bytes: int) -> int:
        """``most_bytes``, or less where few chunks would leave workers idle at the end."""
        return max(min(self.most_bytes, total_bytes // (self.workers * _ROUNDS)), min(self.most_bytes, _LEAST_BYTES))


class BlockRange(NamedTuple):
    """Blocks ``low`` up to but not including ``high``; None: to the end, wherever that is."""

    leaf: LeafLook
    low: int
    high: int | None


def block_ranges(look: TableLook, *, chunk_bytes: int, server_version: int) -> Iterator[BlockRange]:
    """The chunks of a table, leaf by leaf; at least one per leaf.

    A chunk holds about ``chunk_bytes`` of heap and TOAST. Where ranges cannot be had, or would each read the whole
    leaf (before PostgreSQL 14), a leaf is one chunk.
    """
    for leaf in look.leaves:
        step = leaf.heap_blocks
        if leaf.by_range and server_version >= RANGES_SINCE:
            step = blocks_per_chunk(leaf.heap_blocks, leaf.size_bytes, chunk_bytes)
        starts = range(0, leaf.heap_blocks, step) if leaf.heap_blocks else range(1)
        for low in starts:
            last = low + step >= leaf.heap_blocks
            yield BlockRange(leaf, low, None if last else low + step)


def blocks_per_chunk(heap_blocks: int, size_bytes: int, chunk_bytes: int) -> int:
    """How many heap blocks go with ``chunk_bytes``, the TOASTed values they point to counted in.

    >>> blocks_per_chunk(1000, 8_192_000, 819_200)
    100
    >>> blocks_per_chunk(10, 1_000_000_000, 1_000_000)
    1
    """
    if not size_bytes:
        return max(heap_blocks, 1)
    return max(heap_blocks * chunk_bytes // size_bytes, 1)


def block_count(heap_blocks: int, low: int, high: int | None) -> int:
    """How much of a leaf a range is, in blocks; an open-ended one counts one block at least."""
    return max((heap_blocks if high is None else high) - low, 1)


def form_change(planned: TableLook, now: TableLook) -> str | None:
    """What happened to a table between two looks that no event tells; None when nothing did (H71, H85, H86).

    A sentence part that follows the table's name.
    """
    if planned.oid != now.oid:
        return "was dropped and made anew"
    if {leaf.oid for leaf in planned.leaves} != {leaf.oid for leaf in now.leaves}:
        return "has other partitions now"
    files = {leaf.oid: leaf.filenode for leaf in planned.leaves}
    if any(files[leaf.oid] != leaf.filenode for leaf in now.leaves):
        return "was rewritten or truncated"
    # Chunks name their leaf: one of the old name would not be found, or be another table's.
    if {leaf.oid: leaf.table for leaf in planned.leaves} != {leaf.oid: leaf.table for leaf in now.leaves}:
        return "has renamed partitions now"
    if planned.version != now.version:
        return "has other columns now"
    return None


def largest_first(looks: Sequence[TableLook]) -> list[TableLook]:
    """The order of reading: big tables first, so that small ones fill the gaps at the end; equal ones by name."""
    return sorted(looks, key=lambda look: (-look.size_bytes, look.table))
