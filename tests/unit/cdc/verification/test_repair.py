"""A repair beside a sink: whatever comes first, the store ends up as the source is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.clock import ManualClock
from cdc.process.errors import SourceError
from cdc.record.position import Position
from cdc.record.schema import Column, TableSchema
from cdc.record.topic_names import TableName
from cdc.verification.ports import Cut, RepairRow, VerifiedTable
from cdc.verification.repair import Repaired, record_key, repair
from cdc.verification.result import Kind, StoreVerdict, VerificationReport
from connectors.operate.verify import StoreRepair
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import StoredRow
from tests.unit.cdc.verification.test_rounds import SHAPE, TABLE


@dataclass
class Change:
    lsn: int
    key: int
    total: str | None


@dataclass
class Source:
    """A history of single changes; a cut may see commits that lie behind its ``settled``."""

    changes: list[Change] = field(default_factory=list)
    ahead: int = 0
    certain: bool = True
    cuts: int = 0
    _seen: dict[str, RepairRow] = field(default_factory=dict)

    def cut(self) -> Cut:
        self.cuts += 1
        settled = self.changes[-1 - self.ahead].lsn + 1 if len(self.changes) > self.ahead else 8
        self._seen = {str(key): row for key, row in self.state().items()}
        return Cut(fence=settled + 1000, settled=settled, certain=self.certain)

    def state(self) -> dict[int, RepairRow]:
        rows: dict[int, RepairRow] = {}
        for change in self.changes:
            rows.pop(change.key, None)
            if change.total is not None:
                rows[change.key] = record(change.key, change.total)
        return rows

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        for key in keys:
            if key in self._seen:
                yield {key: self._seen[key], "another": record(99, "0")}


def record(key: int, total: str) -> RepairRow:
    return RepairRow(orjson.dumps({"id": key}), orjson.dumps({"id": key, "total": total}))


def damaged(*keys: str) -> VerificationReport:
    verdict = StoreVerdict(sink="cache", table=SHAPE.table)
    for key in keys:
        verdict.add(Kind.STALE, key)
    return VerificationReport(verdicts=[verdict], fence=0, looks=1)


def deliver(memory: MemoryStore, change: Change) -> None:
    """A sink applies a change."""
    row = record(change.key, change.total or "")
    one = row if change.total is not None else row._replace(after=None)
    StoreRepair(memory.open()).put(SHAPE, Position(1, change.lsn, 1).text(), [one])


def shown(memory: MemoryStore) -> dict[int, RepairRow]:
    return {
        int(key): RepairRow(orjson.dumps({"id": int(key)}), stored.row)
        for key, stored in memory.table(SHAPE.table).items()
        if stored.row is not None
    }


@given(st.integers(0, 2**32))
def test_h93_any_delivery_around_a_repair_ends_as_the_source(seed: int) -> None:
    chance = random.Random(seed)
    source, memory = Source(), MemoryStore()
    for number in range(chance.randrange(1, 12)):
        total = None if chance.random() < 0.3 else str(number)
        source.changes.append(Change(8 * (number + 1), chance.randrange(4), total))
    reached = chance.randrange(len(source.changes) + 1)
    for change in source.changes[:reached]:
        deliver(memory, change)
    # The damage: rows lost, rows that are not there, rows with other values, all with positions of the past.
    rows = memory.table(SHAPE.table)
    for key in [k for k in rows if chance.random() < 0.5]:
        del rows[key]
    past = Position(1, chance.randrange(8 * reached + 1), 1).text()
    for damaged_key in range(5):
        if chance.random() < 0.5:
            StoreRepair(memory.open()).put(SHAPE, past, [record(damaged_key, "wrong")])
    later = source.changes[reached:]
    early = chance.randrange(len(later) + 1)
    source.ahead = chance.randrange(len(later) + 1) if later else 0
    for change in later[:early]:
        deliver(memory, change)
    repair(
        source,
        {"cache": StoreRepair(memory.open())},
        {SHAPE.table: TABLE},
        damaged(*map(str, range(5))),
        epoch=1,
        clock=ManualClock(),
    )
    # What had been delivered may come once more.
    for change in source.changes[chance.randrange(reached + 1) :]:
        deliver(memory, change)
    assert shown(memory) == source.state()


def test_h101_a_future_version_is_removed_before_the_cut() -> None:
    source, memory = Source([Change(8, 1, "1")]), MemoryStore()
    future = Position(1, 8_000, 1).text()
    StoreRepair(memory.open()).put(SHAPE, future, [record(1, "wrong"), record(2, "ghost")])
    # The store ignores a change in favour of the row of the future; it is committed, so the cut has to have it.
    change = Change(16, 1, "2")
    deliver(memory, change)
    seen: list[dict[int, RepairRow]] = []

    class Late(Source):
        def cut(self) -> Cut:
            seen.append(shown(memory))
            return super().cut()

    report = damaged()
    for key in ("1", "2"):
        report.verdicts[0].add(Kind.AHEAD, key, future)
    late = Late([*source.changes, change])
    (done,) = mend(late, memory, report)
    assert (done.written, done.deleted) == (1, 1)
    assert shown(memory) == {1: record(1, "2")}
    assert seen[-1] == {}, "the last cut is made behind the removal"
    deliver(memory, Change(24, 1, "3"))
    assert shown(memory) == {1: record(1, "3")}


def test_h101_what_has_moved_on_since_is_not_taken_away() -> None:
    source, memory = Source([Change(8, 1, "1"), Change(9_000, 1, "2")]), MemoryStore()
    deliver(memory, source.changes[1])
    report = damaged()
    report.verdicts[0].add(Kind.AHEAD, "1", Position(1, 8_000, 1).text())
    mend(source, memory, report)
    assert shown(memory) == {1: record(1, "2")}


def test_h101_a_key_that_is_none_of_the_table_s_is_taken_away() -> None:
    source, memory = Source([Change(8, 1, "1")]), MemoryStore()
    deliver(memory, source.changes[0])
    memory.table(SHAPE.table)["x:y"] = StoredRow(key="x:y", pos="", row=b"{}")
    report = damaged()
    report.verdicts[0].add(Kind.EXTRA, "x:y", "")
    (done,) = mend(source, memory, report)
    assert done.unread == ["x:y"]
    assert list(memory.table(SHAPE.table)) == ["1"]


def test_h93_a_repair_writes_no_higher_than_the_cut_surely_has() -> None:
    """A change between there and the fence may be missing in the cut: at the fence it would be written over."""
    source, memory = Source([Change(8, 1, "1"), Change(16, 1, "2")], ahead=1), MemoryStore()
    mend(source, memory, damaged("1"))
    [held] = memory.table(SHAPE.table).values()
    assert held.pos == Position(1, 9, 0).text()
    deliver(memory, source.changes[1])
    assert shown(memory) == {1: record(1, "2")}


def mend(source: Source, memory: MemoryStore, report: VerificationReport) -> list[Repaired]:
    targets = {"cache": StoreRepair(memory.open())}
    return repair(source, targets, {SHAPE.table: TABLE}, report, epoch=1, clock=ManualClock())


def test_nothing_is_written_from_a_cut_that_may_lack_a_commit() -> None:
    source, memory = Source([Change(8, 1, "1")], certain=False), MemoryStore()
    with pytest.raises(SourceError, match="stays open"):
        repair(
            source, {"cache": StoreRepair(memory.open())}, {SHAPE.table: TABLE}, damaged("1"), epoch=1,
            clock=ManualClock(),
        )  # fmt: skip
    assert source.cuts == 5
    assert shown(memory) == {}


def test_it_says_what_it_wrote_deleted_and_could_not() -> None:
    source, memory = Source([Change(8, 1, "1"), Change(16, 2, "2")]), MemoryStore(refuse=frozenset({"2"}))
    (done,) = repair(
        source, {"cache": StoreRepair(memory.open())}, {SHAPE.table: TABLE}, damaged("1", "2", "3", "x:y"), epoch=1,
        clock=ManualClock(),
    )  # fmt: skip
    assert (done.written, done.deleted, len(done.refused), done.unread) == (1, 1, 1, ["x:y"])
    assert done.document() == {
        "sink": "cache", "table": str(SHAPE.table), "written": 1, "deleted": 1, "refused": done.refused,
        "unread": ["x:y"], "recomputed": 0,
    }  # fmt: skip


def test_what_it_prints_is_short_and_in_order() -> None:
    done = Repaired(sink="cache", table=SHAPE.table, refused=["b", "a", "b"], unread=[str(n) for n in range(9)])
    document = done.document()
    assert (document["written"], document["deleted"]) == (0, 0)
    assert (document["refused"], document["unread"]) == (["a", "b"], ["0", "1", "2", "3", "4"])


def test_a_report_without_differences_asks_for_nothing() -> None:
    source = Source([Change(8, 1, "1")])
    assert repair(source, {}, {}, damaged(), epoch=1, clock=ManualClock()) == []
    assert source.cuts == 0


def keyed(*kinds: str) -> TableSchema:
    columns = tuple(
        Column(name=f"k{n}", attnum=n + 1, type=kind, type_oid=1, kind=kind, nullable=False, key_position=n)
        for n, kind in enumerate(kinds)
    )
    return replace(SHAPE, columns=columns)


@pytest.mark.parametrize(
    ("kinds", "key", "expected"),
    [
        (("int8",), "-5", b'{"k0":-5}'),
        (("text", "int4"), "a%3Ab%25:7", b'{"k0":"a:b%","k1":7}'),
        (("bool",), "true", b'{"k0":true}'),
        (("uuid",), "0-1", b'{"k0":"0-1"}'),
        (("numeric",), "1.10", b'{"k0":"1.10"}'),
        (("float8",), "1.5", b'{"k0":1.5}'),
        (("float8",), "NaN", b'{"k0":"NaN"}'),
        (("int8",), "007", None),
        (("int8",), "a", None),
        (("int8",), "1:2", None),
    ],
)
def test_a_store_key_is_the_key_of_a_record_or_of_none(
    kinds: tuple[str, ...], key: str, expected: bytes | None
) -> None:
    assert record_key(keyed(*kinds), key) == expected


@pytest.mark.parametrize(
    ("kinds", "key", "expected"),
    [
        (("int8",), "%null", b'{"k0":null}'),
        (("text", "text"), "%null:%25null", b'{"k0":null,"k1":"%null"}'),
        ((), "all", b"{}"),
        ((), "", None),
        ((), "x", None),
    ],
)
def test_v13_a_store_key_of_a_view_is_the_key_of_a_record(
    kinds: tuple[str, ...], key: str, expected: bytes | None
) -> None:
    shape = keyed(*kinds)
    columns = tuple(replace(column, nullable=True) for column in shape.columns)
    assert record_key(replace(shape, table=TableName("view", "groups"), columns=columns), key) == expected


def test_by_offsets_the_next_record_of_a_key_wins() -> None:
    """A row is written at the position that the store has, and a missing one below all that its partition can bring."""
    source, memory = Source([Change(8, 1, "1"), Change(16, 2, "2")]), MemoryStore()
    stood, next_record = Position(0, 40 << 3, 1).text(), Position(0, 43 << 3, 1).text()
    repairing = StoreRepair(memory.open())
    repairing.put(SHAPE, stood, [record(1, "wrong"), record(3, "gone")])
    report = damaged()
    for key, kind, pos in (("1", Kind.STALE, stood), ("2", Kind.MISSING, None), ("3", Kind.EXTRA, stood)):
        report.verdicts[0].add(kind, key, pos)
    lowest = Position(0, 42 << 3, 1).text()
    [done] = repair(
        source, {"cache": repairing}, {SHAPE.table: TABLE}, report, epoch=1, clock=ManualClock(),
        lowest={("cache", SHAPE.topic): lowest},
    )  # fmt: skip
    assert (done.written, done.deleted) == (2, 1)
    assert shown(memory) == {1: record(1, "1"), 2: record(2, "2")}
    held = memory.table(SHAPE.table)
    assert (held["1"].pos, held["2"].pos, held["3"].pos) == (stood, lowest, stood)
    repairing.put(SHAPE, next_record, [record(1, "later"), record(2, "later")])
    assert shown(memory) == {1: record(1, "later"), 2: record(2, "later")}
