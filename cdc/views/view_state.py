"""The state of a view's runner: rows, how far it has read, and the keys that wait to be published. One SQLite file.

All of it changes in one transaction, before anything is published. The file may be deleted at any time: the view is
then built anew from the topics.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import orjson

from cdc.process.untrusted_text import quoted
from cdc.views.embedded_state import SqliteRows
from cdc.views.group_state import GroupState
from cdc.views.log_cut import Fence
from cdc.views.lookups import Row
from cdc.views.row_changes import UnseenRows
from cdc.views.state_reach import Bound, Reached, StateAway, is_damaged, opening_fault
from cdc.views.view_plan import ViewPlan

_NEWEST_SHARE = 4
_LESS = "(excluded.epoch, excluded.lsn) < (pending.epoch, pending.lsn)"
_THE_LESSER = "".join(
    f", {part} = CASE WHEN {_LESS} THEN excluded.{part} ELSE pending.{part} END" for part in ("epoch", "lsn")
)
"""Behind an insert of a key that waits already: its fence is the lesser one."""
_TABLES = """
CREATE TABLE IF NOT EXISTS kept (one INTEGER PRIMARY KEY CHECK (one = 1), document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pending (number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, epoch INTEGER NOT NULL,
 lsn INTEGER NOT NULL, parked TEXT);
CREATE TABLE IF NOT EXISTS published (key TEXT PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID;
"""


SIZES = """SELECT count(*) - count(parked), count(parked) + (SELECT count(*) FROM lost) FROM pending"""
"""How many keys wait, and how many documents are parked or rows not known."""


def _name(key: Row) -> str:
    return orjson.dumps(key).decode()


def _members(name: str) -> list[object]:
    found = orjson.loads(name)
    return list(found["row"]) if isinstance(found, dict) else list(found)


def _failed(key: Row) -> str:
    """The name of a driving row among the keys that wait. No key of a document is an object."""
    return orjson.dumps({"row": key}).decode()


class ViewState:
    """The state of one view in a folder. For one thread.

    ConfigError where its place is wrong by itself, or another text made what it holds. StateAway where it cannot be
    used now.
    """

    def __init__(self, path: Path | str, plan: ViewPlan, generation: int) -> None:
        self.plan = plan
        self._path = path
        self._bound = bound = Bound.to(plan)
        with ExitStack() as unless_opened:
            try:
                if isinstance(path, Path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = sqlite3.connect(path, isolation_level=None)
                unless_opened.callback(self._connection.close)
                self._connection.execute("PRAGMA journal_mode = wal")
                self._connection.execute("PRAGMA synchronous = normal")
                # Changes are scattered: with SQLite's 2 MB each would be a read, and most pages be copied each time.
                self._connection.execute("PRAGMA cache_size = -65536")
                self._connection.execute("PRAGMA wal_autocheckpoint = 8000")
                self._connection.executescript(_TABLES)
                found = self._connection.execute("SELECT document FROM kept").fetchone()
                self.reached = Reached.from_json(found[0]) if found else bound.begun(generation)
                # Before the tables: what another text has made has others of the same names.
                bound.require(self.reached, generation, str(path))
                self.rows = SqliteRows(self._connection, plan.relations)
                self.unseen = UnseenRows(self._connection, plan.relations)
                self.groups = GroupState(self._connection, plan.grouping) if plan.grouping is not None else None
            except (OSError, sqlite3.Error) as failure:
                raise opening_fault(path, failure) from None
            unless_opened.pop_all()

    @property
    def of_other_types(self) -> bool:
        """See :meth:`Bound.other_than`."""
        return self._bound.other_than(self.reached)

    def bind(self) -> None:
        """Note the plan that the state goes on under. Within a transaction."""
        self.note(**self._bound._asdict())

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """StateAway in place of what SQLite raises: a full disk, a file that another runner holds. ConfigError
        for a file that is damaged: trying again does not mend it."""
        try:
            yield
        except sqlite3.Error as failure:
            if is_damaged(failure):
                raise opening_fault(self._path, failure) from None
            raise StateAway(
                f"the state of the view in {self._path} cannot be read or written: {quoted(failure)}",
                hint="see that its disk has room and that no other runner uses it",
            ) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing of what is done within, with :attr:`reached` as it is at the end."""
        self._connection.execute("BEGIN IMMEDIATE")
        before = self.reached
        try:
            yield
            self._connection.execute("INSERT OR REPLACE INTO kept VALUES (1, ?)", (self.reached.to_json(),))
            self._connection.execute("COMMIT")
        except BaseException:
            self.reached = before
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def note(self, **changed: object) -> None:
        """Change what is reached. Within a transaction."""
        self.reached = replace(self.reached, **changed)  # type: ignore[arg-type]

    def queue(self, keys: Iterable[Row], below: Fence) -> None:
        """Keys whose documents are to be published. ``below``: up to there they are as published.

        A key that waits already keeps its place, and the lesser fence. One that was parked waits again.
        """
        queued = "INSERT INTO pending (key, epoch, lsn) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET parked = NULL"
        self._connection.executemany(queued + _THE_LESSER, [(_name(key), *below) for key in keys])

    def roots(self) -> Iterator[Row]:
        """The keys of all roots."""
        root = self.plan.root
        return self.rows.every(root.table, self.plan.relations[root.table].key)

    def documents(self) -> list[Row]:
        """The keys of all documents that are published."""
        return [tuple(orjson.loads(name)) for (name,) in self._connection.execute("SELECT key FROM published")]

    def parked(self) -> tuple[list[Row], list[Row]]:
        """The keys of all documents that are parked, and those of driving rows that nothing could be computed from."""
        documents: list[Row] = []
        rows: list[Row] = []
        for (name,) in self._connection.execute("SELECT key FROM pending WHERE parked IS NOT NULL"):
            (documents if name.startswith("[") else rows).append(tuple(_members(name)))
        return documents, rows

    def failed(self, keys: Iterable[Row]) -> list[Row]:
        """Those of these driving rows that nothing could be computed from so far."""
        if not self._any_failed():
            return []
        names = {_failed(key): key for key in keys}
        found = self._connection.execute(
            "SELECT key FROM pending WHERE key IN (SELECT value FROM json_each(?))",
            (orjson.dumps(list(names)).decode(),),
        )
        return [names[name] for (name,) in found]

    def fail(self, reasons: Mapping[Row, str], below: Fence) -> Fence:
        """Driving rows that nothing can be computed from: the claim stays below them. A reason is empty of one that is
        computed. Returns up to where documents of these rows are as published: that is ``below``, or where one of
        them was computed last."""
        if self._any_failed():
            names = orjson.dumps([_failed(key) for key in reasons]).decode()
            before = "FROM pending WHERE key IN (SELECT value FROM json_each(?))"
            least = self._connection.execute(f"SELECT epoch, lsn {before} ORDER BY epoch, lsn LIMIT 1", (names,))
            below = min([below, *(Fence(*found) for found in least)])
            computed = [(_failed(key),) for key, reason in reasons.items() if not reason]
            self._connection.executemany("DELETE FROM pending WHERE key = ?", computed)
        failed = [(_failed(key), *below, reason) for key, reason in reasons.items() if reason]
        kept = "INSERT INTO pending (key, epoch, lsn, parked) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
        self._connection.executemany(f"{kept} SET parked = excluded.parked", failed)
        return below

    def _any_failed(self) -> bool:
        """Whether a name of :func:`_failed` waits. It sorts behind all of :func:`_name`."""
        found = self._connection.execute("SELECT EXISTS (SELECT 1 FROM pending WHERE key >= '{')").fetchone()
        return bool(found[0])

    def forget(self) -> None:
        """Drop all that is kept: the view is built anew from the topics. Within a transaction."""
        tables = self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (name,) in tables:
            if name != "kept":
                self._connection.execute(f"DELETE FROM {name}")
        self.reached = self.reached.anew()

    def waiting(self, most: int) -> list[Row]:
        """Keys that wait, the oldest first. Where there are more than ``most``, a quarter of them are the newest ones.

        A row that many documents show makes all of them wait at once. Others that come behind are not kept back by
        them for long, and the oldest go on, so the claim does.
        """
        found = self._waiting("ORDER BY number", most)
        if len(found) == most:
            newest = self._waiting("ORDER BY number DESC", max(1, most // _NEWEST_SHARE))
            found = [*found[: most - len(newest)], *reversed(newest)]
        return [tuple(orjson.loads(key)) for key in found]

    def _waiting(self, order: str, most: int) -> list[str]:
        found = self._connection.execute(f"SELECT key FROM pending WHERE parked IS NULL {order} LIMIT ?", (most,))
        return [key for (key,) in found]

    def settled(self, keys: Iterable[Row], digests: Mapping[Row, bytes | None]) -> None:
        """Keys were published, or need not be. ``digests``: what of, None for a deletion."""
        many = self._connection.executemany
        many("DELETE FROM pending WHERE key = ?", [(_name(key),) for key in keys])
        kept = [(_name(key), digest) for key, digest in digests.items() if digest is not None]
        many("INSERT OR REPLACE INTO published VALUES (?, ?)", kept)
        gone = [(_name(key),) for key, digest in digests.items() if digest is None]
        many("DELETE FROM published WHERE key = ?", gone)

    def park(self, reasons: Mapping[Row, str]) -> None:
        """Keys whose documents cannot be published stay, and the claim below them, until a change concerns them."""
        self._connection.executemany(
            "UPDATE pending SET parked = ? WHERE key = ?",
            [(reason, _name(key)) for key, reason in reasons.items()],
        )

    def digests(self, keys: Iterable[Row]) -> dict[Row, bytes]:
        """The digests of the documents that were last published under keys."""
        names = {_name(key): key for key in keys}
        found = self._connection.execute(
            "SELECT key, digest FROM published WHERE key IN (SELECT value FROM json_each(?))",
            (orjson.dumps(list(names)).decode(),),
        )
        return {names[name]: digest for name, digest in found}

    def claim(self, without: Iterable[Row] = ()) -> Fence:
        """Up to which fence everything is published, once these keys are."""
        names = orjson.dumps([_name(key) for key in without]).decode()
        others = "SELECT epoch, lsn FROM pending WHERE key NOT IN (SELECT value FROM json_each(?))"
        others += " UNION ALL SELECT epoch, lsn FROM lost"
        least = self._connection.execute(f"{others} ORDER BY epoch, lsn LIMIT 1", (names,)).fetchone()
        return self.reached.fence if least is None else min(Fence(*least), self.reached.fence)

    def unpublished(self, keys: Iterable[Row]) -> dict[Row, str | None]:
        """Those of these keys that wait, and those that are parked, with the reason."""
        names = {_name(key): key for key in keys}
        found = self._connection.execute(
            "SELECT key, parked FROM pending WHERE key IN (SELECT value FROM json_each(?))",
            (orjson.dumps(list(names)).decode(),),
        )
        return {names[name]: parked for name, parked in found}

    def sizes(self) -> tuple[int, int]:
        """How many keys wait, and how many are parked, with rows that are not known."""
        found = self._connection.execute(SIZES).fetchone()
        return int(found[0]), int(found[1])

    def counts(self) -> tuple[int, dict[Row, str]]:
        """How many keys wait, and those that are parked, with the reason."""
        waiting = self._connection.execute("SELECT count(*) FROM pending WHERE parked IS NULL").fetchone()[0]
        parked = self._connection.execute("SELECT key, parked FROM pending WHERE parked IS NOT NULL LIMIT 1000")
        return waiting, {tuple(_members(key)): reason for key, reason in parked}
