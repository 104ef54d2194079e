"""Where the rows of a view's state stand on many machines: each relation once by its key, and once by each list of
columns that ties. Every such copy is cut into buckets by a hash of the values of its columns. Pure.

A batch touches the buckets of its keys alone. Rows that are looked up by equal values stand in one bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zlib import crc32

import orjson

from cdc.topic import TableName
from cdc.views.lookups import Row
from cdc.views.sql_types import PRINTED, Group
from cdc.views.stored_values import link_text
from cdc.views.view_plan import KeptTable, ViewPlan

_WHOLE = frozenset({Group.INTEGER, Group.BOOLEAN, Group.DATE, Group.TIME, Group.TIMESTAMP, Group.TIMESTAMPTZ})


def place_hash(values: Sequence[Any]) -> int:
    """32 bits of the values by which rows are found.

    >>> place_hash((1,)) == place_hash((1,)), 0 <= place_hash(("a", None)) < 2**32
    (True, True)
    """
    return crc32(orjson.dumps(values))


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """A relation as it is stored once. ``by``: the columns whose values say the bucket. ``primary``: they are its key.

    ``number``: of the copy, from 0. The primary one has positions, and what is left of deleted rows.
    """

    number: int
    relation: KeptTable
    by: tuple[str, ...]

    @property
    def primary(self) -> bool:
        """Whether it is the copy by key."""
        return self.by == self.relation.key

    @property
    def name(self) -> str:
        """Of its table of the state."""
        return f"copy{self.number}"

    def found_by(self, values: Sequence[Any]) -> Row:
        """Values of ``by`` as rows are found by them: of a number, the text of its value."""
        return _links(self.relation, self.by, values)

    def link(self, row: Row) -> Row:
        """The same of a whole row."""
        columns = self.relation.columns
        return self.found_by([row[columns.index(column)] for column in self.by])

    def row_key(self, row: Row) -> Row:
        """A whole row's key, equal for rows that replace each other."""
        return _links(self.relation, self.relation.key, row[: len(self.relation.key)])


def _links(relation: KeptTable, columns: Sequence[str], values: Sequence[Any]) -> Row:
    pairs = zip(columns, values, strict=True)
    return tuple(link_text(Decimal(v)) if v is not None and _decimal(relation, c) else v for c, v in pairs)


def _decimal(relation: KeptTable, column: str) -> bool:
    kind = relation.kind(column)
    return kind.group is Group.NUMERIC and not kind.array


def column_form(relation: KeptTable, column: str) -> str:
    """How values of a column stand in a file: ``whole`` numbers, ``text``, or ``json`` of either."""
    kind = relation.kind(column)
    if kind.array:
        return "text"
    if kind.group is Group.FLOAT or kind.kind in PRINTED:
        return "json"
    return "whole" if kind.group in _WHOLE else "text"


class BucketLayout:
    """The copies of a plan's relations, and the number of each bucket among all. ``buckets``: of each copy."""

    def __init__(self, plan: ViewPlan, buckets: int) -> None:
        self.buckets = buckets
        self.copies: list[StoredCopy] = []
        self._by: dict[tuple[TableName, tuple[str, ...]], StoredCopy] = {}
        for table in sorted(plan.relations):
            relation = plan.relations[table]
            for by in (relation.key, *relation.indexed):
                copy = StoredCopy(len(self.copies), relation, by)
                self.copies.append(copy)
                self._by[table, by] = copy
        self.root = self.primary(plan.root.table)

    def primary(self, table: TableName) -> StoredCopy:
        """The copy of a table by its key."""
        return next(copy for (one, _), copy in self._by.items() if one == table and copy.primary)

    def found(self, table: TableName, by: tuple[str, ...]) -> StoredCopy:
        """The copy of a table by these columns."""
        return self._by[table, by]

    def others(self, table: TableName) -> list[StoredCopy]:
        """The copies of a table that are not by its key."""
        return [copy for (one, _), copy in self._by.items() if one == table and not copy.primary]

    def place(self, copy: StoredCopy, link: Row) -> tuple[int, int]:
        """The number of the bucket among those of all copies, and the hash."""
        hashed = place_hash(link)
        return copy.number * self.buckets + hashed % self.buckets, hashed

    def copy_at(self, place: int) -> StoredCopy:
        """Whose bucket it is."""
        return self.copies[place // self.buckets]

    def places(self, copy: StoredCopy) -> range:
        """The numbers of all buckets of a copy."""
        return range(copy.number * self.buckets, (copy.number + 1) * self.buckets)


def key_order(link: Row) -> tuple[tuple[bool, bool, Any], ...]:
    """To sort rows by their keys as the embedded state does: NULL, then numbers, then texts.

    >>> sorted([("b",), (2,), (None,), ("a",)], key=key_order)
    [(None,), (2,), ('a',), ('b',)]
    """
    return tuple((value is not None, isinstance(value, str), 0 if value is None else value) for value in link)


class GatheredRows:
    """Rows that were brought together, as :class:`cdc.views.lookups.Rows`. ``tables``: whole rows of each relation.

    They are all rows that are asked for. More of them do no harm.
    """

    def __init__(self, layout: BucketLayout, tables: Mapping[TableName, Iterable[Row]]) -> None:
        self._layout = layout
        self._rows: dict[TableName, dict[Row, Row]] = {}
        for table, rows in tables.items():
            copy = layout.primary(table)
            self._rows[table] = {copy.row_key(row): row for row in rows}
        self._found: dict[tuple[TableName, tuple[str, ...]], dict[Row, list[tuple[Row, Row]]]] = {}

    def select(self, table: TableName, columns: Sequence[str], by: Sequence[str], values: Iterable[Row]) -> list[Row]:
        """See the protocol."""
        copy = self._layout.found(table, tuple(by))
        index = self._index(copy)
        found = [pair for link in {copy.found_by(value) for value in values} for pair in index.get(link, ())]
        found.sort(key=lambda pair: key_order(pair[0]))
        places = [copy.relation.columns.index(column) for column in columns]
        return [tuple(row[i] for i in places) for _, row in found]

    def _index(self, copy: StoredCopy) -> dict[Row, list[tuple[Row, Row]]]:
        name = copy.relation.table, copy.by
        if name not in self._found:
            index: dict[Row, list[tuple[Row, Row]]] = {}
            for key, row in self._rows.get(copy.relation.table, {}).items():
                index.setdefault(copy.link(row), []).append((key, row))
            self._found[name] = index
        return self._found[name]
