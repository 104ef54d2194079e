"""What of a table is still to be read in windows: pure.

A part is a range of heap blocks of one leaf, small enough to be held in memory, or a handful of keys. Parts are given
out in order and come back in any order; what is noted is the block below which all of a leaf is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snapshot.forms import RANGES_SINCE, LeafLook, blocks_per_chunk

KEYS_PER_PART = 1000
UNRANGED_BYTES = 64 * 1024**2
"""A leaf that cannot be read range by range is read whole, up to this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """``low`` up to ``high`` (None: to the end) of a leaf; or ``keys`` of the table, and then ``leaf`` is None.

    Without either it is the whole of a table that has no partition, and holds nothing.
    """

    leaf: LeafLook | None = None
    low: int = 0
    high: int | None = None
    keys: tuple[tuple[str, ...], ...] = ()


@dataclass(slots=True)
class _Leaf:
    look: LeafLook
    step: int | None
    done_below: int = 0
    given_below: int = 0
    given_all: bool = False
    done_all: bool = False


class TooLarge(Exception):
    """A leaf cannot be read range by range, and is too large to be read at once; the argument is its name."""


class Parts:
    """The parts of one reading. ``window_bytes``: heap and TOAST of one part, about.

    ``done``: ``next`` by leaf oid, of an earlier run. ``whole``: all of the table is wanted, so that it has no leaf any
    more (its last partition was detached) has to be seen too. Raises TooLarge.
    """

    def __init__(
        self,
        leaves: Sequence[LeafLook],
        *,
        keys: Sequence[Sequence[str]] | None = None,
        window_bytes: int,
        server_version: int,
        done: Mapping[int, int | None] | None = None,
        whole: bool = False,
    ) -> None:
        self._again: list[Part] = []
        self._out: set[Part] = set()
        self._finished: dict[int, dict[int, int | None]] = {}
        self._leaves: dict[int, _Leaf] = {}
        if keys is not None:
            every = [tuple(key) for key in keys]
            groups = (every[start : start + KEYS_PER_PART] for start in range(0, len(every), KEYS_PER_PART))
            self._again = [Part(keys=tuple(group)) for group in groups]
            return
        if not leaves and whole:
            self._again = [Part()]
        for look in leaves:
            if server_version >= RANGES_SINCE and look.by_range:
                step: int | None = blocks_per_chunk(look.heap_blocks, look.size_bytes, window_bytes)
            elif look.size_bytes > UNRANGED_BYTES:
                raise TooLarge(str(look.table))
            else:
                step = None
            leaf = _Leaf(look, step)
            reached = (done or {}).get(look.oid, 0)
            if reached is None:
                leaf.given_all = leaf.done_all = True
            else:
                leaf.done_below = leaf.given_below = reached
            self._leaves[look.oid] = leaf

    @property
    def left(self) -> bool:
        """Whether anything is not done."""
        return bool(self._again or self._out) or any(not leaf.done_all for leaf in self._leaves.values())

    @property
    def share(self) -> float:
        """How much is done, by blocks; 1.0 only when all is."""
        total = sum(max(leaf.look.heap_blocks, 1) for leaf in self._leaves.values())
        if not self.left:
            return 1.0
        done = sum(
            max(leaf.look.heap_blocks, 1) if leaf.done_all else min(leaf.done_below, leaf.look.heap_blocks)
            for leaf in self._leaves.values()
        )
        return min(done / total, 0.999) if total else 0.0

    def take(self) -> Part | None:
        """The next part to be read; None when all that is left is out."""
        part = self._again.pop(0) if self._again else self._next()
        if part is not None:
            self._out.add(part)
        return part

    def done(self, part: Part) -> None:
        """The brokers hold a part's rows."""
        self._out.discard(part)
        if part.leaf is None:
            return
        leaf = self._leaves[part.leaf.oid]
        finished = self._finished.setdefault(part.leaf.oid, {})
        finished[part.low] = part.high
        while leaf.done_below in finished:
            high = finished.pop(leaf.done_below)
            if high is None:
                leaf.done_all = True
                break
            leaf.done_below = high

    def again(self, part: Part, *, smaller: bool = False) -> None:
        """A part has to be read once more; ``smaller``: in two halves, where it has any."""
        self._out.discard(part)
        self._again[:0] = _halves(part) if smaller else [part]

    def progress(self) -> list[dict[str, Any]]:
        """By leaf, as the state topic holds it."""
        return [
            {
                "oid": leaf.look.oid,
                "schema": leaf.look.table.schema,
                "name": leaf.look.table.table,
                "filenode": leaf.look.filenode,
                "blocks": leaf.look.heap_blocks,
                "next": None if leaf.done_all else leaf.done_below,
            }
            for leaf in self._leaves.values()
        ]

    def _next(self) -> Part | None:
        for leaf in self._leaves.values():
            if leaf.given_all:
                continue
            low = leaf.given_below
            if leaf.step is None or low + leaf.step >= leaf.look.heap_blocks:
                leaf.given_all = True
                return Part(leaf=leaf.look, low=low)
            leaf.given_below = low + leaf.step
            return Part(leaf=leaf.look, low=low, high=leaf.given_below)
        return None


def _halves(part: Part) -> list[Part]:
    if part.keys:
        middle = len(part.keys) // 2
        return [Part(keys=part.keys[:middle]), Part(keys=part.keys[middle:])] if middle else [part]
    assert part.leaf is not None
    if not part.leaf.by_range:
        return [part]
    if part.high is None:
        # How much lies behind the planned end is not known: one block of it, then the rest.
        middle = (part.low + max(part.leaf.heap_blocks, part.low + 2)) // 2
    else:
        middle = (part.low + part.high) // 2
    if middle <= part.low:
        return [part]
    return [Part(leaf=part.leaf, low=part.low, high=middle), Part(leaf=part.leaf, low=middle, high=part.high)]
