"""When a compacted log can still say what a table was at an LSN: pure.

Compaction keeps the newest record of each key and removes the older ones. It leaves alone what is younger than
``min.compaction.lag.ms``. So an older record of a key is certain to stand there only while every record above the LSN
is that young: none of them can have removed it. A row of a snapshot above the LSN says nothing about the time before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.process.errors import UsageError
from cdc.record.position import Lsn, Position
from cdc.wire.format import READ_OP
from cdc.wire.records import RecordColumns

_POS_CHARS = 32
_ALIGNED = 8
_MARGIN = 10
_MOST_MARGIN_MS = 5_000


class AsOf(NamedTuple):
    """The LSN that was asked for: every change with ``(epoch, commit_lsn)`` below this.

    ``lag_ms``: ``min.compaction.lag.ms`` of the topic, less what the clocks of two machines may differ.
    """

    epoch: int
    lsn: int
    lag_ms: int

    @property
    def text(self) -> bytes:
        """The first position that is not asked for, as headers have it."""
        return Position(self.epoch, self.lsn, 0).text().encode()


def safe_lag_ms(lag_ms: int) -> int:
    """How old a record may be to be sure that the cleaner has not used it yet.

    >>> safe_lag_ms(60_000), safe_lag_ms(3_600_000), safe_lag_ms(0)
    (55000, 3595000, 0)
    """
    return max(0, lag_ms - min(_MOST_MARGIN_MS, -(-lag_ms // _MARGIN)))


def oldest_possible(settled: Iterable[bytes], epoch: int) -> Lsn:
    """The oldest LSN that can be answered. ``settled``: positions of records that the cleaner may have used, and of
    rows of snapshots. An LSN is exclusive and commits are 8-byte aligned, so it lies behind the newest of them."""
    own = [Position.parse(pos.decode()) for pos in settled if len(pos) == _POS_CHARS]
    lsns = [position.commit_lsn for position in own if position.epoch >= epoch]
    return Lsn((max(lsns) // _ALIGNED + 1) * _ALIGNED if lsns else 0)


def too_old(table: str, asked: int, oldest: Lsn) -> UsageError:
    """The refusal of an LSN that lies too far back."""
    return UsageError(
        f"{table} cannot be read as of {Lsn(asked)}: the log is compacted, and may have lost rows of that time",
        hint=f"the oldest LSN that is possible now is {oldest}; a greater [log] min_compaction_lag reaches further "
        "back, from the time on that the topic has it",
    )


def require_reached(table: str, asked: int, held: int) -> None:
    """UsageError where the log does not hold the source up to the LSN yet."""
    if asked > held:
        raise UsageError(
            f"{table} cannot be read as of {Lsn(asked)}: the log holds the source up to {Lsn(held)} only",
            hint="check that cdc run is running and wait until it has caught up; cdc status shows it",
        )


class Settled(NamedTuple):
    """The state of a partition where its records become too young for the cleaner: the record right before, and the
    first one behind. None for a position that is not there."""

    before: bytes | None
    behind: bytes | None


def oldest_of(partitions: Iterable[Settled], epoch: int, held: int) -> Lsn:
    """The oldest LSN that a table's partitions can answer. ``held``: how far the log holds the source.

    Where the record right before is gone, it may have been a delete that outlived its ``delete.retention.ms``. It lay
    below the record behind.
    """
    found = [Lsn(0)]
    for partition in partitions:
        known = partition.before or partition.behind
        found.append(oldest_possible([known], epoch) if known is not None else Lsn(held))
    return max(found)


@dataclass(slots=True)
class AsOfReading:
    """The records above the LSN that a task sees while it reads, and whether the answer is still true at its end."""

    table: str
    asked: AsOf
    oldest_ms: int | None = None
    above: list[bytes] = field(default_factory=list)
    """Positions of rows of snapshots above the LSN, the newest alone."""

    def kept(self, lot: RecordColumns) -> list[int]:
        """The numbers of the records below the LSN, and of those that have no place in the order."""
        limit, found = self.asked.text, []
        for number, pos in enumerate(lot.pos):
            if pos is None or pos < limit:
                found.append(number)
                continue
            if lot.op[number] == READ_OP.encode():
                self.above = [max([pos, *self.above])]
            time_ms = lot.times_ms[number]
            self.oldest_ms = time_ms if self.oldest_ms is None else min(self.oldest_ms, time_ms)
            self._newest = max(self._newest, pos)
        return found

    def require_sound(self, now_ms: int) -> None:
        """UsageError for a row of a snapshot above the LSN, and where a record above it has become old enough for the
        cleaner meanwhile."""
        if self.above:
            raise too_old(self.table, self.asked.lsn, oldest_possible(self.above, self.asked.epoch))
        if self.oldest_ms is not None and now_ms - self.oldest_ms >= self.asked.lag_ms:
            raise too_old(self.table, self.asked.lsn, oldest_possible([self._newest], self.asked.epoch))

    _newest: bytes = b""
