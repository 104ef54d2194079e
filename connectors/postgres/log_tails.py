"""Nothing twice: which of the records that the stream brings again are in the log already.

Streamed records of a partition stand in it in the order of their positions. So every record at or below the
highest position found at a partition's end is there, and none above it is. Transactions below the
progress LSN need no look at their records at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.position import Position


class LogTails:
    """``lanes``: the highest streamed position found in each lane's tail, for those that have one."""

    def __init__(self, after_lsn: int, epoch: int, lanes: Mapping[int, Position]) -> None:
        self._after_lsn = after_lsn
        self._lanes = {lane: position.text().encode() for lane, position in lanes.items()}
        self._until_lsn = max((p.commit_lsn for p in lanes.values() if p.epoch == epoch), default=-1)

    def whole(self, commit_lsn: int) -> bool:
        """Whether everything of the transaction is in the log."""
        return commit_lsn < self._after_lsn

    def partly(self, commit_lsn: int) -> bool:
        """Whether some of the transaction may be in the log."""
        return commit_lsn <= self._until_lsn

    def has(self, lane: int, pos: bytes) -> bool:
        """Whether the record at ``pos`` (32 hex digits) is in the lane."""
        return pos <= self._lanes.get(lane, b"")
