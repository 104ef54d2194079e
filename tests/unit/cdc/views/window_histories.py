"""Histories of one table whose rows have a time, for windows that close, and the view over it worked out by hand."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from cdc.position import Position
from cdc.topic import partition_of
from cdc.views.keeper import Keeper, KeeperParts
from cdc.views.memory_views import MemoryViewInput, MemoryViewOutput
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecords
from cdc.views.view_state import ViewState
from cdc.views.window_keys import window_key
from tests.unit.cdc.views.view_histories import PARTITIONS, History, Rows, Runner, table_of

SHAPES = (table_of("lines", {"id": "int4", "at": "timestamp", "qty": "int4", "who": "int4"}),)
SQL = """select l.at, count(*) as n, sum(l.qty) as total, max(l.qty) as most, count(distinct l.qty) as kinds,
 false as final from lines l group by l.at having count(*) > 0"""
HOPS = """select w.start as at, count(*) as n, sum(l.qty) as total, max(l.qty) as most, count(distinct l.qty) as kinds,
 false as final from lines l cross join lateral generate_series(
 l.at - interval '2 minutes', l.at, interval '1 minute') as w (start) group by w.start having count(*) > 0"""
"""Each row stands in three windows."""
SESSIONS = """select l.who, s.start as at, count(*) as n, sum(l.qty) as total, max(l.qty) as most,
 count(distinct l.qty) as kinds, false as final from lines l cross join lateral (
 select max(x.at) as start from lines x where x.who = l.who and x.at <= l.at
 and not exists (select 1 from lines y where y.who = x.who
 and y.at < x.at and y.at >= x.at - interval '1 minute')) as s
 group by l.who, s.start"""
"""A row that comes or goes moves others from window to window."""
CLOSE_S = 120
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


def text_of(minute: int) -> str:
    """A whole minute since 1970 as a timestamp on the wire."""
    return (_EARLIEST + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%S")


def minute_of(text: str) -> int:
    """:func:`text_of` the other way."""
    return int((datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC) - _EARLIEST).total_seconds()) // 60


@dataclass
class WindowHistory(History):
    """Rows come with times of the last minutes, some much later than that."""

    input: MemoryViewInput = field(default_factory=lambda: MemoryViewInput({shape.topic: shape for shape in SHAPES}))

    def transaction(self) -> None:
        """One to three changes, committed together."""
        self.lsn += 8
        for seq in range(1, 1 + self.chance.randint(1, 3)):
            key = self.chance.randint(1, 6)
            if key in self.rows["lines"] and self.chance.random() < 0.25:
                del self.rows["lines"][key]
                self._write("lines", key, None, seq)
            else:
                self.rows["lines"][key] = self._row("lines", key)
                self._write("lines", key, self.rows["lines"][key], seq)
        self.states[self.lsn] = {name: {k: dict(r) for k, r in rows.items()} for name, rows in self.rows.items()}

    @property
    def minute(self) -> int:
        """Now, in whole minutes since 1970."""
        return self.clock.now_ns() // 60_000_000_000

    def _row(self, name: str, key: int) -> dict[str, Any]:
        minute = self.minute - self.chance.choice([0, 0, 1, 1, 2, 3, 5])
        at = None if self.chance.random() < 0.05 else text_of(minute)
        who = 1 + (self.lsn // 8 + key) % 3 // 2
        return {"id": key, "at": at, "qty": self.chance.choice([None, 1, 2, 5]), "who": who}

    def _write(self, name: str, key: int, row: dict[str, Any] | None, seq: int) -> None:
        encoded = orjson.dumps({"id": key})
        pos = Position(1, self.lsn, seq).text().encode()
        # The clock of a source is set back, and forward again.
        time_ms = self.clock.now_ns() // 1_000_000 + self.chance.choice([0, 0, -30_000])
        value = orjson.dumps({"before": None, "after": row, "source": {"ts_ms": time_ms}, "transaction": None})
        op = b"u" if row is not None else b"d"
        self.append(f"t.{name}", partition_of(encoded, PARTITIONS), (encoded, value, pos, op, b"1"))


@dataclass
class WindowRunner(Runner):
    """A runner whose windows close."""

    def start(self) -> None:
        """Open the state that is there, and begin."""
        plan = planned(self.sql, SHAPES)
        state = ViewState(self.folder / "state", plan, 1)
        records = ViewRecords(plan, "v", "t.view.v.1", PARTITIONS, name="t", database="d")
        output = MemoryViewOutput(self.topic, self._maybe, self._maybe)
        topics = {shape.table: shape.topic for shape in SHAPES}
        window = window_key("v", plan, timedelta(seconds=CLOSE_S))
        parts = KeeperParts(plan, state, self.history.input, output, records, topics, None, window, "t.view.v.late")
        keeper = Keeper(parts, clock=self.history.clock, piece=2, bulk=self.bulk)
        self._open = keeper, state
        keeper.begin()


def runner_over(sql: str, history: History, folder: Path, chance: random.Random) -> WindowRunner:
    """A runner of the view, with bulks of a random size."""
    return WindowRunner(sql, history, folder, bulk=chance.choice([3, 1000]), shapes=SHAPES)


Window = tuple[int | None, str | None]
"""Whose it is, None where nobody's, and its time."""


def rows_in(rows: Rows, sql: str) -> dict[Window, dict[int, int | None]]:
    """What each row counts in each window, every window open."""
    lines: dict[int, dict[str, Any]] = rows.get("lines", {})
    found: dict[Window, dict[int, int | None]] = {}
    for key, line in lines.items():
        for window in _windows_with(line, lines, sql):
            found.setdefault(window, {})[key] = line["qty"]
    return found


def _windows_with(line: dict[str, Any], lines: dict[int, dict[str, Any]], sql: str) -> list[Window]:
    at = line["at"]
    if sql == SQL:
        return [(None, at)]
    if sql == HOPS:
        return [] if at is None else [(None, text_of(minute_of(at) - back)) for back in range(3)]
    if at is None:
        return [(line["who"], None)]
    minutes = {minute_of(one["at"]) for one in lines.values() if one["who"] == line["who"] and one["at"] is not None}
    begin = minute_of(at)
    while begin - 1 in minutes:
        begin -= 1
    return [(line["who"], text_of(begin))]


def windows_of(rows: Rows, sql: str) -> dict[Window, dict[str, Any]]:
    """The view, by hand, every window open."""
    found: dict[Window, dict[str, Any]] = {}
    for (who, at), counted in rows_in(rows, sql).items():
        known = [q for q in counted.values() if q is not None]
        found[who, at] = {
            **({"who": who} if sql == SESSIONS else {}),
            "at": at,
            "n": len(counted),
            "total": sum(known) if known else None,
            "most": max(known, default=None),
            "kinds": len(set(known)),
            "final": False,
        }
    return found


@dataclass(frozen=True)
class ShownWindows:
    """What a reader of the topic holds: rows by their window, and where those that are final closed."""

    rows: dict[Window, dict[str, Any]]
    closed: dict[Window, int]


def shown_windows(runner: Runner) -> ShownWindows:
    """The newest record of each window, less what floors removed."""
    newest: dict[bytes, tuple[str, Any]] = {}
    floor = ""
    for records in runner.topic.records.values():
        for record in records:
            headers = {name: value.decode() for name, value in record.headers}
            value: dict[str, Any] = orjson.loads(record.value) if record.value is not None else {"after": None}
            if headers["op"] == "t":
                floor = max(floor, value["sweep"]["floor"])
            elif headers["pos"] >= newest.get(record.key, ("", None))[0]:
                newest[record.key] = headers["pos"], value
    there = [v for pos, v in newest.values() if v["after"] is not None and pos >= floor]
    rows = {_window(v["after"]): v["after"] | {"at": _plain(v["after"]["at"])} for v in there}
    closed = {
        _window(v["after"]): Position.parse(v["source"]["final"]).commit_lsn for v in there if "final" in v["source"]
    }
    return ShownWindows(rows, closed)


def late_of(runner: Runner) -> dict[tuple[Window, int], dict[str, Any]]:
    """The newest late change of each window and row."""
    found = {}
    for record in runner.topic.late.values():
        assert record.value is not None
        value = orjson.loads(record.value)
        found[_window(value["window"]), value["row"]["id"]] = value
    return found


def _window(columns: dict[str, Any]) -> Window:
    return columns.get("who"), _plain(columns["at"])


def _plain(text: str | None) -> str | None:
    return None if text is None else re.sub(r"(\.0+)?Z?$", "", text)
