"""Contributions of driving rows and the figures of their groups, in SQLite.

A group's counts and sums stand in one row, and are changed by what comes and what goes. Least and greatest values are
found by an index over the contributions. A group without contributions is gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import orjson

from cdc.views.aggregating import same_key
from cdc.views.decimals import EXACT, add, average, bounded, rounded, subtract
from cdc.views.group_plan import PAIR, Contributed, GroupFigure, Grouping
from cdc.views.lookups import Row
from cdc.views.sql_types import Group, SqlType
from cdc.views.stored_values import cell, in_one, link_text, loaded, ordered_float, ordered_number
from cdc.views.syntax import NotComputable
from cdc.views.text_values import unpadded

Function = Callable[[Any], Any]


def _ordered(kind: SqlType) -> Function | None:
    return unpadded if kind.kind == "bpchar" else _ORDERED.get(kind.group)


_DIFFERENT = """CREATE TABLE IF NOT EXISTS different
 (grp TEXT, figure INTEGER, value, n INTEGER, PRIMARY KEY (grp, figure, value)) WITHOUT ROWID"""
_ORDERED: dict[Group, Function] = {Group.NUMERIC: ordered_number, Group.FLOAT: ordered_float}


class _Column:
    """One figure's place in the tables."""

    def __init__(self, number: int, figure: GroupFigure) -> None:
        self.figure = figure
        self.value = f"v{number}"
        self.order = f"o{number}"
        self.to_cell = _cell(figure)
        self.in_rows = figure.kept in ("first", "listed")
        self.by_order = self.in_rows or figure.kept in ("least", "greatest")
        """Whether an index answers it."""
        self.to_order: Function | None = in_one(figure.order) if self.in_rows else _ordered(figure.kind)
        self.load = loaded(figure.kind) if figure.kind.kind != PAIR.kind else _pair

        direction = "DESC" if figure.kept == "greatest" else "ASC"
        order = f"{self.order} {direction}" + (", key, part" if self.in_rows else "")
        self.select = (
            f"SELECT {self.value} FROM contributions WHERE grp = ? AND {self.order} IS NOT NULL"
            f" ORDER BY {order}{'' if figure.gather is not None else ' LIMIT 1'}"
        )
        """Of what it answers for a group by an index."""

    def cells(self, value: Any) -> list[Any]:
        """The values of its columns."""
        if self.figure.kept == "count":
            value = None if value is None else 1
        if self.in_rows:
            # A row that FILTER leaves out has no order. One that it does not may have a value that is NULL.
            order, one = value or (None, None)
            return [_through(self.to_cell, one), _through(self.to_order, order)]
        kept = value if value is None or self.to_cell is None else self.to_cell(value)
        if not self.by_order:
            return [kept]
        return [kept, kept if value is None or self.to_order is None else self.to_order(value)]


def _cell(figure: GroupFigure) -> Function | None:
    if figure.kept == "count":
        return None
    if figure.kept == "different":
        # Equal values have to stand alike, 1 and 1.00 among them.
        return link_text if figure.kind.group is Group.NUMERIC else same_key(figure.kind) or cell(figure.kind)
    return cell(figure.kind) if figure.kind.kind != PAIR.kind else lambda pair: orjson.dumps(pair).decode()


def _pair(text: str) -> tuple[Any, ...]:
    return tuple(orjson.loads(text))


class GroupState:
    """See the module. ``of``: SQLite, in whose transaction all of it changes."""

    def __init__(self, connection: sqlite3.Connection, grouping: Grouping) -> None:
        self._connection = connection
        self._grouping = grouping
        self._columns = [_Column(number, figure) for number, figure in enumerate(grouping.figures)]
        self._keys = [cell(kind) for kind in grouping.keys]
        self._load_keys = [loaded(kind) for kind in grouping.keys]
        self.always: tuple[Row, ...] = () if grouping.keys else ((),)
        """The group that is there without rows, too: the one of a view without GROUP BY."""
        names = [name for c in self._columns for name in ([c.value, c.order] if c.by_order else [c.value])]
        made = "".join(f", {name}" for name in names)
        columns = f"key TEXT, part INTEGER, grp TEXT{made}, PRIMARY KEY (key, part)"
        connection.execute(f"CREATE TABLE IF NOT EXISTS contributions ({columns})")
        connection.execute("CREATE TABLE IF NOT EXISTS figures (grp TEXT PRIMARY KEY, n INTEGER, kept TEXT)")
        connection.execute(_DIFFERENT)
        for column in self._columns:
            if column.by_order:
                statement = f"CREATE INDEX IF NOT EXISTS by_{column.order} ON contributions (grp, {column.order})"
                connection.execute(statement)
        marks = ", ".join("?" * (3 + len(names)))
        self._insert = f"INSERT OR REPLACE INTO contributions VALUES ({marks})"
        wanted = "key IN (SELECT value FROM json_each(?)) ORDER BY key, part"
        self._select = f"SELECT key, grp{made} FROM contributions WHERE {wanted}"

    def absorb(self, computed: Mapping[Row, Contributed | None]) -> set[Row]:
        """Take new contributions of driving rows in, None for none. Returns the keys of the groups that changed."""
        names = {orjson.dumps(key).decode(): key for key in computed}
        found = self._connection.execute(self._select, (orjson.dumps(list(names)).decode(),))
        old: dict[str, list[tuple[Any, ...]]] = {}
        for row in found:
            old.setdefault(row[0], []).append(row[1:])
        changes: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
        put: list[tuple[Any, ...]] = []
        gone: list[tuple[str, int]] = []
        for name, key in names.items():
            before, after = old.get(name, []), [self._stored(*one) for one in computed[key] or ()]
            if before == after:
                continue
            for sign, rows in ((-1, before), (1, after)):
                for row in rows:
                    changes.setdefault(row[0], []).append((sign, row[1:]))
            put += [(name, part, *row) for part, row in enumerate(after)]
            gone += [(name, part) for part in range(len(after), len(before))]
        self._connection.executemany(self._insert, put)
        self._connection.executemany("DELETE FROM contributions WHERE key = ? AND part = ?", gone)
        self._change(changes)
        return {tuple(orjson.loads(name)) for name in changes}

    def _stored(self, keys: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
        """A contribution as the state holds it: the group's name, and the values of the figures."""
        stored = [v if f is None or v is None else f(v) for v, f in zip(keys, self._keys, strict=True)]
        cells = [c for column, value in zip(self._columns, values, strict=True) for c in column.cells(value)]
        return (orjson.dumps(stored).decode(), *cells)

    def _change(self, changes: Mapping[str, list[tuple[int, tuple[Any, ...]]]]) -> None:
        asked = orjson.dumps(list(changes)).decode()
        rows = self._connection.execute(
            "SELECT grp, n, kept FROM figures WHERE grp IN (SELECT value FROM json_each(?))", (asked,)
        )
        known = {name: (n, orjson.loads(kept)) for name, n, kept in rows}
        put, gone = [], []
        moved = self._moved_different(changes)
        for name, contributions in changes.items():
            n, kept = known.get(name, (0, [None] * len(self._columns)))
            for i, more in moved.get(name, {}).items():
                kept[i] = (kept[i] or 0) + more
            for sign, cells in contributions:
                n += sign
                at = 0
                for i, column in enumerate(self._columns):
                    kept[i] = _moved(column.figure, kept[i], sign, cells[at])
                    at += 2 if column.by_order else 1
            if n:
                put.append((name, n, orjson.dumps(kept).decode()))
            else:
                gone.append((name,))
        self._connection.executemany("INSERT OR REPLACE INTO figures VALUES (?, ?, ?)", put)
        self._connection.executemany("DELETE FROM figures WHERE grp = ?", gone)

    def _moved_different(self, changes: Mapping[str, list[tuple[int, tuple[Any, ...]]]]) -> dict[str, dict[int, int]]:
        """By how much the numbers of different values grow, for each group and figure."""
        deltas: dict[tuple[str, int, Any], int] = {}
        at = 0
        for i, column in enumerate(self._columns):
            if column.figure.kept == "different":
                for name, contributions in changes.items():
                    for sign, cells in contributions:
                        if cells[at] is not None:
                            place = (name, i, cells[at])
                            deltas[place] = deltas.get(place, 0) + sign
            at += 2 if column.by_order else 1
        moved: dict[str, dict[int, int]] = {}
        for place, delta in deltas.items():
            before = self._number_of(place)
            self._connection.execute("INSERT OR REPLACE INTO different VALUES (?, ?, ?, ?)", (*place, before + delta))
            more = (before + delta > 0) - (before > 0)
            of_group = moved.setdefault(place[0], {})
            of_group[place[1]] = of_group.get(place[1], 0) + more
        self._connection.executemany("DELETE FROM different WHERE grp = ? AND n = 0", [(name,) for name in moved])
        return moved

    def _number_of(self, place: tuple[str, int, Any]) -> int:
        found = self._connection.execute(
            "SELECT n FROM different WHERE grp = ? AND figure = ? AND value = ?", place
        ).fetchone()
        return 0 if found is None else int(found[0])

    def every(self) -> Iterable[Row]:
        """The keys of all groups."""
        names = self._connection.execute("SELECT grp FROM figures").fetchall()
        return {*self.always, *(tuple(orjson.loads(name)) for (name,) in names)}

    def groups_of(self, drivers: Iterable[Row]) -> set[Row]:
        """The keys of the groups that these rows contribute to."""
        names = orjson.dumps([orjson.dumps(key).decode() for key in drivers]).decode()
        wanted = "SELECT grp FROM contributions WHERE key IN (SELECT value FROM json_each(?))"
        return {tuple(orjson.loads(name)) for (name,) in self._connection.execute(wanted, (names,))}

    def drivers(self) -> Iterable[Row]:
        """The keys of all rows that contribute."""
        names = self._connection.execute("SELECT DISTINCT key FROM contributions")
        return [tuple(orjson.loads(name)) for (name,) in names]

    def of(self, groups: Iterable[Row]) -> dict[Row, str | NotComputable | None]:
        """For each group its row on the wire as JSON text, None for one that is gone or that HAVING leaves out.

        The one group of a view without GROUP BY has a row over no rows, too, as in Postgres.
        """
        names = {orjson.dumps(key).decode(): key for key in groups}
        found: dict[Row, str | NotComputable | None] = dict.fromkeys(names.values())
        rows = self._connection.execute(
            "SELECT grp, kept FROM figures WHERE grp IN (SELECT value FROM json_each(?))",
            (orjson.dumps(list(names)).decode(),),
        ).fetchall()
        if self.always and not rows and names:
            rows = [("[]", orjson.dumps([None] * len(self._columns)).decode())]
        for name, kept in rows:
            key = names[name]
            try:
                values = tuple(_through(f, v) for v, f in zip(key, self._load_keys, strict=True))
                figures = [self._result(c, name, one) for c, one in zip(self._columns, orjson.loads(kept), strict=True)]
                found[key] = self._grouping.row(values, tuple(figures))
            except NotComputable as failure:
                found[key] = failure
        return found

    def _result(self, column: _Column, name: str, kept: Any) -> Any:
        if not column.by_order:
            if column.figure.kept == "alike":
                return _through(column.load, kept)
            return _RESULTS[column.figure.kept](kept, column.figure.kind)
        rows = self._connection.execute(column.select, (name,))
        gather = column.figure.gather
        if gather is not None:
            return gather([_through(column.load, value) for (value,) in rows])
        row = rows.fetchone()
        return None if row is None else _through(column.load, row[0])


def _through(function: Function | None, value: Any) -> Any:
    return value if function is None or value is None else function(value)


def _moved(figure: GroupFigure, kept: Any, sign: int, value: Any) -> Any:
    """A figure's stored value after a value was added or taken away."""
    if figure.kept == "alike":
        return value if sign > 0 else kept
    if figure.kept in ("least", "greatest", "different", "first", "listed") or value is None:
        return kept
    if figure.kept == "count":
        return (kept or 0) + sign
    if figure.kept in ("all", "any"):
        true, false = kept or [0, 0]
        return [true + sign, false] if value else [true, false + sign]
    if figure.kind.group is Group.INTEGER:
        n, total = kept or [0, "0"]
        return [n + sign, str(int(total) + sign * value)]
    return _moved_sum(kept, sign, Decimal(value))


def _moved_sum(kept: Any, sign: int, value: Decimal) -> Any:
    """``[count, sum, {scale: count}, NaN, Infinity, -Infinity]``"""
    n, total, scales, *special = kept or [0, "0", {}, 0, 0, 0]
    if not value.is_finite():
        special[0 if value.is_nan() else 1 if value > 0 else 2] += sign
        return [n + sign, total, scales, *special]
    exponent = value.as_tuple().exponent
    scale = str(-exponent if isinstance(exponent, int) and exponent < 0 else 0)
    scales[scale] = scales.get(scale, 0) + sign
    if not scales[scale]:
        del scales[scale]
    total = (add if sign > 0 else subtract)(Decimal(total), value)
    return [n + sign, str(total), scales, *special]


def _sum_of(kept: Any) -> Decimal | None:
    if kept is None or not kept[0]:
        return None
    _, total, scales, nan, above, below = kept
    if nan or (above and below):
        return Decimal("NaN")
    if above or below:
        return Decimal("Infinity" if above else "-Infinity")
    return rounded(EXACT.create_decimal(total), max(map(int, scales), default=0))


def _total(kept: Any, kind: SqlType) -> Any:
    if kind.group is not Group.INTEGER:
        return _sum_of(kept)
    return bounded("int8", int(kept[1])) if kept is not None and kept[0] else None


def _mean(kept: Any, _: SqlType) -> Decimal | None:
    total = _sum_of(kept)
    return None if total is None else average(total, kept[0])


_RESULTS: dict[str, Callable[[Any, SqlType], Any]] = {
    "count": lambda kept, _: kept or 0,
    "different": lambda kept, _: kept or 0,
    "sum": _total,
    "average": _mean,
    "all": lambda kept, _: None if kept is None or not sum(kept) else kept[1] == 0,
    "any": lambda kept, _: None if kept is None or not sum(kept) else kept[0] > 0,
}
