"""One step of a view's state: apply changed rows, and learn which documents they concern. Postgres is not asked.

For each batch: the newest of each key, less the rows whose used columns are as they were. Then the roots reachable from
the old rows in the old state, then the rows, then the roots reachable from the new rows in the new state.

A document is a function of the rows that are reachable along its ties. If it changed, a row that went was reachable in
the old state, or one that came is in the new.

The rows stand in SQLite: a table for each relation, its key first, an index for each list of columns that ties. Numbers
that are decimals stand as text, and beside those that are looked up stands a text that is equal for equal numbers. A
deleted row leaves its position, so that a late record revives nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from cdc.record.position import Position
from cdc.record.topic_names import TableName
from cdc.views.log_cut import BEFORE_ALL, Fence
from cdc.views.lookups import Row, TieValues, parts, twins_of
from cdc.views.row_changes import NO_PLACES, Places, RowChange, UnseenRows, filled, newest, parted
from cdc.views.sql_types import Group
from cdc.views.stored_values import link_text
from cdc.views.view_plan import KeptTable, Occurrence, ViewPlan
from cdc.wire.format import POS

_MOST_VALUES = 50_000
"""In one statement."""


class _StateTable:
    """The names of a relation's table and columns in SQLite, and the statements over them."""

    def __init__(self, number: int, relation: KeptTable) -> None:
        self.relation = relation
        self.name = f"t{number}"
        self.names = {column: f"c{i}" for i, column in enumerate(relation.columns)}
        looked_up = {column for columns in (relation.key, *relation.indexed) for column in columns}
        self.by_value = {
            column: f"n{i}"
            for i, column in enumerate(relation.columns)
            if column in looked_up and relation.kind(column).group is Group.NUMERIC
        }
        self.key = ", ".join(self._found_by(column) for column in relation.key)
        self._decimals = [relation.columns.index(column) for column in self.by_value]

    def statements(self) -> Iterable[str]:
        """The statements that make the table."""
        columns = ", ".join([*self.names.values(), *self.by_value.values(), POS])
        yield f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}, PRIMARY KEY ({self.key})) WITHOUT ROWID"
        yield f"CREATE TABLE IF NOT EXISTS {self.name}_gone (key TEXT PRIMARY KEY, pos) WITHOUT ROWID"
        for i, columns_of in enumerate(self.relation.indexed):
            found_by = ", ".join(self._found_by(column) for column in columns_of)
            yield f"CREATE INDEX IF NOT EXISTS {self.name}_{i} ON {self.name} ({found_by})"

    def _found_by(self, column: str) -> str:
        return self.by_value.get(column) or self.names[column]

    def select(self, columns: Sequence[str], by: Sequence[str], position: bool) -> str:
        """The statement of :meth:`SqliteRows.select`, with one parameter: JSON of the values."""
        wanted = ", ".join([*(f"t.{self.names[column]}" for column in columns), *(["t.pos"] if position else [])])
        if len(by) == 1:
            where = f"t.{self._found_by(by[0])} IN (SELECT value FROM json_each(?))"
            return f"SELECT {wanted} FROM {self.name} t WHERE {where} ORDER BY {self.key}"
        on = " AND ".join(f"t.{self._found_by(c)} = json_extract(j.value, '$[{i}]')" for i, c in enumerate(by))
        return f"SELECT {wanted} FROM json_each(?) j CROSS JOIN {self.name} t ON {on} ORDER BY {self.key}"

    def insert(self) -> str:
        """The statement of a row that is put."""
        marks = ", ".join("?" * (len(self.names) + len(self.by_value) + 1))
        return f"INSERT OR REPLACE INTO {self.name} VALUES ({marks})"

    def delete(self) -> str:
        """The statement of a row that goes."""
        return f"DELETE FROM {self.name} WHERE " + " AND ".join(
            f"{self._found_by(column)} = ?" for column in self.relation.key
        )

    def found_by(self, columns: Sequence[str], values: Row) -> Row:
        """Values as the columns by which rows are found have them: of a number, the text of its value."""
        if not self.by_value:
            return values
        pairs = zip(columns, values, strict=True)
        return tuple(link_text(Decimal(v)) if column in self.by_value else v for column, v in pairs)

    def with_values(self, row: Row, pos: str) -> Row:
        """A row as it is put."""
        if not self._decimals:
            return (*row, pos)
        return (*row, *(None if row[i] is None else link_text(Decimal(row[i])) for i in self._decimals), pos)


class SqliteRows:
    """Rows of relations, found by equal columns, over a connection. The caller begins and commits."""

    def __init__(self, connection: sqlite3.Connection, relations: Mapping[TableName, KeptTable]) -> None:
        self._connection = connection
        self._tables = {table: _StateTable(i, relations[table]) for i, table in enumerate(sorted(relations))}
        for made in self._tables.values():
            for statement in made.statements():
                connection.execute(statement)

    def select(self, table: TableName, columns: Sequence[str], by: Sequence[str], values: Iterable[Row]) -> list[Row]:
        """The ``columns`` of the rows whose ``by`` columns equal one of ``values``, in the order of their keys."""
        return self._select(table, columns, by, values, position=False)

    def _select(
        self, table: TableName, columns: Sequence[str], by: Sequence[str], values: Iterable[Row], *, position: bool
    ) -> list[Row]:
        statement = self._tables[table].select(columns, by, position)
        wanted: list[Any] = [self._tables[table].found_by(by, value) for value in values]
        if len(by) == 1:
            wanted = [value[0] for value in wanted]
        found: list[Row] = []
        for begin in range(0, len(wanted), _MOST_VALUES):
            parameter = orjson.dumps(wanted[begin : begin + _MOST_VALUES]).decode()
            found += self._connection.execute(statement, (parameter,)).fetchall()
        return found

    def key(self, table: TableName) -> tuple[str, ...]:
        """The names of a table's key columns: the first of its rows."""
        return self._tables[table].relation.key

    def every(self, table: TableName, columns: Sequence[str]) -> Iterator[Row]:
        """These columns of every row, in the order of the keys."""
        made = self._tables[table]
        wanted = ", ".join(made.names[column] for column in columns)
        yield from self._connection.execute(f"SELECT {wanted} FROM {made.name} ORDER BY {made.key}").fetchall()

    def below(self, table: TableName, floor: str) -> list[Row]:
        """Whole rows whose position is below a floor."""
        made = self._tables[table]
        wanted = ", ".join(made.names.values())
        return self._connection.execute(f"SELECT {wanted} FROM {made.name} WHERE pos < ?", (floor,)).fetchall()

    def known(self, table: TableName, keys: Sequence[Row]) -> dict[Row, tuple[Row | None, str]]:
        """The rows at keys: the row, or None for one that was deleted, and its position. Nothing of other keys."""
        relation = self._tables[table].relation
        found: dict[Row, tuple[Row | None, str]] = {}
        if self._any_gone(table):
            names = {orjson.dumps(key).decode(): key for key in keys}
            gone = f"SELECT key, pos FROM {self._tables[table].name}_gone WHERE key IN (SELECT value FROM json_each(?))"
            for name, pos in self._connection.execute(gone, (orjson.dumps(list(names)).decode(),)):
                found[names[name]] = (None, pos)
        width = len(relation.key)
        for row in self._select(table, relation.columns, relation.key, keys, position=True):
            found[row[:width]] = (row[:-1], row[-1])
        return found

    def put(self, table: TableName, rows: Iterable[tuple[Row, str]]) -> None:
        """Rows, whole, in the order of the relation's columns, each with its position."""
        made, placed = self._tables[table], list(rows)
        self._connection.executemany(made.insert(), [made.with_values(row, pos) for row, pos in placed])
        if self._any_gone(table):
            width = len(made.relation.key)
            keys = [(orjson.dumps(row[:width]).decode(),) for row, _ in placed]
            self._connection.executemany(f"DELETE FROM {made.name}_gone WHERE key = ?", keys)

    def _any_gone(self, table: TableName) -> bool:
        """Whether a deleted row has left its position. Of most tables while they are filled none has."""
        found = self._connection.execute(f"SELECT EXISTS (SELECT 1 FROM {self._tables[table].name}_gone)").fetchone()
        return bool(found[0])

    def remove(self, table: TableName, keys: Iterable[tuple[Row, str]]) -> None:
        """Rows of these keys go. Their positions stay."""
        made = self._tables[table]
        removed = list(keys)
        self._connection.executemany(made.delete(), [self._key(made, key) for key, _ in removed])
        self._connection.executemany(
            f"INSERT OR REPLACE INTO {made.name}_gone VALUES (?, ?)",
            [(orjson.dumps(key).decode(), pos) for key, pos in removed],
        )

    def _key(self, made: _StateTable, key: Row) -> Row:
        return made.found_by(made.relation.key, key)


class _Fresh(NamedTuple):
    """A change that is not older than what is known of its key: the row before it, and the places of values that were
    not known, and are not."""

    row: Row | None
    change: RowChange
    lost: Places
    lacks: Places

    @property
    def concerns(self) -> bool:
        """Whether documents may be others."""
        return self.row != self.change.row or bool(self.lost or self.lacks)


class KnownUpTo(NamedTuple):
    """Up to where values are known that are not from a change on. ``shown``: documents are as published. ``claimed``:
    by the view's topic."""

    shown: Fence = BEFORE_ALL
    claimed: Fence = BEFORE_ALL

    def of(self, pos: str) -> Fence:
        """Of a change's row. Its own commit is none such: the cleaner may have taken what was just before it, in which
        the row stood elsewhere."""
        position = Position.parse(pos)
        return max(self.shown, min(Fence(position.epoch, position.commit_lsn), self.claimed))


_NOTHING_KNOWN = KnownUpTo()


class EmbeddedState:
    """Rows of the tables that a view uses, and the walk from them to its documents."""

    def __init__(self, rows: SqliteRows, unseen: UnseenRows, plan: ViewPlan) -> None:
        self.rows = rows
        self._unseen = unseen
        self._plan = plan
        self._twins = twins_of(plan)
        self._by_number = {occurrence.number: occurrence for occurrence in plan.occurrences}
        self._widths = {table: len(relation.columns) for table, relation in plan.relations.items()}

    def load(
        self, changes: Iterable[RowChange], fence: Fence, below: KnownUpTo, put_aside: Sequence[RowChange]
    ) -> None:
        """Take changes in as :meth:`apply`, and ask nothing of documents: for what is read before any is published."""
        for table, of_table in self._due(changes, fence, put_aside).items():
            self._store(table, self._fresh(table, of_table), below)

    def sweep(self, floors: Mapping[TableName, str], below: KnownUpTo) -> None:
        """Remove all rows below floors, and ask nothing of documents."""
        for table, floor in floors.items():
            self._store(table, self._fresh(table, self._swept(table, floor, {})), below)

    def apply(
        self,
        changes: Iterable[RowChange],
        floors: Mapping[TableName, str] = MappingProxyType({}),
        *,
        fence: Fence = BEFORE_ALL,
        below: KnownUpTo = _NOTHING_KNOWN,
        put_aside: Sequence[RowChange] = (),
    ) -> set[Row]:
        """Take changes in. Returns the keys of the roots whose documents they concern.

        Late and repeated changes are passed over: a row keeps the newest position that it had, a deleted one, too.
        ``floors``: positions below which all rows of a table are gone. ``fence``: what is newer waits, and what has
        waited for it is taken in. ``below``: up to there values are known that are not known from now on.
        ``put_aside``: rows that the log does not hold, each to be taken in once it is ripe.
        """
        taken = self._due(changes, fence, put_aside)
        for table, floor in floors.items():
            taken[table] = self._swept(table, floor, taken.get(table, {}))
        fresh = {table: self._fresh(table, of_table) for table, of_table in taken.items()}
        concerned: set[Row] = set()
        for table, changed in fresh.items():
            old = [one.row for one in changed if one.row is not None and one.concerns]
            concerned |= self._roots(table, old)
        for table, changed in fresh.items():
            self._store(table, changed, below)
        for table, changed in fresh.items():
            new = [one.change.row for one in changed if one.change.row is not None and one.concerns]
            concerned |= self._roots(table, new)
        return concerned

    def blocked(self) -> set[Row]:
        """The keys of the roots that reach a row of which a value is not known."""
        found: set[Row] = set()
        for table, keys in self._unseen.lacking():
            rows = [row for row, _ in self.rows.known(table, keys).values() if row is not None]
            found |= self._roots(table, rows)
        return found

    def _due(
        self, changes: Iterable[RowChange], fence: Fence, put_aside: Sequence[RowChange]
    ) -> dict[TableName, dict[Row, RowChange]]:
        """The changes that hold at the fence. All others wait."""
        due, later = [], list(put_aside)
        for change in changes:
            now, then = parted(change, fence, self._widths[change.table])
            if now is not None:
                due.append(now)
            if then is not None:
                later.append(then)
        self._unseen.wait(later)
        return newest([*self._unseen.ripe(fence), *due] if self._unseen.waits else due)

    def _store(self, table: TableName, changed: Sequence[_Fresh], below: KnownUpTo) -> None:
        # A numeric key that became 1.0 from 1 is another key and the same row.
        changes = [one.change for one in changed]
        self.rows.remove(table, [(c.key, c.pos) for c in changes if c.row is None])
        self.rows.put(table, [(c.row, c.pos) for c in changes if c.row is not None])
        lost = [one for one in changed if one.lost or one.lacks]
        self._unseen.note(table, {one.change.key: (one.lacks, below.of(one.change.pos)) for one in lost})
        if self._unseen.waits:
            self._unseen.replaced(table, changes)

    def _swept(self, table: TableName, floor: str, changes: Mapping[Row, RowChange]) -> dict[Row, RowChange]:
        """The changes that a floor leaves, and a deletion of each row below it."""
        self._unseen.below(table, floor)
        width = len(self.rows.key(table))
        gone = {row[:width]: RowChange(table, row[:width], None, floor) for row in self.rows.below(table, floor)}
        before = {key: RowChange(table, key, None, floor) for key, change in changes.items() if change.pos < floor}
        return gone | before | {key: change for key, change in changes.items() if change.pos >= floor}

    def _fresh(self, table: TableName, changes: Mapping[Row, RowChange]) -> list[_Fresh]:
        """Each change that is not older than what is known of its key."""
        keys = list(changes)
        known = self.rows.known(table, keys)
        lost = self._unseen.lost(table, keys) if self._unseen.lacks else {}
        found = []
        for key, change in changes.items():
            row, pos = known.get(key, (None, ""))
            if change.pos >= pos:
                before = lost.get(key, NO_PLACES)
                whole, lacks = (None, NO_PLACES) if change.row is None else filled(change.row, row, before)
                same = whole is change.row
                found.append(_Fresh(row, change if same else change._replace(row=whole), before, lacks))
        return found

    def _roots(self, table: TableName, changed: Sequence[Row]) -> set[Row]:
        """Keys of the roots whose documents hold whole rows of a relation, wherever its table stands in the view."""
        found: set[Row] = set()
        relation = self._plan.relations[table]
        for occurrence in self._plan.of_table(table):
            if self._twins[occurrence.number] != occurrence.number:
                continue  # It reaches the same roots.
            places = [relation.columns.index(column) for column in occurrence.columns]
            found |= self._upward(occurrence, parts(changed, places))
        return found

    def _upward(self, occurrence: Occurrence, changed: Iterable[Row]) -> set[Row]:
        """One step up for each tie, until the root."""
        current = list(changed)
        while occurrence.tie is not None and current:
            above = self._by_number[occurrence.tie.above]
            wanted = self._wanted(occurrence, above, current)
            columns = above.columns
            current = self.rows.select(above.table, columns, occurrence.tie.above_columns, wanted) if wanted else []
            occurrence = above
        key = self._plan.relations[occurrence.table].key
        places = [occurrence.columns.index(column) for column in key]
        return set(parts(current, places))

    def _wanted(self, occurrence: Occurrence, above: Occurrence, rows: Iterable[Row]) -> list[Row]:
        tie = occurrence.tie
        assert tie is not None
        own, over = self._plan.relations[occurrence.table], self._plan.relations[above.table]
        converted = TieValues(
            [(occurrence.columns.index(c), own.kind(c)) for c in tie.columns],
            [over.kind(c) for c in tie.above_columns],
        )
        return converted.parameters(converted.wanted(rows))
