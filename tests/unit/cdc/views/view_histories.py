"""Histories of tables as capture writes them, and a view's runner over them that is killed and started anew."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from cdc.process.clock import ManualClock
from cdc.record.position import Position
from cdc.record.progress import Progress
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName, partition_of
from cdc.views.log_cut import BEFORE_ALL, NEVER, Fence, fence_at
from cdc.views.view_plan import ViewPlan, planned
from cdc.views.view_ports import AskedKeys, SilentOutput, ViewOutput
from cdc.views.view_records import ViewRecords
from cdc.views.view_runner import KeeperParts, ViewRunner
from cdc.views.view_state import ViewState
from tests.memory_views import Change, MemoryViewInput, MemoryViewOutput, MemoryViewTopic

PARTITIONS = 2
Rows = dict[str, dict[int, dict[str, Any]]]


def table_of(name: str, columns: dict[str, str]) -> TableSchema:
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
    table_of("orders", {"id": "int4", "customer_id": "int4"}),
    table_of("lines", {"id": "int4", "order_id": "int4", "qty": "int4"}),
    table_of("customers", {"id": "int4", "name": "int4"}),
)


@cache
def plan_of(sql: str, shapes: tuple[TableSchema, ...]) -> ViewPlan:
    """A runner is started anew many times in one history."""
    return planned(sql, shapes)


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

    def write(self, name: str, key: int, row: dict[str, int | None]) -> None:
        """One row, in a transaction of its own."""
        self.lsn += 8
        self.rows[name][key] = row
        self._write(name, key, row, 1)
        self.states[self.lsn] = {n: {k: dict(r) for k, r in rows.items()} for n, rows in self.rows.items()}

    def delete(self, name: str, key: int) -> None:
        """One row goes, in a transaction of its own."""
        self.lsn += 8
        del self.rows[name][key]
        self._write(name, key, None, 1)
        self.states[self.lsn] = {n: {k: dict(r) for k, r in rows.items()} for n, rows in self.rows.items()}

    def progress_now(self) -> None:
        """Everything so far lies below the offsets, and nothing else does."""
        self.input.newest = Progress(epoch=1, lsn=self.lsn + 4, offsets=self._ends())
        self.input.progress_ms = self.clock.now_ns() // 1_000_000

    def truncate(self) -> None:
        """A table is emptied: a record in each of its partitions."""
        self.lsn += 8
        name = self.chance.choice(["lines", "customers"])
        self.rows[name] = {}
        key = orjson.dumps({"__truncate": f"public.{name}"})
        pos = Position(1, self.lsn, 1).text().encode()
        for partition in range(PARTITIONS):
            self.append(f"t.{name}", partition, (key, b"{}", pos, b"t", b"1"))
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
        return {shape.topic: {p: self._end(shape.topic, p) for p in range(PARTITIONS)} for shape in SHAPES}

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
        partition, key = self.chance.randrange(PARTITIONS), orjson.dumps({"id": self.chance.randint(1, 4)})
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
        self.append(topic, partition, one)
        self.strangers.add(one)

    def ask(self, topic: str, keys: Iterable[bytes]) -> AskedKeys:
        """Somebody wants documents once more, and asks for what is no key at all beside them."""
        texts = [*(key.decode() for key in keys), '{"other":1}', "no key", "3"]
        wish = AskedKeys(topic=topic, id=f"{self.chance.random()}", keys=texts)
        self.input.state[wish.key()] = wish.to_json()
        return wish

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
        self.append(f"t.{name}", partition_of(encoded, PARTITIONS), change)

    def append(self, topic: str, partition: int, change: Change) -> None:
        """One record, at the end of a partition."""
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


def swept(topic: MemoryViewTopic) -> int:
    """How many builds have written their mark."""
    marks = [one for records in topic.records.values() for one in records if dict(one.headers)["op"] == b"t"]
    return len(marks) // PARTITIONS


def whole_at(topic: MemoryViewTopic) -> Fence | None:
    """The claim, where no document is newer: then all of them together are the view at that LSN."""
    positions = [dict(record.headers)["pos"] for records in topic.records.values() for record in records]
    claim = topic.claims[-1] if topic.claims else None
    newer = claim is not None and any(fence_at(Position.parse(pos.decode())) > claim for pos in positions)
    return None if newer else claim


@dataclass
class Runner:
    """A view's runner that is started anew after each kill. ``shapes``: of the history's tables. ``generation``,
    ``above``: of the view, and of what others have published."""

    sql: str
    history: History
    folder: Path
    topic: MemoryViewTopic = field(default_factory=MemoryViewTopic)
    bulk: int = 1000
    shapes: tuple[TableSchema, ...] = SHAPES
    generation: int = 1
    above: Fence = BEFORE_ALL
    _open: tuple[ViewRunner, ViewState] | None = None

    def start(self) -> None:
        """Open the state that is there, and begin."""
        plan = plan_of(self.sql, self.shapes)
        state = ViewState(self.folder / "state", plan, self.generation)
        records = ViewRecords(plan, "v", f"t.view.v.{self.generation}", PARTITIONS, name="t", database="d")
        output: ViewOutput = SilentOutput()
        if self.above != NEVER:
            output = MemoryViewOutput(self.topic, self._maybe, self._maybe)
        topics = {shape.table: shape.topic for shape in self.shapes if shape.table in plan.relations}
        topic_id = self.topic.topic_id
        parts = KeeperParts(
            plan, state, self.history.input, output, records, topics, topic_id=topic_id, above=self.above
        )
        keeper = ViewRunner(parts, clock=self.history.clock, piece=2, bulk=self.bulk)
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
    def keeper(self) -> ViewRunner | None:
        """The one that runs."""
        return None if self._open is None else self._open[0]

    @property
    def opened(self) -> tuple[ViewRunner, ViewState]:
        """The one that runs, and its state."""
        assert self._open is not None
        return self._open

    @property
    def prepared(self) -> bool:
        """Whether it lives, and its state has everything."""
        return self._open is not None and self._open[0].prepared

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


def interfere(runner: Runner, chance: random.Random) -> bool:
    """Sometimes: an end, a copy of the state, the copy put back, the state deleted. Returns whether the state is an
    older one now, or none."""
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
    return what in (2, 3)
