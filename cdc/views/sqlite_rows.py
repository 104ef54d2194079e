"""The rows of relations in SQLite: one table for each, its key first, an index for each list of columns that ties.

Numbers that are decimals stand as text, and beside those that are looked up stands a text that is equal for equal
numbers. A deleted row leaves its position, so that a late record revives nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import orjson

from cdc.record.topic_names import TableName
from cdc.views.lookups import Row
from cdc.views.sql_types import Group
from cdc.views.stored_values import link_text
from cdc.views.view_plan import KeptTable
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
