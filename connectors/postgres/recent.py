"""Wide rows of the open transaction, for values that a later change of the same row leaves out.

The usual pattern of an object mapper is INSERT, then UPDATE of the same row in one transaction: the update's
TOASTed values are those of the insert, and asking the source for them would be slower and later. It is
only a shortcut: what was forgotten for want of room is looked up.
"""

from __future__ import annotations

from connectors.postgres.messages import Insert, Tuple, Update
from connectors.postgres.pgoutput import decode

Place = tuple[int, bytes]
"""Lane of the table's partition 0, and key."""
_PAYLOAD_AT = 25


class Recent:
    """``rows``: by place, the message that brought the row, or its values. The stream drops places from it
    whose row changed to one that is not wide."""

    def __init__(self, limit_bytes: int) -> None:
        self.rows: dict[Place, bytes | Tuple] = {}
        self._limit_bytes = limit_bytes
        self._size_bytes = 0

    def keep(self, place: Place, row: bytes | Tuple, size_bytes: int) -> None:
        """Remember the newest row at ``place``. Past the limit, forget all until the transaction ends."""
        self._size_bytes += size_bytes
        if self._size_bytes > self._limit_bytes:
            self.rows.clear()
        else:
            self.rows[place] = row

    def row(self, place: Place) -> Tuple | None:
        """The newest row at ``place``, if it is known."""
        found = self.rows.get(place)
        if isinstance(found, bytes):
            message = decode(found[_PAYLOAD_AT:])
            return message.new if isinstance(message, Insert | Update) else None
        return found

    def forget_table(self, lane: int) -> None:
        """Forget the rows of one lane."""
        for place in [place for place in self.rows if place[0] == lane]:
            del self.rows[place]

    def clear(self) -> None:
        """The transaction ended."""
        self.rows.clear()
        self._size_bytes = 0
