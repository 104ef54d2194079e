"""Changes of rows: what of one holds at a fence, and what has to wait for a later one. Pure.

Capture writes some values that are newer than their place: rows of later snapshots, and long values that it read again.
Each says the LSN below which it may be from. At a fence below that LSN such a value must not show.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from cdc.record.position import Position
from cdc.record.topic_names import TableName
from cdc.views.log_cut import BEFORE_ALL, Fence
from cdc.views.lookups import Row
from cdc.views.view_plan import KeptTable


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


# The part of a view's state beside its rows: changes that wait for a fence, and rows of which values are not known.
#
# All of it changes in the transaction of the rows. It is bounded by what the log holds: a newer change of a key, a
# floor or its own ripeness removes what waits.

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
