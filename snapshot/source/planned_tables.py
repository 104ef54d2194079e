"""Tables as the catalog has them, marks by which one is still the one that was planned, and their chunks. Pure.

A chunk is read by one query: a range of heap blocks of one leaf, read by ``ctid``, or a handful of keys. The last range
of a leaf has no end, so rows that went behind the planned size before the snapshot are read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafForm:
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
    """Marks that show a change of the table without an event, also one that was undone.

    The members are those of :class:`cdc.record.state.FormState`.
    """

    publication: str
    entries: str
    types: dict[str, int]
    links: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """A captured table as the catalog has it now: where its rows lie, and the registered shape they are written in."""

    table: TableName
    topic: str
    oid: int
    version: int
    leaves: tuple[LeafForm, ...]
    marks: CatalogMarks | None = field(default=None, compare=False)

    @property
    def size_bytes(self) -> int:
        """The size of all files that store its rows."""
        return sum(leaf.size_bytes for leaf in self.leaves)

    @property
    def row_estimate(self) -> int:
        """About how many rows it has, by the catalog."""
        return sum(leaf.row_estimate for leaf in self.leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedTable:
    """A table now: its form, its registered shape, and the publication's row filter as SQL, if it has one."""

    form: TableForm
    schema: TableSchema
    condition: str | None


class Inspection(NamedTuple):
    """``tables``: by name, in the order of reading. ``late``: captured tables that were not inspected."""

    tables: dict[str, InspectedTable]
    late: list[str]


def form_change(planned: TableForm, now: TableForm) -> str | None:
    """The change of a table between two looks that came without an event. None when nothing did.

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


def largest_first(forms: Sequence[TableForm]) -> list[TableForm]:
    """The order of reading: big tables first, so that small ones fill the gaps at the end. Equal ones by name."""
    return sorted(forms, key=lambda look: (-look.size_bytes, look.table))


RANGES_SINCE = 140_000
"""server_version_num from which a range of ctids is read without the rest of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Blocks ``low`` up to but not including ``high`` of a leaf. None: to the end, wherever that is.

    Or ``keys`` of the table, and then ``leaf`` is None. Without either it is the whole of a table that has no
    partition, and holds nothing.
    """

    leaf: LeafForm | None = None
    low: int = 0
    high: int | None = None
    keys: tuple[tuple[str, ...], ...] = ()

    @property
    def divisible(self) -> bool:
        """Whether there is a smaller chunk than this."""
        if self.leaf is None:
            return len(self.keys) > 1
        return self.leaf.by_range and (self.high is None or self.high - self.low > 1)

    def halves(self) -> list[Chunk]:
        """Two chunks that hold the same together. Itself alone where there is none smaller."""
        if self.leaf is None:
            middle = len(self.keys) // 2
            return [Chunk(keys=self.keys[:middle]), Chunk(keys=self.keys[middle:])] if middle else [self]
        if not self.divisible:
            return [self]
        # How much lies behind the planned end is not known: one block of it, then the rest.
        end = max(self.leaf.heap_blocks, self.low + 2) if self.high is None else self.high
        middle = (self.low + end) // 2
        return [Chunk(leaf=self.leaf, low=self.low, high=middle), Chunk(leaf=self.leaf, low=middle, high=self.high)]


def blocks_at_once(leaf: LeafForm, *, chunk_bytes: int, server_version: int) -> int | None:
    """How many blocks of a leaf a chunk of about ``chunk_bytes`` takes. None where the leaf is one chunk.

    It is one where ranges cannot be had, or would each read the whole leaf (before PostgreSQL 14).
    """
    if not leaf.by_range or server_version < RANGES_SINCE:
        return None
    return blocks_per_chunk(leaf.heap_blocks, leaf.size_bytes, chunk_bytes)


def leaf_chunks(leaf: LeafForm, step: int | None, start: int = 0) -> Iterator[Chunk]:
    """The chunks of a leaf from block ``start`` on, ``step`` blocks each. At least one."""
    low = start
    while step is not None and low + step < leaf.heap_blocks:
        yield Chunk(leaf=leaf, low=low, high=low + step)
        low += step
    yield Chunk(leaf=leaf, low=low)


def table_chunks(form: TableForm, *, chunk_bytes: int, server_version: int) -> Iterator[Chunk]:
    """The chunks of a table, leaf by leaf, each of about ``chunk_bytes`` of heap and TOAST. At least one per leaf."""
    for leaf in form.leaves:
        yield from leaf_chunks(leaf, blocks_at_once(leaf, chunk_bytes=chunk_bytes, server_version=server_version))


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
    """How much of a leaf a range is, in blocks. An open-ended one counts one block at least."""
    return max((heap_blocks if high is None else high) - low, 1)
