"""A view's runner over random histories, with kills between every two steps and states that are copied back.

The oracle computes the view from all transactions below a fence, by plain Python. At each claim the topic has to show
just that, whatever happened before.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.clock import ManualClock
from cdc.errors import Exit
from cdc.position import Position
from cdc.progress import Progress
from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName, partition_of
from cdc.views.fences import Fence
from cdc.views.keeper import Keeper, KeeperParts
from cdc.views.memory_views import Change, MemoryViewInput, MemoryViewOutput, MemoryViewTopic
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecords
from cdc.views.view_state import StateAway, ViewState

_PARTITIONS = 2


def _table(name: str, columns: dict[str, str]) -> TableSchema:
    return TableSchema(
        table=TableName("public", name),
        topic=f"t.{name}",
        version=1,
        oid=1,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=tuple(
            Column(name=c, attnum=i, type=kind, type_oid=0, kind=kind, key_position=1 if c == "id" else None)
            for i, (c, kind) in enumerate(columns.items(), start=1)
        ),
    )


SHAPES = (
    _table("orders", {"id": "int4", "customer_id": "int4"}),
    _table("lines", {"id": "int4", "order_id": "int4", "qty": "int4"}),
    _table("customers", {"id": "int4", "name": "int4"}),
)
DOCUMENTS = """select o.id, c.name, (select json_agg(l.qty order by l.id) from lines l where l.order_id = o.id) as lines
from orders o left join customers c on c.id = o.customer_id"""
GROUPS = """select coalesce(c.name, 0) as name, count(*) as n, sum(l.qty) as total, max(l.qty) as most
from lines l left join orders o on o.id = l.order_id left join customers c on c.id = o.customer_id group by 1"""

Rows = dict[str, dict[int, dict[str, int | None]]]


def documents_of(rows: Rows) -> dict[bytes, object]:
    """The first view, by hand."""
    found: dict[bytes, object] = {}
    for number, order in rows["orders"].items():
        customer = rows["customers"].get(order["customer_id"] or 0)
        lines = [line["qty"] for _, line in sorted(rows["lines"].items()) if line["order_id"] == number]
        name = None if customer is None else customer["name"]
        shown = None if not lines else "[" + ", ".join("null" if q is None else str(q) for q in lines) + "]"
        found[orjson.dumps({"id": number})] = {"id": number, "name": name, "lines": shown}
    return found


def groups_of(rows: Rows) -> dict[bytes, object]:
    """The second view, by hand."""
    groups: dict[int, list[int | None]] = {}
    for line in rows["lines"].values():
        order = rows["orders"].get(line["order_id"] or 0)
        customer = None if order is None else rows["customers"].get(order["customer_id"] or 0)
        name = None if customer is None else customer["name"]
        groups.setdefault(name or 0, []).append(line["qty"])
    found: dict[bytes, object] = {}
    for name, quantities in groups.items():
        known = [q for q in quantities if q is not None]
        figures = {"n": len(quantities), "total": sum(known) if known else None, "most": max(known, default=None)}
        found[orjson.dumps({"name": name})] = {"name": name, **figures}
    return found


VIEWS: dict[str, tuple[str, Callable[[Rows], dict[bytes, object]]]] = {
    "documents": (DOCUMENTS, documents_of),
    "groups": (GROUPS, groups_of),
}


@dataclass
class History:
    """Transactions as capture writes them: each change to its partition, positions growing in each."""

    chance: random.Random
    input: MemoryViewInput = field(default_factory=lambda: MemoryViewInput({shape.topic: shape for shape in SHAPES}))
    rows: Rows = field(default_factory=lambda: {"orders": {}, "lines": {}, "customers": {}})
    states: dict[int, Rows] = field(default_factory=dict)
    lsn: int = 8
    clock: ManualClock = field(default_factory=ManualClock)
    strangers: set[Change] = field(default_factory=set)

    def transaction(self) -> None:
        """One to four changes, committed together."""
        self.lsn += 8
        for seq in range(1, 1 + self.chance.randint(1, 4)):
            name = self.chance.choice(["orders", "lines", "lines", "customers"])
            key = self.chance.randint(1, 4)
            if key in self.rows[name] and self.chance.random() < 0.25:
                del self.rows[name][key]
                self._write(name, key, None, seq)
            else:
                self.rows[name][key] = self._row(name, key)
                self._write(name, key, self.rows[name][key], seq)
        self.states[self.lsn] = {name: {k: dict(r) for k, r in rows.items()} for name, rows in self.rows.items()}

    def truncate(self) -> None:
        """A table is emptied: a record in each of its partitions."""
        self.lsn += 8
        name = self.chance.choice(["lines", "customers"])
        self.rows[name] = {}
        key = orjson.dumps({"__truncate": f"public.{name}"})
        pos = Position(1, self.lsn, 1).text().encode()
        for partition in range(_PARTITIONS):
            self._append(f"t.{name}", partition, (key, b"{}", pos, b"t", b"1"))
        self.states[self.lsn] = {n: {k: dict(r) for k, r in rows.items()} for n, rows in self.rows.items()}

    def progress(self) -> None:
        """Everything so far lies below the offsets. Some that comes later may lie there, too, and be old by then."""
        lsn, before = self.lsn + 4, self._ends()
        if self.chance.random() < 0.3:
            self.transaction()
            self.clock.advance(self.chance.choice([0, 30, 70]))
        offsets = self._ends()
        for _ in range(self.chance.randint(0, 1)):
            self.transaction()
            offsets = {
                topic: {p: self.chance.randint(offset, self._end(topic, p)) for p, offset in parts.items()}
                for topic, parts in offsets.items()
            }
        ahead = {topic: self._ahead(topic, before[topic], parts) for topic, parts in offsets.items()}
        self.input.newest = Progress(epoch=1, lsn=lsn, offsets=offsets, ahead=ahead)
        self.input.progress_ms = self.clock.now_ns() // 1_000_000

    def compact(self) -> None:
        """The cleaner: of the records older than the lag only the newest of each key stays.

        In this log nobody else takes a row's key: what replaced the row would have taken it from every reader.
        """
        old_ms = self.clock.now_ns() // 1_000_000 - self.input.compaction_lag_s * 1000
        for (topic, partition), records in self.input.partitions.items():
            old = [found for found in records if self.input.times_ms[topic, partition, found[0]] <= old_ms]
            newest = {change[0]: offset for offset, change in old if change not in self.strangers}
            records[:] = [one for one in old if one[1] in self.strangers or newest[one[1][0]] == one[0]] + records[
                len(old) :
            ]

    def _ends(self) -> dict[str, dict[int, int]]:
        return {shape.topic: {p: self._end(shape.topic, p) for p in range(_PARTITIONS)} for shape in SHAPES}

    def _ahead(self, topic: str, before: dict[int, int], parts: dict[int, int]) -> dict[int, str]:
        """Of each partition whose records reach beyond the LSN: the newest position among them."""
        newest = {}
        for partition, end in parts.items():
            found = self.input.partitions.get((topic, partition), [])
            positions = [change[2].decode() for offset, change in found if before[partition] <= offset < end]
            if positions:
                newest[partition] = max(positions)
        return newest

    def foreign(self) -> None:
        """Somebody else writes: a future position, a key of another shape, a value that is no change."""
        topic = self.chance.choice(["t.orders", "t.lines", "t.customers"])
        partition, key = self.chance.randrange(_PARTITIONS), orjson.dumps({"id": self.chance.randint(1, 4)})
        future = Position(1, 1 << 40, 1).text().encode()
        now = Position(1, max(self.lsn - 8, 8), 1).text().encode()
        one: Change = self.chance.choice(
            [
                (key, b'{"after":{"id":1}}', future, b"u", b"1"),
                (b'{"other":1}', b'{"after":null}', now, b"d", b"1"),
                (key, b"no JSON", now, b"u", b"1"),
                (b"no JSON", b"{}", now, b"t", b"1"),
                (key, b"{}", b"nonsense", b"u", b"1"),
            ]
        )
        self._append(topic, partition, one)
        self.strangers.add(one)

    def at(self, lsn: int) -> Rows:
        """The rows of all transactions below a fence."""
        below = [known for known in self.states if known < lsn]
        return self.states[max(below)] if below else {"orders": {}, "lines": {}, "customers": {}}

    def _row(self, name: str, key: int) -> dict[str, int | None]:
        some = self.chance.choice([None, 1, 2, 3, 4])
        if name == "orders":
            return {"id": key, "customer_id": some}
        if name == "lines":
            return {"id": key, "order_id": some, "qty": self.chance.choice([None, 1, 2, 5])}
        return {"id": key, "name": self.chance.randint(1, 3)}

    def _write(self, name: str, key: int, row: dict[str, int | None] | None, seq: int) -> None:
        encoded = orjson.dumps({"id": key})
        pos = Position(1, self.lsn, seq).text().encode()
        value = orjson.dumps({"before": None, "after": row})
        change: Change = (encoded, value, pos, b"u" if row is not None else b"d", b"1")
        self._append(f"t.{name}", partition_of(encoded, _PARTITIONS), change)

    def _append(self, topic: str, partition: int, change: Change) -> None:
        end = self._end(topic, partition)
        self.input.times_ms[topic, partition, end] = self.clock.now_ns() // 1_000_000
        self.input.partitions.setdefault((topic, partition), []).append((end, change))

    def _end(self, topic: str, partition: int) -> int:
        found = self.input.partitions.get((topic, partition), [])
        return found[-1][0] + 1 if found else 0


class Killed(Exception):
    """The process ends here."""


def shown(topic: MemoryViewTopic) -> dict[bytes, object]:
    """What a reader of the topic holds: the newest of each key, less what floors removed."""
    rows: dict[bytes, tuple[str, object]] = {}
    floor = ""
    for records in topic.records.values():
        for record in records:
            headers = {name: value.decode() for name, value in record.headers}
            value: dict[str, Any] = orjson.loads(record.value) if record.value is not None else {"after": None}
            if headers["op"] == "t":
                floor = max(floor, value["sweep"]["floor"])
            elif headers["pos"] >= rows.get(record.key, ("", None))[0]:
                rows[record.key] = (headers["pos"], value["after"])
    return {key: row for key, (pos, row) in rows.items() if row is not None and pos >= floor}


@dataclass
class Runner:
    """A view's runner that is started anew after each kill."""

    sql: str
    history: History
    folder: Path
    topic: MemoryViewTopic = field(default_factory=MemoryViewTopic)
    bulk: int = 1000
    _open: tuple[Keeper, ViewState] | None = None

    def start(self) -> None:
        """Open the state that is there, and begin."""
        plan = planned(self.sql, SHAPES)
        state = ViewState(self.folder / "state", plan, 1)
        records = ViewRecords(plan, "v", "t.view.v.1", _PARTITIONS, name="t", database="d")
        output = MemoryViewOutput(self.topic, self._maybe, self._maybe)
        topics = {shape.table: shape.topic for shape in SHAPES if shape.table in plan.relations}
        parts = KeeperParts(plan, state, self.history.input, output, records, topics)
        keeper = Keeper(parts, clock=self.history.clock, piece=2, bulk=self.bulk)
        self._open = keeper, state
        keeper.begin()

    kill_chance: float = 0.0

    def _maybe(self) -> None:
        if self.history.chance.random() < self.kill_chance:
            raise Killed

    def turn(self) -> None:
        """One turn, or a kill within it."""
        try:
            if self._open is None:
                self.start()
            assert self._open is not None
            self._open[0].turn()
        except Killed:
            self.end()

    def end(self) -> None:
        """The process is gone. What it committed stays."""
        if self._open is not None:
            self._open[1].close()
        self._open = None

    @property
    def level(self) -> bool:
        """Whether it lives and has claimed everything."""
        return self._open is not None and self._open[0].level

    def until_level(self) -> Fence:
        """Go on, without kills, until everything is claimed."""
        self.kill_chance = 0.0
        for number in range(200):
            self.turn()
            if number % 20 == 19:
                # A living capture writes the next one.
                self.history.progress()
            if self.level:
                return self.topic.claims[-1]
        raise AssertionError("the view never comes level")


def _interfere(runner: Runner, chance: random.Random) -> None:
    """Sometimes: an end, a copy of the state, the copy put back, the state deleted."""
    state, kept = runner.folder / "state", runner.folder / "kept"
    what = chance.randrange(8)
    if what < 4:
        runner.end()
    if what == 1 and state.exists():
        shutil.copy(state, kept)
    if what == 2 and kept.exists():
        shutil.copy(kept, state)
    if what == 3:
        state.unlink(missing_ok=True)


@pytest.mark.parametrize("view", VIEWS)
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_v1_v9_h158_h185_claims_are_what_the_tables_say(
    view: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sql, oracle = VIEWS[view]
    chance = random.Random(seed)
    history = History(chance)
    folder = tmp_path_factory.mktemp("view")
    runner = Runner(sql, history, folder, bulk=chance.choice([3, 1000]))
    for _ in range(12):
        for _ in range(chance.randint(0, 3)):
            history.transaction()
        if chance.random() < 0.1:
            history.truncate()
        if chance.random() < 0.2:
            history.foreign()
        if chance.random() < 0.7:
            history.progress()
        runner.kill_chance = 0.2
        for _ in range(chance.randint(0, 5)):
            runner.turn()
            if runner.level:
                claim = runner.topic.claims[-1]
                assert shown(runner.topic) == oracle(history.at(claim.lsn))
        _interfere(runner, chance)
        history.clock.advance(chance.choice([1, 20, 70]))
        if chance.random() < 0.5:
            history.compact()
        if chance.random() < 0.4 and history.input.newest is not None:
            claim = runner.until_level()
            assert claim == Fence(1, history.input.newest.lsn)
            assert shown(runner.topic) == oracle(history.at(claim.lsn))
    runner.end()


def test_v17_a_state_in_use_stops_with_a_sentence(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    history.transaction()
    history.progress()
    runner.start()
    other = sqlite3.connect(tmp_path / "state", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateAway, match="cannot be read or written: database is locked") as refused:
        assert runner._open is not None
        runner._open[0].turn()
    assert refused.value.exit is Exit.UNAVAILABLE
    assert runner.topic.records == {}
    other.execute("ROLLBACK")
    other.close()
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))
    runner.end()
