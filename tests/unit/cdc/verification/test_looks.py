"""How often each side is looked at, what is said meanwhile, and which keys a later look still counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cdc.process.clock import ManualClock
from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.verification import passes
from cdc.verification.passes import verify
from cdc.verification.ports import VerifiedTable
from cdc.verification.result import Kind, VerificationReport
from cdc.verification.spool import Spool, differences
from tests.unit.cdc.verification.test_rounds import (
    SHAPE,
    TABLE,
    Silent,
    Source,
    Store,
    Twice,
    Version,
    at,
    compare,
    row,
)


@dataclass
class Counting(Source):
    """A source that counts how often it is read whole, and remembers which keys it was asked for."""

    whole: int = 0
    asked: list[Sequence[str]] = field(default_factory=list)

    def rows(self, table: VerifiedTable) -> Iterator[tuple[Sequence[str], Sequence[bytes]]]:
        self.whole += 1
        return super().rows(table)

    def rows_of(self, table: VerifiedTable, keys: Sequence[str]) -> dict[str, bytes]:
        self.asked.append(list(keys))
        return super().rows_of(table, keys)


@dataclass
class Told:
    """What a person at a terminal is told of."""

    read: list[tuple[str, TableName, int]] = field(default_factory=list)
    looks: list[tuple[int, int]] = field(default_factory=list)

    def reading(self, side: str, table: TableName, rows: int) -> None:
        self.read.append((side, table, rows))

    def looking(self, look: int, keys: int) -> None:
        self.looks.append((look, keys))


def compared(
    source: Source, stores: Mapping[str, Store], watch: Told | Silent, *, table: VerifiedTable = TABLE
) -> tuple[VerificationReport, float]:
    """The report, and how many seconds were waited."""
    clock = ManualClock(now_ns=0)
    tables = {name: [table] for name in stores}
    report = verify(source, stores, tables, epoch=1, reached=lambda cut: None, clock=clock, watch=watch)
    return report, clock.monotonic()


def moving(store: Store) -> Callable[[Source], None]:
    """Other sessions that change row 1 at every look, and it is in the store at once."""

    def write(source: Source) -> None:
        source.held["1"] = row(1, str(source.cuts))
        store.versions["1"] = at(source.lsn + 8, row(1, str(source.cuts)))
        source.lsn += 64

    return write


def test_a_key_that_never_rests_is_given_up_after_8_looks() -> None:
    store = Store({"1": at(8, row(1, "0"))})
    report, waited = compared(Source({"1": row(1, "0")}, meanwhile=moving(store)), {"cache": store}, Silent())
    assert (report.looks, report.undecided, report.differences) == (8, 1, 0)
    assert waited == 0.25 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8), "each pause is longer than the last"


def test_one_restless_store_is_waited_for_beside_a_sound_one() -> None:
    sound, wrong = Store({"1": at(8, row(1, "1"))}), Store({"1": at(8, row(1, "0"))})
    report, waited = compared(Source({"1": row(1, "1")}), {"sound": sound, "wrong": wrong}, Silent())
    assert [verdict.differences for verdict in report.verdicts] == [0, 1]
    assert (report.looks, waited) == (2, 0.25)


def test_where_nothing_is_open_nothing_is_waited_for() -> None:
    report, waited = compared(Source({"1": row(1, "1")}), {"cache": Store({"1": at(8, row(1, "1"))})}, Silent())
    assert (report.looks, waited) == (1, 0)


def test_without_a_table_the_source_is_not_looked_at() -> None:
    source = Source({"1": row(1, "1")})
    report = verify(source, {"cache": Store({})}, {"cache": []}, epoch=1, reached=lambda cut: None,
                    clock=ManualClock(), watch=Silent())  # fmt: skip
    assert (source.cuts, report.looks, report.reached) == (0, 0, "0/0")


def test_what_is_read_and_looked_at_again_is_told() -> None:
    told = Told()
    source = Source({str(number): row(number, "1") for number in range(1, 4)})
    store = Store({"1": at(8, row(1, "1")), "2": at(8, row(2, "0"))})
    compared(source, {"cache": store}, told)
    assert told.read == [("source", SHAPE.table, 3), ("cache", SHAPE.table, 2)]
    assert told.looks == [(1, 0), (2, 2)], "the first look is at every row, the second at the two that differed"


def test_the_source_is_read_whole_once_and_then_by_keys() -> None:
    source = Counting({"1": row(1, "1"), "2": row(2, "2")}, certain=False)
    stores = {"one": Store({"1": at(8, row(1, "0"))}), "other": Store({"2": at(8, row(2, "2"))})}
    report, _ = compared(source, stores, Silent())
    assert [verdict.differences for verdict in report.verdicts] == [2, 1]
    assert source.whole == 1
    assert source.asked == [["1", "2"], ["1", "2"]], "each key once, whichever stores differ in it"


def test_as_many_keys_as_are_looked_up_are_looked_up() -> None:
    source = Counting({str(number): row(number, "1") for number in range(passes.KEYED_LOOK_KEYS)})
    report = compare(source, Store({}))
    assert report.verdicts[0].counts[Kind.MISSING] == passes.KEYED_LOOK_KEYS
    assert source.whole == 1
    assert [len(keys) for keys in source.asked] == [passes.KEYED_LOOK_KEYS]


def test_a_row_written_at_the_cut_itself_proves_nothing_yet() -> None:
    """A repair writes at just the LSN that its cut surely holds: the next cut may not have what came there."""
    store = Store({"1": at(8, row(1, "0"))})

    def written(source: Source) -> None:
        if source.cuts == 2:
            store.versions["1"] = Version(Position(1, source.lsn - 8, 0).text(), row(1, "0"))

    report = compare(Source({"1": row(1, "1")}, meanwhile=written), store)
    assert (report.differences, report.looks) == (1, 3), "a third look, behind it, counts it"


def test_h101_a_row_of_the_future_counts_when_it_is_equal() -> None:
    store = Store({"1": at(8, row(1, "0"))})

    def future(source: Source) -> None:
        if source.cuts == 2:
            store.versions["1"] = at(90_000, row(1, "1"))

    verdict = compare(Source({"1": row(1, "1")}, meanwhile=future), store).verdicts[0]
    assert verdict.keys[Kind.AHEAD] == ["1"]
    assert verdict.differences == 1


def test_h101_a_wrong_row_at_the_sources_end_is_stale() -> None:
    held = Position(1, 1008, 0xFFFFFFFF).text()
    source = Source({"1": row(1, "1")}, lsn=1000)
    verdict = compare(source, Store({"1": Version(held, row(1, "0"))})).verdicts[0]
    assert (verdict.counts[Kind.AHEAD], verdict.keys[Kind.STALE]) == (0, ["1"])


def test_a_key_read_twice_may_be_gone_when_it_is_asked_for() -> None:
    class Gone(Twice):
        def get(self, schema: TableSchema, key: str) -> Version | None:
            return None

    held = {"1": at(8, row(1, "1")), "2": at(8, row(2, "0"))}
    source = Source({"1": row(1, "1"), "2": row(2, "2")})
    verdict = compare(source, Gone(held, dict(held), several=False)).verdicts[0]
    assert {kind: keys for kind, keys in verdict.keys.items() if keys} == {Kind.MISSING: ["2"]}
    assert verdict.differences == 1, "the first row was met again, and as it should be"


def test_h101_of_two_rows_of_a_key_one_ahead_counts(tmp_path: Path) -> None:
    past, future = Position(1, 8, 1).text(), Position(1, 9_000, 1).text()
    with Spool(tmp_path, "a", 1) as source, Spool(tmp_path, "b", 1) as store:
        source.add(["1", "2"], [b"right", b"right"])
        store.add(["1", "1", "2", "2"], [b"wrong"] * 4, [past, future, future, past])
        source.finish()
        store.finish()
        found = sorted(differences(source, store, Position(1, 1_000, 1).text()), key=lambda one: one.key)
    assert [(one.key, one.kind, one.pos, one.twice) for one in found] == [
        ("1", Kind.AHEAD, future, True),
        ("2", Kind.AHEAD, future, True),
    ]


def test_without_a_ceiling_no_position_is_ahead(tmp_path: Path) -> None:
    with Spool(tmp_path, "a", 1) as source, Spool(tmp_path, "b", 1) as store:
        source.add(["1", "2"], [b"right", b"right"])
        store.add(["1", "2"], [b"wrong", b"right"], [Position(9, 9_000, 1).text()] * 2)
        source.finish()
        store.finish()
        assert [(one.key, one.kind) for one in differences(source, store)] == [("1", Kind.STALE)]


def test_a_table_compared_in_all_columns_is_not_named() -> None:
    report = compare(Source({"1": row(1, "1")}), Store({"1": at(8, row(1, "1"))}))
    assert report.document()["columns_not_compared"] == {}


def by_offset(offset: int, value: bytes | None) -> Version:
    return Version(Position(0, (offset + 1) << 3, 1).text(), value)


def compared_by_offsets(source: Source, store: Store) -> VerificationReport:
    stores = {"cache": store}
    return verify(
        source, stores, {"cache": [TABLE]}, epoch=None, reached=lambda cut: None, clock=ManualClock(), watch=Silent()
    )


def test_by_offsets_a_row_that_stands_still_and_differs_counts() -> None:
    """Of another value, missing, or of a row that is gone: at the second look, behind a cut that is later."""
    source = Source({"1": row(1, "1"), "2": row(2, "2"), "3": row(3, "3")})
    store = Store({"1": by_offset(4, row(1, "1")), "2": by_offset(5, row(2, "old")), "9": by_offset(6, row(9, "x"))})
    report = compared_by_offsets(source, store)
    [verdict] = report.verdicts
    assert (report.looks, verdict.undecided) == (2, 0)
    assert sorted(verdict.differing) == ["2", "3", "9"]


def test_by_offsets_a_row_that_moves_is_undecided() -> None:
    store = Store({"1": by_offset(4, row(1, "0")), "2": by_offset(5, row(2, "2"))})

    def write(source: Source) -> None:
        source.held["1"] = row(1, str(source.cuts))
        store.versions["1"] = by_offset(10 + source.cuts, row(1, str(source.cuts)))

    [verdict] = compared_by_offsets(Source({"1": row(1, "0"), "2": row(2, "2")}, meanwhile=write), store).verdicts
    assert (verdict.undecided, list(verdict.differing)) == (1, [])


def test_by_offsets_a_row_that_comes_to_rest_is_equal() -> None:
    """As one that is sent again after a worker's restart: older versions show for a while."""
    store = Store({"1": by_offset(4, row(1, "old"))})

    def write(source: Source) -> None:
        store.versions["1"] = by_offset(4 + source.cuts, row(1, "old" if source.cuts < 3 else "1"))

    [verdict] = compared_by_offsets(Source({"1": row(1, "1")}, meanwhile=write), store).verdicts
    assert (verdict.undecided, list(verdict.differing)) == (0, [])
