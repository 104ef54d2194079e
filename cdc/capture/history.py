"""The history of a table: each record of its topic once more, in one that is never compacted. Pure.

A kill may come between the two. So each of the two partitions has a tail of its own: what the stream brings again is
left out where it stands, and is written where it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cdc.capture.advance import CommitTimes
from cdc.record.documents import dumped
from cdc.record.ports import Record, Withheld
from cdc.record.position import CHUNK_SEQ, SNAPSHOT_SEQ, Lsn, Position
from cdc.wire.format import AT, GAP_KEY, GAP_OP, OP, POS

_NOT_STREAMED: Final = (b"%08x" % SNAPSHOT_SEQ, b"%08x" % CHUNK_SEQ)
_RECORD_BYTES = 1024
"""The bytes of a batch and a record around key, value and headers, generously."""


class HistoryCopies:
    """Which records of a session go to which histories. ``limit_bytes``: of a record. ``times``: of the commits, a
    header of each streamed record's copy."""

    def __init__(self, limit_bytes: int, times: CommitTimes | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._times = times or CommitTimes()
        self._histories: dict[int, int] = {}
        self._tails: dict[int, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._histories)

    def keep(self, lane: int, history: int, count: int) -> None:
        """From now on, records of ``count`` lanes go to as many others, too."""
        self._histories |= {lane + number: history + number for number in range(count)}

    def hold(self, lane: int, tail: bytes) -> None:
        """A lane holds streamed records up to this position (32 hex digits) from before."""
        self._tails[lane] = tail

    def of(self, records: Iterable[Record]) -> list[Record]:
        """The records, each followed by its copy. Streamed ones are left out where the topic, or the history, has them
        already. A tombstone says what the delete before it has said, and gets no copy."""
        histories, tails, found = self._histories, self._tails, []
        for record in records:
            lane, _, value, headers = record
            history = histories.get(lane)
            if history is None:
                found.append(record)
                continue
            pos = headers[0][1]
            streamed = pos[24:] not in _NOT_STREAMED
            if not streamed or pos > tails.get(lane, b""):
                found.append(record)
            if value is not None and (not streamed or pos > tails.get(history, b"")):
                found.append(self._copy(history, record, streamed=streamed))
        return found

    def _copy(self, history: int, record: Record, *, streamed: bool) -> Record:
        _, key, value, headers = record
        at = [(AT, b"%d" % self._times.of(int(headers[0][1][8:24], 16)))] if streamed else []
        size = len(value or b"") + len(key)
        if isinstance(value, Withheld) or size + _RECORD_BYTES > self._limit_bytes:
            gap = dumped({GAP_OP: {"bytes": size, "why": "the record is larger than its topic takes"}})
            return history, key, gap, [headers[0], (OP, GAP_OP.encode()), *at]
        return history, key, value, [*headers, *at]


def gaps(lanes: Iterable[int], epoch: int, lsn: int) -> list[Record]:
    """A record for each partition (``lanes``) of a history that begins at an LSN: changes below it may be missing,
    except those that stand before the record."""
    pos = Position(epoch, lsn, CHUNK_SEQ).text().encode()
    value = dumped({GAP_OP: {"to": str(Lsn(lsn)), "why": "the changes before this were not kept"}})
    return [(lane, GAP_KEY, value, [(POS, pos), (OP, GAP_OP.encode())]) for lane in lanes]


def common_tail(tails: Sequence[Position | None]) -> Position | None:
    """Up to where a table's partition and its history both hold the stream. None where one of them holds nothing."""
    known = [position for position in tails if position is not None]
    return min(known) if len(known) == len(tails) else None
