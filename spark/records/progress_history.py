"""The progress records seen, in no more memory than the changes between them, however many tables they name.

A record names every partition, and most have not moved since the record before: one of 2,000 tables takes 0.8 MB whole.
So each partition keeps when it moved where to, and a store's place is found by one search per partition.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cdc.record.progress import Offsets, Progress
from cdc.record.source_lineage import SourceLineage

_MOST_MARKS, _MOST_MOVES = 4096, 200_000
_PER_PARTITION = 4


class ProgressProof(NamedTuple):
    """The proof that a progress record gives: every change below lies below its offsets, but for the tables in
    ``aside``. ``lineage``: as the record names it."""

    epoch: int
    lsn: int
    aside: Mapping[str, str] = MappingProxyType({})
    lineage: SourceLineage | None = None


class _Moves:
    """One partition: from record ``numbers[i]`` on, ``offsets[i]`` has to be reached. Both grow."""

    __slots__ = ("numbers", "offsets")

    def __init__(self) -> None:
        self.numbers = array("q")
        self.offsets = array("q")

    def first_above(self, offset: int) -> int | None:
        """The number of the first record that a reader at ``offset`` has not passed here."""
        if not self.offsets or self.offsets[-1] <= offset:
            return None
        low, high = 0, len(self.offsets) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.offsets[middle] > offset else (middle + 1, high)
        return self.numbers[low]

    def thin(self, kept: array[int]) -> None:
        """Keep what every kept record asks for. A move of a record that goes is the next kept one's."""
        numbers, offsets = array("q"), array("q")
        for number, offset in zip(self.numbers, self.offsets, strict=True):
            new = bisect_left(kept, number)
            if numbers and numbers[-1] == new:
                offsets[-1] = offset
            else:
                numbers.append(new)
                offsets.append(offset)
        self.numbers, self.offsets = numbers, offsets


class ProgressHistory:
    """Finds the newest record that a reader behind has passed. The older the coarser. The newest always stays."""

    def __init__(self, records: Iterable[Progress] = ()) -> None:
        self._marks: list[ProgressProof] = []
        self._moves: dict[str, dict[int, _Moves]] = {}
        self._partitions = 0
        self._newest: Offsets = {}
        self.moves = 0
        """How many moves are kept."""
        self.add(records)

    def add(self, records: Iterable[Progress]) -> None:
        """Take records in the order of their topic."""
        for record in records:
            self._add(record)

    def names(self, topic: str) -> bool:
        """Whether the newest record says anything of this topic."""
        return topic in self._newest

    def newest_covered(self, offsets: Offsets, topics: Collection[str]) -> ProgressProof | None:
        """The newest record that a reader of these topics at ``offsets`` has passed."""
        passed = len(self._marks)
        for topic in topics:
            here = offsets.get(topic, {})
            if here == self._newest.get(topic):
                continue  # at rest that is most of them
            for partition, moves in self._moves.get(topic, {}).items():
                first = moves.first_above(here.get(partition, 0))
                passed = passed if first is None else min(passed, first)
        return self._marks[passed - 1] if passed else None

    def _add(self, record: Progress) -> None:
        if any(offset < known.offsets[-1] for _, _, offset, known in self._moved(record.offsets) if known is not None):
            # Made anew: what was proven of it before is of no use to anybody.
            self._marks, self._moves, self._newest, self._partitions, self.moves = [], {}, {}, 0, 0
        for topic, partition, offset, known in list(self._moved(record.offsets)):
            moves = known
            if moves is None:
                moves = self._moves.setdefault(topic, {})[partition] = _Moves()
                self._partitions += 1
            moves.numbers.append(len(self._marks))
            moves.offsets.append(offset)
            self.moves += 1
        aside = self._marks[-1].aside if self._marks and self._marks[-1].aside == record.aside else record.aside
        lineage = (
            self._marks[-1].lineage if self._marks and self._marks[-1].lineage == record.lineage else record.lineage
        )
        self._marks.append(ProgressProof(record.epoch, record.lsn, aside, lineage))
        self._newest = record.offsets
        if len(self._marks) > _MOST_MARKS or self.moves > max(_MOST_MOVES, _PER_PARTITION * self._partitions):
            self._thin()

    def _moved(self, offsets: Offsets) -> Iterator[tuple[str, int, int, _Moves | None]]:
        """Partitions that do not stand where they stood, with where they do and what is known of them."""
        for topic, parts in offsets.items():
            if parts == self._newest.get(topic):
                continue
            moves = self._moves.get(topic, {})
            for partition, offset in parts.items():
                known = moves.get(partition)
                if known is None or known.offsets[-1] != offset:
                    yield topic, partition, offset, known

    def _thin(self) -> None:
        """Keep every other record, and the newest."""
        kept = array("q", range((len(self._marks) - 1) % 2, len(self._marks), 2))
        self._marks = [self._marks[number] for number in kept]
        every = [moves for parts in self._moves.values() for moves in parts.values()]
        for moves in every:
            moves.thin(kept)
        self.moves = sum(len(moves.numbers) for moves in every)
