"""Tombstones of Debezium's whose deletes the cleaner has taken, at the place of the rows that they delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdc.schema import TableSchema
from cdc.topic import TableName
from cdc.views.fences import TopicRecord
from cdc.views.record_changes import RecordChanges
from cdc.views.view_state import ViewState
from cdc.wire.format import DELETE_OP
from cdc.wire.records import Lot
from cdc.wire.unplaced import UNPLACED_DELETE_OP, lifted

_DELETE, _UNPLACED = DELETE_OP.encode(), UNPLACED_DELETE_OP.encode()


class LoneTombstones:
    """A tombstone says of its place no more than that it stands behind all that its partition has of the key.

    A reader that has read all of that knows how high it stood. One that begins behind it does not: the cleaner has
    taken the row and its delete, and what is left of the partition may lie below both. The view's state has the row,
    and where it stood (H566).

    ``state``: it is read into. ``tables``: the table of each topic. ``shape``: a version of a topic's table.
    """

    def __init__(
        self, state: ViewState, tables: Mapping[str, TableName], shape: Callable[[str, int], TableSchema]
    ) -> None:
        self._rows = state.rows
        self._tables = tables
        self._changes = RecordChanges(state.plan, tables, shape)

    def placed(self, lot: Lot) -> Lot:
        """A translated lot, with the deletes that lack their place no lower than the rows of their keys."""
        if _UNPLACED not in lot.op:
            return lot
        pos = [self._place(lot, n) if op == _UNPLACED else lot.pos[n] for n, op in enumerate(lot.op)]
        return lot._replace(pos=pos, op=[_DELETE if op == _UNPLACED else op for op in lot.op])

    def _place(self, lot: Lot, number: int) -> bytes | None:
        pos, key = lot.pos[number], lot.keys[number]
        if pos is None or key is None:
            return pos
        version = int(lot.ver[number] or b"0")
        place = lot.topic, lot.partition, lot.offsets[number]
        record = TopicRecord(*place, key, None, pos.decode(), DELETE_OP, version, lot.times_ms[number])
        try:
            change = self._changes.of(record, 0)
        except (ValueError, KeyError, TypeError, AttributeError):
            return pos  # It is none of the table's, and is named as such where it is read.
        _, known = self._rows.known(change.table, [change.key]).get(change.key, (None, ""))
        return lifted(pos.decode(), known).encode()
