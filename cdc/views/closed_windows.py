"""Windows that are closed, in SQLite: their last figures, and what came for them later.

A closed window keeps its last row alone. Of each row that it was made of a digest stays, by which a change that comes
late is told from one that changes nothing. All other state of the window goes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson

from cdc.views.contributing import Contributed
from cdc.views.group_state import GroupState
from cdc.views.lookups import Row
from cdc.views.window_keys import WindowKey

_TABLES = """
CREATE TABLE IF NOT EXISTS windows (grp TEXT PRIMARY KEY, time_us INTEGER) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS windows_by_time ON windows (time_us);
CREATE TABLE IF NOT EXISTS closed (grp TEXT PRIMARY KEY, document TEXT, at TEXT, time_us INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settled (key TEXT, grp TEXT, digest BLOB, PRIMARY KEY (key, grp)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS late (number INTEGER PRIMARY KEY, key TEXT UNIQUE, document TEXT);
"""
_UNSURE = b"?"
"""Behind the digest of what a row counted in a window that another state has closed: it may have counted otherwise."""
LateOp = Literal["c", "u", "d"]
"""What a row did to its closed window: it came, it counts otherwise, or it left."""


class Final(NamedTuple):
    """The last figure of a window as JSON text, None where HAVING leaves it out. ``at``: the position of its closing:
    everything below is in it."""

    row: str | None
    at: str


class LateRow(NamedTuple):
    """A change of a driving row that a closed window does not take. ``window``: the key of its group."""

    op: LateOp
    key: Row
    window: Row


@dataclass(frozen=True, slots=True)
class ClosedUpTo:
    """Windows with a time of at most ``us`` are closed, but those that stayed open. ``at``: the position at which."""

    us: int
    at: str


def _name(key: Row) -> str:
    return orjson.dumps(key).decode()


def _digest(cells: list[tuple[Any, ...]]) -> bytes:
    plain = sorted(repr([int(one) if isinstance(one, bool) else one for one in row]) for row in cells)
    return blake2b("\n".join(plain).encode(), digest_size=16).digest()


class ClosedWindows:
    """See the module. ``connection``: SQLite, in whose transaction all of it changes."""

    def __init__(self, connection: sqlite3.Connection, groups: GroupState, window: WindowKey) -> None:
        self._connection = connection
        self._groups = groups
        self._window = window
        connection.executescript(_TABLES)
        connection.execute("CREATE INDEX IF NOT EXISTS contributions_by_group ON contributions (grp)")
        self._newest_us: int | None = connection.execute("SELECT max(time_us) FROM closed").fetchone()[0]
        """The newest time of a closed window."""
        # Groups from before there was a close.
        if connection.execute("SELECT 1 FROM windows LIMIT 1").fetchone() is None:
            self._note(groups.every())

    def absorb(
        self,
        computed: Mapping[Row, Contributed | None],
        closed: ClosedUpTo | None,
        positions: Callable[[Sequence[Row]], Mapping[Row, str]],
        *,
        behind: bool,
    ) -> tuple[set[Row], list[LateRow]]:
        """New contributions of driving rows, as :meth:`GroupState.absorb` takes them. Returns the keys of the groups
        that changed, and the changes that come late.

        ``positions``: of driving rows in the state. ``behind``: while that is filled anew. Then a row below its
        window's closing was known.
        """
        if closed is None and self._newest_us is None:
            return self._noted(self._groups.absorb(computed)), []
        new, open_parts = self._parted(computed, closed)
        late = self._settle(new, closed, positions, behind=behind)
        return self._noted(self._groups.absorb(open_parts)), late

    def due(self, us: int, most: int) -> list[Row]:
        """Keys of open groups whose time is at most ``us``, the oldest first."""
        # A group may have gone meanwhile.
        gone = "time_us <= ? AND NOT EXISTS (SELECT 1 FROM figures f WHERE f.grp = windows.grp)"
        self._connection.execute(f"DELETE FROM windows WHERE {gone}", (us,))
        wanted = "SELECT w.grp FROM windows w JOIN figures f ON f.grp = w.grp WHERE w.time_us <= ?"
        found = self._connection.execute(f"{wanted} ORDER BY w.time_us, w.grp LIMIT ?", (us, most))
        return [tuple(orjson.loads(name)) for (name,) in found]

    def close(self, key: Row, final: Final, *, elsewhere: bool = False) -> None:
        """Close one window with its last figure. ``elsewhere``: another state did. Its rows in this one need
        not be what they counted (H492)."""
        name, time_us = _name(key), self._window.time_us(key)
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for driver, cells in self._groups.contributions_to(name):
            rows.setdefault(driver, []).append(cells)
        mark = _UNSURE if elsewhere else b""
        settled = [(driver, name, _digest(cells) + mark) for driver, cells in rows.items()]
        self._connection.executemany("INSERT OR REPLACE INTO settled VALUES (?, ?, ?)", settled)
        self._groups.remove(name)
        self._connection.execute("DELETE FROM windows WHERE grp = ?", (name,))
        closed = (name, final.row, final.at, time_us)
        self._connection.execute("INSERT OR REPLACE INTO closed VALUES (?, ?, ?, ?)", closed)
        if time_us is not None:
            self._newest_us = max(time_us, self._newest_us or time_us)

    def finals(self, keys: Iterable[Row]) -> dict[Row, Final]:
        """Those of these groups that are closed."""
        names = {_name(key): key for key in keys}
        found = self._connection.execute(
            "SELECT grp, document, at FROM closed WHERE grp IN (SELECT value FROM json_each(?))",
            (orjson.dumps(list(names)).decode(),),
        )
        return {names[name]: Final(row, at) for name, row, at in found}

    def every(self) -> set[Row]:
        """The keys of all closed groups."""
        return {tuple(orjson.loads(name)) for (name,) in self._connection.execute("SELECT grp FROM closed")}

    def drivers(self) -> set[Row]:
        """The keys of all rows that closed windows were made of."""
        found = self._connection.execute("SELECT DISTINCT key FROM settled")
        return {tuple(orjson.loads(name)) for (name,) in found}

    def keep(self, records: Iterable[tuple[str, str]]) -> None:
        """Late changes to be published: key and value of each, as JSON. The newest of each key stays."""
        made = "INSERT OR REPLACE INTO late (key, document) VALUES (?, ?)"
        self._connection.executemany(made, records)

    def kept(self, most: int) -> list[tuple[int, str, str]]:
        """Late changes that are to be published, the oldest first: number, key and value."""
        wanted = "SELECT number, key, document FROM late ORDER BY number LIMIT ?"
        return self._connection.execute(wanted, (most,)).fetchall()

    def published(self, numbers: Iterable[int]) -> None:
        """Late changes were published."""
        self._connection.executemany("DELETE FROM late WHERE number = ?", [(number,) for number in numbers])

    def _noted(self, changed: set[Row]) -> set[Row]:
        self._note(changed)
        return changed

    def _note(self, groups: Iterable[Row]) -> None:
        timed = [(_name(key), time_us) for key in groups if (time_us := self._window.time_us(key)) is not None]
        self._connection.executemany("INSERT OR IGNORE INTO windows VALUES (?, ?)", timed)

    def _parted(
        self, computed: Mapping[Row, Contributed | None], closed: ClosedUpTo | None
    ) -> tuple[dict[Row, dict[str, list[tuple[Any, ...]]]], dict[Row, Contributed]]:
        """The contributions of each row to closed groups, as cells, and to all others."""
        us = max(one for one in (None if closed is None else closed.us, self._newest_us) if one is not None)
        old: dict[Row, dict[str, list[tuple[Any, ...]]]] = {key: {} for key in computed}
        others: dict[Row, Contributed] = {}
        asked: list[tuple[Row, str, tuple[Any, ...], int, Any]] = []
        for key, contributed in computed.items():
            kept: list[Any] = []
            others[key] = kept
            for one in contributed or ():
                time_us = self._window.time_us(one[0])
                if time_us is None or time_us > us:
                    kept.append(one)
                else:
                    cells = self._groups.stored(*one)
                    asked.append((key, cells[0], cells[1:], time_us, one))
        names = {name for _, name, _, _, _ in asked}
        shut, still_open = self._shut(names), self._groups.known(names)
        for key, name, cells, time_us, one in asked:
            # A window that could not be computed when its time came stays open.
            if name in shut or (closed is not None and time_us <= closed.us and name not in still_open):
                old[key].setdefault(name, []).append(cells)
            else:
                others[key] = [*others[key], one]
        return old, others

    def _shut(self, names: Iterable[str]) -> set[str]:
        asked = orjson.dumps(list(names)).decode()
        found = self._connection.execute(
            "SELECT grp FROM closed WHERE grp IN (SELECT value FROM json_each(?))", (asked,)
        )
        return {name for (name,) in found}

    def _settle(
        self,
        new: Mapping[Row, Mapping[str, list[tuple[Any, ...]]]],
        closed: ClosedUpTo | None,
        positions: Callable[[Sequence[Row]], Mapping[Row, str]],
        *,
        behind: bool,
    ) -> list[LateRow]:
        names = {_name(key): key for key in new}
        known: dict[Row, dict[str, bytes]] = {}
        found = self._connection.execute(
            "SELECT key, grp, digest FROM settled WHERE key IN (SELECT value FROM json_each(?))",
            (orjson.dumps(list(names)).decode(),),
        )
        for name, group, digest in found:
            known.setdefault(names[name], {})[group] = digest
        late: list[LateRow] = []
        unsure: list[LateRow] = []
        put: list[tuple[str, str, bytes]] = []
        gone: list[tuple[str, str]] = []
        for key, groups in new.items():
            had = known.get(key, {})
            for group, cells in groups.items():
                digest = _digest(cells)
                # A state that was copied back does not know what the topic was told since.
                if had.get(group) != digest or behind:
                    put.append((_name(key), group, digest))
                    one = LateRow("u" if group in had else "c", key, tuple(orjson.loads(group)))
                    (unsure if behind or had.get(group, b"").endswith(_UNSURE) else late).append(one)
            for group in had.keys() - groups.keys():
                gone.append((_name(key), group))
                one = LateRow("d", key, tuple(orjson.loads(group)))
                (unsure if behind or had[group].endswith(_UNSURE) else late).append(one)
        self._connection.executemany("INSERT OR REPLACE INTO settled VALUES (?, ?, ?)", put)
        self._connection.executemany("DELETE FROM settled WHERE key = ? AND grp = ?", gone)
        return late + self._unknown(unsure, closed, positions) if unsure else late

    def _unknown(
        self, late: list[LateRow], closed: ClosedUpTo | None, positions: Callable[[Sequence[Row]], Mapping[Row, str]]
    ) -> list[LateRow]:
        """Those of these changes that stand behind the closing of their windows.

        A window without a last figure had no rows, unless HAVING left it out. Other rows may have brought its own
        there since, as in a session that a row's leaving has split (H492).
        """
        known = positions([one.key for one in late])
        finals = self.finals({one.window for one in late})
        at = "" if closed is None or not self._groups.having else closed.at
        return [
            one for one in late if known.get(one.key, "") >= (finals[one.window].at if one.window in finals else at)
        ]
