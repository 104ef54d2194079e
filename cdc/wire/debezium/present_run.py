"""The stretch of a partition that one run has read, and the updates in it that no stored row from before may fill.

A sink that is away for longer than the cleaner waits comes back to a log that lacks changes. An update that leaves out
an unchanged value names the place before which that may be so. Pure.
"""

from __future__ import annotations

import orjson

from cdc.position import CHUNK_SEQ, Position
from cdc.wire.format import UNAVAILABLE
from cdc.wire.unavailable import BASE64, NUMBERS, UUID

UNBROKEN_FROM = "unbrokenFrom"
"""Member of the envelope of an update that lacks a value: where its run began. A row that was stored before may not
fill it. Where it is left out, every one may."""
_LACKING = tuple(text.encode() for text in (UNAVAILABLE, BASE64, orjson.dumps(NUMBERS).decode(), UUID))
"""Bytes of which some are in every record that lacks a value. One that has them in a text is marked in vain."""


class PresentRun:
    """Begins with its reader, and again where so long passed that the cleaner may have come meanwhile. Can be pickled.

    The cleaner leaves gaps in the offsets. Without one nothing was taken. One right at the beginning counts, unless
    the record before it was seen (see :meth:`begin`) or the partition begins there.
    """

    def __init__(self) -> None:
        self._next = 0
        self._gap = False
        self._from: Position | None = None

    def begin(self) -> None:
        """All up to here was seen, by this run or one before it."""
        self._gap, self._from = False, None

    def reach(self, offset: int) -> None:
        """A record is read. One that is read again leaves no gap."""
        self._gap |= offset > self._next
        self._next = offset + 1

    def place(self, pos: Position, highest: Position | None) -> None:
        """Where a change stands, and the highest one before it. The run's first is above all that was stored before it,
        or is taken to be: a connector sends changes again, and those of a transaction stand at one place."""
        if self._from is None:
            self._from = pos if highest is None or pos > highest else _behind(highest)

    def marked(self, value: bytes) -> bytes:
        """An update with the place where the run began, if it lacks a value and a record is missing since. The member
        stands last: a row is cut out of its record by those before it."""
        if not self._gap or self._from is None or not any(text in value for text in _LACKING):
            return value
        return b'%b,"%b":"%b"}' % (value.rstrip()[:-1], UNBROKEN_FROM.encode(), self._from.text().encode())


def _behind(pos: Position) -> Position:
    if pos.tx_seq < CHUNK_SEQ:
        return pos._replace(tx_seq=pos.tx_seq + 1)
    return Position(pos.epoch, pos.commit_lsn + 1, 0)
