"""Records that came too late: what a capture that was taken for dead still had on its way.

A process that was stopped and goes on, or a request that stood in a stalled broker, writes old records behind newer
ones. Stores are not misled, because they compare positions, but compaction keeps what stands last of each key, and a
store built from the log later would be wrong for ever. So the end of each partition is looked through at every start,
and what stands last of such a key is made right again. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc.record.position import CHUNK_SEQ, SNAPSHOT_SEQ, Position

FOREIGN = Position(0, 0, 0)
"""Of a record that has none of ours: below every one that we wrote."""
NO_LSN = (1 << 64) - 1
"""Above every LSN."""
_POSITION = re.compile(rb"[0-9a-f]{32}")
_NOT_STREAMED = (b"%08x" % SNAPSHOT_SEQ, b"%08x" % CHUNK_SEQ)


def is_position(pos: bytes) -> bool:
    """Whether a header's bytes are a position's text."""
    return _POSITION.fullmatch(pos) is not None


class PartitionTail:
    """A partition from a progress record's offset on, taken record by record. There may be millions.

    ``floor``: streamed records from there on lie below the offset already. ``newest``: the highest streamed position
    known to lie there. ``suspect_chunks``: rows of later snapshots are doubted too. Their order proves nothing.
    ``written_lsn``: what the source had written when the partition's end was known. No record of ours lies beyond it.
    """

    def __init__(
        self,
        floor: Position,
        newest: Position | None = None,
        suspect_chunks: bool = False,
        written_lsn: int | None = None,
    ) -> None:
        self._epoch = floor.epoch
        self._most = Position(floor.epoch, NO_LSN if written_lsn is None else written_lsn, CHUNK_SEQ)
        self._most_text = self._most.text().encode()
        # No streamed change stands at the floor itself: its tx_seq is that of a snapshot's row.
        self._floor = floor.text().encode()
        self._top = max(self._floor, newest.text().encode() if newest is not None else b"")
        self._suspect_chunks = suspect_chunks
        self.stale: dict[bytes, Position] = {}
        """Key -> the highest position that stands where it must not."""
        self.offsets: set[int] = set()
        """Of these records."""
        self.foreign: set[int] = set()
        """Offsets of those that no capture of this pipeline wrote."""

    @property
    def newest(self) -> Position | None:
        """The highest streamed position so far. None while there is none beyond the floor."""
        return Position.parse(self._top.decode()) if self._top > self._floor else None

    def position(self, pos: bytes) -> Position:
        """The position that a header has. FOREIGN where it is none, or one that the source has not come to."""
        position = Position.parse(pos.decode()) if is_position(pos) else FOREIGN
        return position if position <= self._most else FOREIGN

    def take(self, offset: int, key: bytes, pos: bytes) -> None:
        """The next record. ``pos`` as its header has it, empty for none.

        One without a position, or with one that the source has not come to, is somebody else's. It stands where ours
        may have stood last, so its key counts as late: what we wrote before it is written again behind it.
        """
        if self._top < pos <= self._most_text and pos[24:] not in _NOT_STREAMED and is_position(pos):
            self._top = pos
            return
        position = self.position(pos)
        if position == FOREIGN:
            self.foreign.add(offset)
            self.stale.setdefault(key, FOREIGN)
            self.offsets.add(offset)
            return
        doubted = position.streamed or (self._suspect_chunks and position.tx_seq == CHUNK_SEQ)
        if doubted or position.epoch < self._epoch:
            self.stale[key] = max(position, self.stale.get(key, position))
            self.offsets.add(offset)


@dataclass(slots=True)
class KeyHistory:
    """Every record that a partition holds of one key, taken in order. ``stale``: the highest that came too late."""

    stale: Position
    best: Position | None = None
    best_offset: int = -1
    last: Position | None = None
    proven: bool = False
    """Whether a record in its right place is as new: else one may have been there, and compaction removed it."""

    def take(self, offset: int, position: Position, *, late: bool) -> bool:
        """The next record. Whether it is the best so far: the newest, and of equals the later one."""
        self.last = position
        self.proven = self.proven or (not late and position >= self.stale and position != FOREIGN)
        if self.best is not None and position < self.best:
            return False
        self.best, self.best_offset = position, offset
        return True

    @property
    def wrong(self) -> bool:
        """Whether what stands last is older than what stood before it."""
        return self.best is not None and self.last is not None and self.last < self.best
