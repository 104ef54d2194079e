"""Masks cover columns by their number, whatever they are called when the stream brings them. Pure.

A stream may lag behind the catalog, and so behind the settings, which name columns as they are called now. A message
has names and no numbers. So the numbers of its columns are found out first, and a table with masks whose numbers are
not certain is not followed: under a name of another time a masked column would be written as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.errors import ConfigError
from cdc.mask_rules import MaskRule, Masks
from cdc.schema import TableSchema
from cdc.topic import TableName
from connectors.postgres.masked_shapes import no_such_column

_XIDS, _FROZEN = 1 << 32, 2


class ColumnEntry(NamedTuple):
    """A column's entry in the catalog, of a dropped one too. ``born``: the 32-bit transaction that wrote it last."""

    attnum: int
    live: bool
    born: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownShapes:
    """The log's knowledge of a relation. ``latest``: the last shape under the announced name. ``covered``: attnum ->
    the table's and the column's name under which the log has it masked. ``xid``: the message's transaction."""

    latest: TableSchema | None = None
    covered: Mapping[int, tuple[TableName, str]] = field(default_factory=dict)
    xid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A message's table. ``now``: its shape in the catalog without masks, None for one that is gone. ``entries``: in
    the order of their numbers."""

    table: TableName
    oid: int
    names: Sequence[str]
    now: TableSchema | None
    entries: Sequence[ColumnEntry]
    known: KnownShapes


class Cover(NamedTuple):
    """``numbers``: of the message's columns, in its order. ``rules``: the masks of those that have one, by the names of
    the message."""

    numbers: Sequence[int]
    rules: Mapping[str, MaskRule]


def concerned(announced: Announced, masks: Masks) -> bool:
    """Whether the relation has masks, under this name or another one."""
    now = announced.now
    return bool(masks.of(announced.table) or announced.known.covered or (now is not None and masks.of(now.table)))


def cover(announced: Announced, masks: Masks) -> Cover:
    """The numbers of the columns, and the masks that they have by their names or by their numbers.

    ConfigError where they are not certain, or a column that the log has masked under another name has no mask.
    """
    table, found = announced.table, _numberings(announced)
    every = [_rules(announced, numbers, masks) for numbers in found]
    if not found or any(rules != every[0] for rules in every):
        raise ConfigError(
            f"columns of {table}, which has masks, may have had other names when these rows were written",
            hint=f"cdc snapshot {table} reads it anew, and its changes are written from then on",
        )
    _require_columns(announced, masks)
    return Cover(found[0], every[0])


def _rules(announced: Announced, numbers: Sequence[int], masks: Masks) -> dict[str, MaskRule]:
    """The masks of the columns, numbered like this: of their names in the message, or of their names now."""
    table, own, now = announced.table, masks.of(announced.table), announced.now
    meant = masks.of(now.table) if now is not None else {}
    named = {column.attnum: column.name for column in now.columns} if now is not None else {}
    found: dict[str, MaskRule] = {}
    for name, number in zip(announced.names, numbers, strict=True):
        by_name, by_number = own.get(name), meant.get(named.get(number, ""))
        rule = by_name or by_number
        if by_name is not None and by_number is not None and by_name != by_number:
            raise ConfigError(
                f"column {name} of {table} has another name and another mask now",
                hint="rename it back, or set one mask for both names",
            )
        former = announced.known.covered.get(number, (table, name))
        if rule is None and former != (table, name):
            raise ConfigError(
                f"column {name} of {table} was masked under another name, {former[1]} of {former[0]}, and has no mask "
                "under this one",
                hint=f'set its mask under [tables."{table}"] columns, or rename it back',
            )
        if rule is not None:
            found[name] = rule
    return found


def _require_columns(announced: Announced, masks: Masks) -> None:
    """ConfigError for a mask that names no column: not in the message, nor one that the catalog has now, which came
    later or has another name in the message."""
    now = announced.now
    known = {column.name for column in now.columns} if now is not None and now.table == announced.table else set()
    gone = sorted(masks.of(announced.table).keys() - set(announced.names) - known)
    if gone:
        raise no_such_column(announced.table, gone)


def _numberings(announced: Announced) -> list[tuple[int, ...]]:
    """Every way in which the message's columns may be numbered, the likeliest first. None where it is not certain."""
    names, known = announced.names, announced.known
    now = _numbering(names, announced.now, announced.oid)
    noted = _numbering(names, known.latest, announced.oid)
    if now is not None and (now == noted or _certain(now, announced)):
        # A migration takes its number first, and may wait for this message's transaction before it changes the table:
        # the lower number is no earlier change then. So the log's numbers count as well, where they are others.
        return [now] if noted is None or now == noted else [now, noted]
    if noted is None:
        return []
    return [noted] if now is None else [noted, now]


def _numbering(names: Sequence[str], shape: TableSchema | None, oid: int) -> tuple[int, ...] | None:
    """The numbers that a shape gives to these names. None unless it has all of them, in rising order as a message
    has."""
    if shape is None or shape.oid != oid:
        return None
    by_name = shape.numbers
    found = tuple(by_name.get(name, 0) for name in names)
    rising = all(low < high for low, high in zip((0, *found), found, strict=False))
    return found if rising else None


def _certain(numbers: Sequence[int], announced: Announced) -> bool:
    """Whether the catalog's numbers are the message's.

    They are where no entry up to the highest one changed since the message's transaction. They are as well where they
    are those of the first columns of all, of which none was dropped since: a number is never given twice.
    """
    highest = numbers[-1] if numbers else 0
    entries = [entry for entry in announced.entries if entry.attnum <= highest]
    newer = [entry for entry in entries if _is_newer(entry.born, announced.known.xid)]
    live = [entry.attnum for entry in entries if entry.live]
    return not newer or (live == list(numbers) and all(entry.live for entry in newer))


def _is_newer(born: int, xid: int) -> bool:
    """Whether a 32-bit transaction is a later one than a 64-bit one.

    >>> _is_newer(701, 700), _is_newer(700, 700), _is_newer(5, (1 << 32) - 2), _is_newer(2, 3 << 30)
    (True, False, True, False)
    """
    return born > _FROZEN and 0 < (born - xid) % _XIDS < _XIDS // 2
