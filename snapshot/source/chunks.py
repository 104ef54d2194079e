"""How tables are cut into chunks, each read by one query: pure.

A chunk is a range of heap blocks of one leaf, read by ``ctid``, or a handful of keys. The last range of a leaf has no
end, so rows that went behind the planned size before the snapshot are read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from snapshot.source.forms import LeafForm, TableForm

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
