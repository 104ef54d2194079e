"""Changes of one bucket of a relation: what is stored of its rows behind them, and which rows they replace. Pure.

The rules are those of :class:`cdc.views.embedded_state.EmbeddedState`, for a part of the rows of one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc.position import Position
from cdc.topic import TableName
from cdc.views.bucket_layout import StoredCopy
from cdc.views.fences import Fence
from cdc.views.lookups import Row
from cdc.views.row_changes import KEPT, LOST, NO_PLACES, Places, RowChange, filled, newest, parted


class KnownRow(NamedTuple):
    """The row at a key, None for one that was deleted, its position, and the places of values that are not known."""

    row: Row | None
    pos: str
    lost: Places = NO_PLACES


_NEVER = KnownRow(None, "")


class ReplacedRow(NamedTuple):
    """A row before and behind a batch, None where there is none. ``concerns``: whether documents may be others."""

    key: Row
    old: Row | None
    new: Row | None
    pos: str
    concerns: bool
    lost: Places


@dataclass(slots=True)
class BucketOutcome:
    """``replaced``: rows to be stored. ``waiting``: changes that wait for a later fence. ``lost``: of rows of which a
    value was not known or is not: the places, and up to where they were known."""

    replaced: list[ReplacedRow] = field(default_factory=list)
    waiting: list[RowChange] = field(default_factory=list)
    lost: dict[Row, tuple[Places, Fence]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BucketBatch:
    """The bounds that hold for all buckets of a batch. ``fence``: of the cut. ``below``: of the cut before.
    ``floor``: rows of this table below that position are gone."""

    fence: Fence
    below: Fence
    floor: str = ""


def applied(
    copy: StoredCopy,
    batch: BucketBatch,
    known: Mapping[Row, KnownRow],
    changes: Iterable[RowChange],
    waiting: Iterable[RowChange],
) -> BucketOutcome:
    """Apply changes to a bucket of a table's copy by key. ``known``: what is stored of the keys that are concerned, by
    :meth:`StoredCopy.row_key`. With a floor: of all keys of the bucket. ``waiting``: changes that waited before."""
    outcome = BucketOutcome()
    taken = _due(copy, batch, changes, waiting, outcome)
    if batch.floor:
        taken = _swept(copy, batch.floor, known, taken, outcome)
    current = dict(known)
    # A numeric key that became 1.0 from 1 is a deletion of the one and a row at the other, which is the same row here.
    for change in sorted(taken, key=lambda one: (one.row is not None, one.pos)):
        if change.pos >= known.get(copy.row_key(change.key), _NEVER).pos:
            _take(copy, batch, current, change, outcome)
    newest_pos = {link: row.pos for link, row in current.items()}
    stored = {copy.row_key(one.key) for one in outcome.replaced}
    outcome.waiting = [one for one in outcome.waiting if not _outdated(copy, one, newest_pos, stored)]
    return outcome


def _due(
    copy: StoredCopy,
    batch: BucketBatch,
    changes: Iterable[RowChange],
    waiting: Iterable[RowChange],
    outcome: BucketOutcome,
) -> list[RowChange]:
    width = len(copy.relation.columns)
    due: list[RowChange] = []
    ripe: list[RowChange] = []
    later: dict[tuple[Row, str, Fence], RowChange] = {}
    for one in waiting:
        if one.ripe <= batch.fence:
            ripe.append(one._replace(reselected=NO_PLACES, sure=True))
        else:
            later[one.key, one.pos, one.ripe] = one
    for change in changes:
        now, then = parted(change, batch.fence, width)
        if now is not None:
            due.append(now)
        if then is not None:
            later[then.key, then.pos, then.ripe] = then
    ripe.sort(key=lambda one: (one.pos, one.ripe.lsn))
    outcome.waiting = list(later.values())
    found = newest([*ripe, *due])
    return [change for of_table in found.values() for change in of_table.values()]


def _swept(
    copy: StoredCopy, floor: str, known: Mapping[Row, KnownRow], taken: list[RowChange], outcome: BucketOutcome
) -> list[RowChange]:
    """The changes that a floor leaves, and a deletion of each row below it."""
    table, width = copy.relation.table, len(copy.relation.key)
    outcome.waiting = [one for one in outcome.waiting if one.pos >= floor]
    left = [one for one in taken if one.pos >= floor]
    gone = {one.row[:width] for one in known.values() if one.row is not None and one.pos < floor}
    gone |= {one.key for one in taken if one.pos < floor}
    replacing = {copy.row_key(one.key) for one in left}
    return [
        *(RowChange(table, key, None, floor) for key in gone if copy.row_key(key) not in replacing),
        *left,
    ]


def _take(
    copy: StoredCopy, batch: BucketBatch, current: dict[Row, KnownRow], change: RowChange, outcome: BucketOutcome
) -> None:
    link = copy.row_key(change.key)
    before = current.get(link, _NEVER)
    whole, lacks = (None, NO_PLACES) if change.row is None else filled(change.row, before.row, before.lost)
    concerns = before.row != whole or bool(before.lost or lacks)
    current[link] = KnownRow(whole, change.pos, lacks)
    outcome.replaced.append(ReplacedRow(change.key, before.row, whole, change.pos, concerns, lacks))
    if before.lost or lacks:
        position = Position.parse(change.pos)
        outcome.lost[link] = lacks, max(batch.below, Fence(position.epoch, position.commit_lsn))


def _outdated(copy: StoredCopy, one: RowChange, newest_pos: Mapping[Row, str], stored: set[Row]) -> bool:
    link = copy.row_key(one.key)
    return link in stored and one.pos < newest_pos[link]


def row_members(row: Row | None) -> list[Any] | None:
    """A row that may leave values out, as JSON has it: no stored value is an array or an object."""
    return None if row is None else [[] if v is KEPT else {} if v is LOST else v for v in row]


def read_row(members: list[Any] | None) -> Row | None:
    """:func:`row_members` read back."""
    return None if members is None else tuple(KEPT if v == [] else LOST if v == {} else v for v in members)


def change_members(change: RowChange) -> list[Any]:
    """A change without its table, as JSON has it. :func:`read_change` reads it back."""
    rest = [change.pos, *change.ripe, sorted(change.reselected), change.sure]
    return [list(change.key), row_members(change.row), *rest]


def read_change(table: TableName, members: list[Any]) -> RowChange:
    """:func:`change_members` read back."""
    key, row, pos, epoch, lsn, reselected, sure = members
    return RowChange(table, tuple(key), read_row(row), pos, Fence(epoch, lsn), frozenset(reselected), sure)
