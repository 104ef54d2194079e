"""Histories of tables as Debezium writes them, looked at in the middle of transactions, and runners over them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from cdc.position import SNAPSHOT_SEQ, Position
from cdc.topic import partition_of
from cdc.views.eager import ShownLsns, TopicsReach
from cdc.views.fences import Fence
from cdc.views.keeper import Keeper, KeeperParts
from cdc.views.memory_views import MemoryEagerInput, MemoryEagerOutput
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecords
from cdc.views.view_state import ViewState
from tests.unit.cdc.views.view_histories import PARTITIONS, SHAPES, History, Runner


def _input() -> MemoryEagerInput:
    return MemoryEagerInput({shape.topic: shape for shape in SHAPES})


@dataclass
class EagerHistory(History):
    """All changes of a transaction have one position, one below where the commit before it ended."""

    eager: MemoryEagerInput = field(default_factory=_input)
    epoch: int = 1

    def __post_init__(self) -> None:
        self.input = self.eager

    def _write(self, name: str, key: int, row: dict[str, int | None] | None, seq: int) -> None:
        self._written(name, key, row, Position(self.epoch, self.lsn - 1, 0))

    def _written(self, name: str, key: int, row: dict[str, int | None] | None, pos: Position) -> None:
        encoded = orjson.dumps({"id": key})
        value = None if row is None else orjson.dumps({"before": None, "after": row})
        op = b"d" if row is None else b"u"
        place = partition_of(encoded, PARTITIONS)
        self.append(f"t.{name}", place, (encoded, value, pos.text().encode(), op, b"1"))

    def truncate(self) -> None:
        """A table is emptied: one record, in any partition."""
        self.lsn += 8
        name = self.chance.choice(["lines", "customers"])
        self.rows[name] = {}
        key = orjson.dumps({"__truncate": f"public.{name}"})
        pos = Position(self.epoch, self.lsn - 1, 0).text().encode()
        self.append(f"t.{name}", self.chance.randrange(PARTITIONS), (key, b"{}", pos, b"t", b"1"))

    def progress(self) -> None:
        """A look, while the last records arrive: each partition may end a little earlier than the others."""
        self.look()
        now_ms = self.clock.now_ns() // 1_000_000
        ends = {t: {p: self._cut_off(t, p, end, now_ms) for p, end in of.items()} for t, of in self._ends().items()}
        self._look(ends)

    def _cut_off(self, topic: str, partition: int, end: int, now_ms: int) -> int:
        back = self.chance.randint(0, 2)
        young = sum(self.input.times_ms[topic, partition, at] == now_ms for at in range(max(0, end - back), end))
        return end - young

    def look(self) -> None:
        """A look at all that there is."""
        self._look(self._ends())

    def _look(self, ends: dict[str, dict[int, int]]) -> None:
        self.input.progress_ms = self.clock.now_ns() // 1_000_000
        self.eager.looked = TopicsReach(epoch=self.epoch, lsn=self.lsn - 8, offsets=ends)

    def next_epoch(self) -> TopicsReach:
        """The connector has lost its offsets, and reads its tables again: rows that are gone meanwhile are not read."""
        begun = self._ends()
        for rows in self.rows.values():
            for key in list(rows):
                if self.chance.random() < 0.4:
                    del rows[key]
        self.epoch += 1
        self.lsn = 8
        for name, rows in self.rows.items():
            for key, row in rows.items():
                self._written(name, key, row, Position(self.epoch, 0, SNAPSHOT_SEQ))
        return TopicsReach(
            epoch=self.epoch, offsets=self._ends(), settled=False, begun=dict.fromkeys(range(1, self.epoch), begun)
        )


@dataclass
class EagerRunner(Runner):
    """A runner over such a history."""

    def start(self) -> None:
        """Open the state that is there, and begin."""
        plan = planned(self.sql, self.shapes)
        state = ViewState(self.folder / "state", plan, 1)
        records = ViewRecords(plan, "v", "t.view.v.1", PARTITIONS, name="t", database="d")
        output = MemoryEagerOutput(self.topic, self._maybe, self._maybe)
        source = self.history.input
        assert isinstance(source, MemoryEagerInput)
        topics = {shape.table: shape.topic for shape in self.shapes if shape.table in plan.relations}
        source.kept, source.topics, source.shown = state, topics, ShownLsns()
        parts = KeeperParts(plan, state, source, output, records, topics)
        keeper = Keeper(parts, clock=self.history.clock, piece=2, bulk=self.bulk)
        self._open = keeper, state
        keeper.begin()

    def until_all(self) -> Fence:
        """Go on, without kills, until all that the topics hold now is published."""
        self.kill_chance = 0.0
        history = self.history
        assert isinstance(history, EagerHistory)
        history.look()
        for _ in range(200):
            self.turn()
            if self.level:
                return self.topic.claims[-1]
        raise AssertionError("the view never comes level")

    def versions(self) -> dict[bytes, list[str]]:
        """The positions of each document's records, in their order."""
        found: dict[bytes, list[str]] = {}
        for records in self.topic.records.values():
            for record in records:
                headers = {name: value.decode() for name, value in record.headers}
                if headers["op"] != "t":
                    found.setdefault(record.key, []).append(headers["pos"])
        return found


def opened(sql: str, folder: Path, seed: int) -> tuple[EagerHistory, EagerRunner]:
    """A history and its runner."""
    history = EagerHistory(random.Random(seed))
    return history, EagerRunner(sql, history, folder)
