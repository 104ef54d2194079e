"""How a repair goes about it: what it takes away, in how many rows at once it writes, and how long it waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson
import pytest

from cdc.process.clock import ManualClock
from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.verification.ports import Cut, RepairRow, VerifiedTable
from cdc.verification.repair import Repaired, certain_cut, record_key, repair
from cdc.verification.result import Kind, StoreVerdict, VerificationReport
from tests.unit.cdc.verification.test_repair import keyed
from tests.unit.cdc.verification.test_rounds import SHAPE, TABLE

LOT_BYTES = 32 * 1024**2
"""A lot of rows is written once it has so many bytes, keys and rows together."""


@dataclass
class Rows:
    """A source of rows by key. The first ``uncertain`` cuts prove nothing."""

    held: Mapping[str, bytes] = field(default_factory=dict)
    uncertain: int = 0
    cuts: int = 0

    def cut(self) -> Cut:
        self.cuts += 1
        return Cut(fence=2000, settled=1000 + self.cuts, certain=self.cuts > self.uncertain)

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        for key in keys:
            if key in self.held:
                yield {key: RepairRow(key_of(key), self.held[key])}


@dataclass
class Written:
    """A store that remembers what it was asked for."""

    lots: list[int] = field(default_factory=list)
    rows: dict[str, bytes | None] = field(default_factory=dict)
    positions: set[str] = field(default_factory=set)
    removed: list[Mapping[str, str]] = field(default_factory=list)

    def put(self, shape: TableSchema, pos: str, rows: Sequence[RepairRow]) -> Sequence[str]:
        self.lots.append(len(rows))
        self.positions.add(pos)
        self.rows |= {str(orjson.loads(row.key)["id"]): row.after for row in rows}
        return []

    def remove(self, shape: TableSchema, versions: Mapping[str, str]) -> None:
        self.removed.append(dict(versions))


def key_of(key: str) -> bytes:
    return orjson.dumps({"id": int(key)})


def found(*differences: tuple[Kind, str, str | None]) -> VerificationReport:
    verdict = StoreVerdict(sink="cache", table=SHAPE.table)
    for kind, key, pos in differences:
        verdict.add(kind, key, pos)
    return VerificationReport(verdicts=[verdict], fence=0, looks=1)


def lacking(keys: Sequence[str]) -> VerificationReport:
    return found(*((Kind.MISSING, key, None) for key in keys))


def repaired(source: Rows, store: Written, report: VerificationReport) -> Repaired:
    (done,) = repair(source, {"cache": store}, {SHAPE.table: TABLE}, report, epoch=1, clock=ManualClock())
    return done


def test_each_pause_of_a_repair_is_a_second_longer() -> None:
    waited = []
    for uncertain in range(4):
        clock = ManualClock(now_ns=0)
        assert certain_cut(Rows(uncertain=uncertain), clock).certain
        waited.append(clock.monotonic())
    assert waited == [0, 1, 3, 6]


def test_versions_of_the_past_stay_and_one_cut_is_enough() -> None:
    source, store = Rows({"1": b"{}"}), Written()
    past = Position(1, 8, 1).text()
    done = repaired(source, store, found((Kind.STALE, "1", past), (Kind.EXTRA, "2", past)))
    assert store.removed == []
    assert source.cuts == 1
    assert store.rows == {"1": b"{}", "2": None}
    assert store.positions == {Position(1, 1001, 0).text()}
    assert (done.written, done.deleted) == (1, 1)


def test_rows_of_somebody_else_and_of_the_future_go_first() -> None:
    source, store = Rows({"1": b"{}", "2": b"{}", "3": b"{}"}), Written()
    past, future = Position(1, 8, 1).text(), Position(1, 8000, 1).text()
    repaired(source, store, found((Kind.STALE, "1", ""), (Kind.AHEAD, "2", future), (Kind.STALE, "3", past)))
    assert store.removed == [{"1": "", "2": future}]
    assert source.cuts == 2
    assert store.positions == {Position(1, 1002, 0).text()}, "the rows are those of the cut behind the removal"


def test_a_key_of_another_table_goes_at_the_position_it_has() -> None:
    source, store = Rows({"1": b"{}"}), Written()
    past = Position(1, 8, 1).text()
    done = repaired(source, store, found((Kind.EXTRA, "x:y", past), (Kind.EXTRA, "z", None), (Kind.STALE, "1", past)))
    assert store.removed == [{"x:y": past, "z": ""}]
    assert done.unread == ["x:y", "z"]
    assert (done.written, done.deleted) == (1, 0)


def test_twenty_thousand_rows_are_written_at_once() -> None:
    held = {str(number): b"{}" for number in range(20_002)}
    store = Written()
    done = repaired(Rows(held), store, lacking(list(held)))
    assert store.lots == [20_000, 2]
    assert done.written == 20_002
    assert store.rows == held


@pytest.mark.parametrize(
    ("sizes", "lots"),
    [
        ("whole whole", [2]),
        ("whole short whole", [3]),
        ("whole whole whole whole whole short whole", [2, 2, 3]),
        ("short whole short short whole", [3, 2]),
    ],
)
def test_large_rows_are_written_few_at_a_time(sizes: str, lots: list[int]) -> None:
    """Two whole rows are just a lot. With one of them a byte shorter there is room for another."""
    bytes_of = {"whole": LOT_BYTES // 2 - len(key_of("0")), "short": LOT_BYTES // 2 - len(key_of("0")) - 1}
    rows = {name: b"x" * size for name, size in bytes_of.items()}
    held = {str(number): rows[name] for number, name in enumerate(sizes.split())}
    store = Written()
    done = repaired(Rows(held), store, lacking(list(held)))
    assert store.lots == lots
    assert done.written == len(held)


@pytest.mark.parametrize("key", ["Infinity", "-Infinity"])
def test_an_endless_float_is_the_key_of_a_record(key: str) -> None:
    assert record_key(keyed("float8"), key) == orjson.dumps({"k0": key})


def test_a_row_may_be_called_as_the_one_row_of_a_view_is() -> None:
    assert record_key(keyed("text"), "all") == b'{"k0":"all"}'


def test_an_array_is_the_key_of_a_record() -> None:
    shape = keyed("int4")
    shape = replace(shape, columns=tuple(replace(column, array=True) for column in shape.columns))
    assert record_key(shape, "[1,null,3]") == b'{"k0":[1,null,3]}'
    assert record_key(shape, "[1, 3]") is None, "the stores have no key of that form"
