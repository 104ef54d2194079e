"""The chunks of a table that are still to be read in windows: pure.

A chunk is a range of heap blocks of one leaf, small enough to be kept in memory, or a handful of keys. Chunks are given
out in order and come back in any order. The note is the block below which all of a leaf is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snapshot.chunks import Chunk, blocks_at_once, leaf_chunks
from snapshot.forms import LeafForm

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
