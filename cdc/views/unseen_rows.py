"""The part of a view's state beside its rows: changes that wait for a fence, and rows of which values are not known.

All of it changes in the transaction of the rows. It is bounded by what the log holds: a newer change of a key, a floor
or its own ripeness removes what waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from cdc.topic import TableName
from cdc.views.fences import Fence
from cdc.views.lookups import Row
from cdc.views.row_changes import KEPT, LOST, Places, RowChange
from cdc.views.view_plan import KeptTable

_TABLES = """
CREATE TABLE IF NOT EXISTS ahead (tbl TEXT, key TEXT, pos TEXT, epoch INTEGER, lsn INTEGER, row TEXT,
 PRIMARY KEY (tbl, key, pos, epoch, lsn)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ahead_by_fence ON ahead (epoch, lsn);
CREATE TABLE IF NOT EXISTS lost (tbl TEXT, key TEXT, places TEXT NOT NULL, epoch INTEGER NOT NULL, lsn INTEGER NOT NULL,
 PRIMARY KEY (tbl, key)) WITHOUT ROWID;
"""


class UnseenRows:
    """See the module. The caller begins and commits."""

    def __init__(self, connection: sqlite3.Connection, relations: Mapping[TableName, KeptTable]) -> None:
        self._connection = connection
        self._names = {table: _text([table.schema, table.table]) for table in relations}
        self._tables = {name: table for table, name in self._names.items()}
        connection.executescript(_TABLES)

    @property
    def waits(self) -> bool:
        """Whether any change waits."""
        return self._connection.execute("SELECT 1 FROM ahead LIMIT 1").fetchone() is not None

    @property
    def lacks(self) -> bool:
        """Whether any value is not known."""
        return self._connection.execute("SELECT 1 FROM lost LIMIT 1").fetchone() is not None

    def wait(self, changes: Iterable[RowChange]) -> None:
        """Keep changes until they are ripe."""
        self._connection.executemany(
            "INSERT OR REPLACE INTO ahead VALUES (?, ?, ?, ?, ?, ?)",
            [(self._names[c.table], _text(c.key), c.pos, *c.ripe, _row_text(c.row)) for c in changes],
        )

    def ripe(self, fence: Fence) -> list[RowChange]:
        """Changes that hold at a fence, by position, and of equal ones by when they were read. They wait no more."""
        where = "FROM ahead WHERE (epoch, lsn) <= (?, ?)"
        found = self._connection.execute(f"SELECT tbl, key, pos, row {where} ORDER BY pos, lsn", fence).fetchall()
        self._connection.execute(f"DELETE {where}", fence)
        return [
            RowChange(self._tables[name], tuple(orjson.loads(key)), _row(row), pos) for name, key, pos, row in found
        ]

    def replaced(self, table: TableName, changes: Iterable[RowChange]) -> None:
        """Newer changes came: what waits below them is of no use."""
        name = self._names[table]
        self._connection.executemany(
            "DELETE FROM ahead WHERE tbl = ? AND key = ? AND pos < ?", [(name, _text(c.key), c.pos) for c in changes]
        )

    def below(self, table: TableName, floor: str) -> None:
        """Drop changes that wait below a floor."""
        self._connection.execute("DELETE FROM ahead WHERE tbl = ? AND pos < ?", (self._names[table], floor))

    def lost(self, table: TableName, keys: Sequence[Row]) -> dict[Row, Places]:
        """The places of values that are not known, of those of these rows that have any."""
        names = {_text(key): key for key in keys}
        found = self._connection.execute(
            "SELECT key, places FROM lost WHERE tbl = ? AND key IN (SELECT value FROM json_each(?))",
            (self._names[table], _text(list(names))),
        )
        return {names[name]: frozenset(orjson.loads(places)) for name, places in found}

    @property
    def known_below(self) -> Fence | None:
        """Up to where all values are known. None where that has no end."""
        found = self._connection.execute("SELECT epoch, lsn FROM lost ORDER BY epoch, lsn LIMIT 1").fetchone()
        return None if found is None else Fence(*found)

    def note(self, table: TableName, lost: Mapping[Row, tuple[Places, Fence]]) -> None:
        """Note which values of rows are not known, and up to where they are. That stays for a row noted before."""
        name = self._names[table]
        known = [(name, _text(key)) for key, (places, _) in lost.items() if not places]
        lacking = [(name, _text(key), _text(sorted(places)), *below) for key, (places, below) in lost.items() if places]
        self._connection.executemany("DELETE FROM lost WHERE tbl = ? AND key = ?", known)
        self._connection.executemany(
            "INSERT INTO lost VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET places = excluded.places", lacking
        )

    def lacking(self) -> Iterator[tuple[TableName, list[Row]]]:
        """The keys of all rows of which values are not known, by table."""
        found: dict[str, list[Row]] = {}
        for name, key in self._connection.execute("SELECT tbl, key FROM lost"):
            found.setdefault(name, []).append(tuple(orjson.loads(key)))
        for name, keys in found.items():
            yield self._tables[name], keys


def _text(value: object) -> str:
    return orjson.dumps(value).decode()


def _row_text(row: Row | None) -> str:
    # No stored value is an array or an object.
    return _text(row and [[] if value is KEPT else {} if value is LOST else value for value in row])


def _row(text: str) -> Row | None:
    row = orjson.loads(text)
    return row and tuple(KEPT if value == [] else LOST if value == {} else value for value in row)
