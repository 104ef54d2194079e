"""Changes of rows: what of one holds at a fence, and what has to wait for a later one. Pure.

Capture writes some values that are newer than their place: rows of later snapshots, and long values that it read again.
Each says the LSN below which it may be from. At a fence below that LSN such a value must not show.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cdc.position import Position
from cdc.topic import TableName
from cdc.views.fences import BEFORE_ALL, Fence
from cdc.views.lookups import Row


class RowChange(NamedTuple):
    """One row of a relation: its ``key``, and the row behind the change, None for a deletion. ``pos``: position.

    ``ripe``: below this fence the row may be newer than the fence. ``reselected``: the places of the values of which
    that is to be said. Without any, it is said of the row as a whole. ``sure``: what is stored at the key
    is the row just before: the cleaner has taken no record in between, and the row has come from no other key.
    """

    table: TableName
    key: Row
    row: Row | None
    pos: str
    ripe: Fence = BEFORE_ALL
    reselected: frozenset[int] = frozenset()
    sure: bool = True


class _Kept:
    """Stands in a row for a value that the record leaves out, because it did not change."""

    def __repr__(self) -> str:
        return "KEPT"


class _Lost:
    """Stands in a row for a value that nobody here knows."""

    def __repr__(self) -> str:
        return "LOST"


KEPT = _Kept()
LOST = _Lost()
Places = frozenset[int]
NO_PLACES: Places = frozenset()


def filled(row: Row, older: Row | None, lost: Places = NO_PLACES) -> tuple[Row, Places]:
    """A row with what it leaves out taken from an older one of its key, and the places of values that are not known.

    There stands the older one's value, NULL without one. ``lost``: the places of the older row that are not known.
    """
    if KEPT not in row and LOST not in row:
        return row, NO_PLACES
    without = [None] * len(row)
    unknown = {i for i, value in enumerate(row) if value is LOST or (value is KEPT and (older is None or i in lost))}
    pairs = zip(row, older or without, strict=True)
    return tuple(old if value is KEPT or value is LOST else value for value, old in pairs), frozenset(unknown)


def lost_row(key: Row, columns: int) -> Row:
    """A row of which the key alone is known. ``columns``: how many it has."""
    return (*key, *[LOST] * (columns - len(key)))


def parted(change: RowChange, fence: Fence, columns: int) -> tuple[RowChange | None, RowChange | None]:
    """The parts of a change that hold at a fence, and those that wait. ``columns``: how many the row has.

    A later snapshot's row says nothing of a fence below: the row that is stored is the one of the fence. So is the
    stored value of a column that an update did not change. Where the cleaner may have taken records in between, the
    stored value may be too old, and is lost until the new one is ripe.
    """
    if change.ripe <= fence:
        return _certain(change), None
    if change.reselected and change.row is not None:
        row = tuple(KEPT if i in change.reselected else value for i, value in enumerate(change.row))
        return _certain(change._replace(row=row)), change
    if change.sure and not Position.parse(change.pos).streamed:
        return None, change
    return change._replace(row=lost_row(change.key, columns)), change


def _certain(change: RowChange) -> RowChange:
    """The change, with LOST for values that it leaves out, unless it is sure that no record came in between. One
    may have changed the stored value."""
    if change.sure or change.row is None or KEPT not in change.row:
        return change
    return change._replace(row=tuple(LOST if value is KEPT else value for value in change.row))


def newest(changes: Iterable[RowChange]) -> dict[TableName, dict[Row, RowChange]]:
    """Of each key the change with the greatest position. Of equal ones the later."""
    found: dict[TableName, dict[Row, RowChange]] = {}
    for change in changes:
        of_table = found.setdefault(change.table, {})
        known = of_table.get(change.key)
        if known is None:
            of_table[change.key] = change
        elif change.pos >= known.pos:
            of_table[change.key] = change._replace(row=_over(change.row, known.row))
    return found


def _over(newer: Row | None, older: Row | None) -> Row | None:
    """The older row has the values that the newer one leaves out. They are lost where the row went between the two."""
    if newer is None or KEPT not in newer:
        return newer
    if older is None:
        return tuple(LOST if value is KEPT else value for value in newer)
    return tuple(old if value is KEPT else value for value, old in zip(newer, older, strict=True))
