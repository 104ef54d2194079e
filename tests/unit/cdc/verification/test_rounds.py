"""When a difference counts: against a model source and model stores that move while they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.clock import ManualClock
from cdc.record.position import Position
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.verification import passes as rounds
from cdc.verification.passes import verify
from cdc.verification.ports import Cut, VerifiedTable
from cdc.verification.result import Kind, VerificationReport
from sinks.contract.port import STRANGE_ROW
from tests.single_rows import canonical_row

SHAPE = TableSchema(
    table=TableName("public", "orders"),
    topic="shop.public.orders",
    version=1,
    oid=1,
    encoding="readable",
    identity=Identity.DEFAULT,
    columns=(
        Column(name="id", attnum=1, type="integer", type_oid=23, kind="int4", nullable=False, key_position=0),
        Column(name="total", attnum=2, type="numeric", type_oid=1700, kind="numeric"),
    ),
)
TABLE = VerifiedTable(shape=SHAPE, stored=SHAPE, rows=10)

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("key", pa.string()),
    ("pos", pa.string()),
    ("deleted", pa.bool_()),
    ("row", pa.binary()),
]
STORED = pa.schema(_FIELDS)


def row(key: int, total: str) -> bytes:
    return orjson.dumps({"id": key, "total": total})


@dataclass
class Source:
    """Rows by key; ``meanwhile`` runs between a cut and the reading of the stores, as other sessions do."""

    held: dict[str, bytes]
    certain: bool = True
    lsn: int = 1000
    meanwhile: Callable[[Source], None] = lambda source: None
    cuts: int = 0
    _cut: dict[str, bytes] = field(default_factory=dict)

    def cut(self) -> Cut:
        settled = self.lsn
        self._cut = dict(self.held)
        self.lsn += 8
        cut = Cut(fence=self.lsn, settled=settled, certain=self.certain)
        self.cuts += 1
        self.meanwhile(self)
        return cut

    def rows(self, table: VerifiedTable) -> Iterator[tuple[Sequence[str], Sequence[bytes]]]:
        yield list(self._cut), [canonical_row(value, SHAPE) for value in self._cut.values()]

    def insert_lsn(self) -> int:
        return self.lsn

    def rows_of(self, table: VerifiedTable, keys: Sequence[str]) -> dict[str, bytes]:
        return {key: canonical_row(self._cut[key], SHAPE) for key in keys if key in self._cut}


@dataclass(frozen=True)
class Version:
    pos: str
    row: bytes | None


class Store:
    def __init__(self, versions: dict[str, Version]) -> None:
        self.versions = versions

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(
            [{"key": k, "pos": v.pos, "deleted": v.row is None, "row": v.row} for k, v in self.versions.items()],
            schema=STORED,
        )

    def get(self, schema: TableSchema, key: str) -> Version | None:
        return self.versions.get(key)


class Silent:
    def reading(self, side: str, table: TableName, rows: int) -> None: ...

    def looking(self, look: int, keys: int) -> None: ...


def at(lsn: int, value: bytes | None) -> Version:
    return Version(Position(1, lsn, 1).text(), value)


def compare(source: Source, store: Store, table: VerifiedTable = TABLE) -> VerificationReport:
    return verify(
        source,
        {"cache": store},
        {"cache": [table]},
        epoch=1,
        reached=lambda cut: None,
        clock=ManualClock(),
        watch=Silent(),
    )


class Many(Store):
    """A store that answers for many keys at once."""

    def __init__(self, versions: dict[str, Version]) -> None:
        super().__init__(versions)
        self.asked: list[int] = []

    def get(self, schema: TableSchema, key: str) -> Version | None:
        raise AssertionError("asked for one key")

    def get_many(self, schema: TableSchema, keys: Sequence[str]) -> dict[str, Version]:
        self.asked.append(len(keys))
        return {key: self.versions[key] for key in keys if key in self.versions}


def test_differing_keys_are_looked_up_many_at_a_time() -> None:
    count = 600
    source = Source({str(n): row(n, "1") for n in range(count)})
    store = Many({str(n): at(8, row(n, "2")) for n in range(1, count)})
    verdict = compare(source, store).verdicts[0]
    assert verdict.keys[Kind.MISSING] == ["0"]
    assert verdict.differences == count
    assert store.asked == [250, 250, 100]


def test_equal_sides_take_one_look() -> None:
    report = compare(Source({"1": row(1, "1.10")}), Store({"1": at(8, row(1, "1.1")), "2": at(16, None)}))
    assert (report.differences, report.undecided, report.looks) == (0, 0, 1)
    assert (report.verdicts[0].source_rows, report.verdicts[0].store_rows) == (1, 1)


class Twice(Store):
    """A store whose scan gives some keys twice. ``several``: they are two rows, not one that was met again."""

    def __init__(self, versions: dict[str, Version], again: dict[str, Version], *, several: bool) -> None:
        super().__init__(versions)
        self._again = again
        self._several = several

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        yield from super().scan(schema)
        yield from Store(self._again).scan(schema)

    def get(self, schema: TableSchema, key: str) -> Version | None:
        return Version("", STRANGE_ROW) if self._several and key in self._again else super().get(schema, key)


def too_many() -> dict[str, bytes]:
    """Rows that no store has, so many that keys are not looked up and all is read again."""
    return {str(n): row(n, "1") for n in range(1000, 1001 + rounds.KEYED_LOOK_KEYS)}


@pytest.mark.parametrize("keyed", [True, False])
def test_h101_a_key_with_several_rows_is_stale(keyed: bool) -> None:
    held = {str(n): at(8, row(n, "1")) for n in range(1, 6)}
    missing = {} if keyed else too_many()
    source = Source({str(n): row(n, "1") for n in range(1, 5)} | missing)
    again = {"1": held["1"], "2": at(8, row(2, "0")), "5": held["5"]}
    verdict = compare(source, Twice(held, again, several=True)).verdicts[0]
    assert {kind: sorted(keys) for kind, keys in verdict.keys.items() if keys and kind != Kind.MISSING} == {
        Kind.STALE: ["1", "2"],
        Kind.EXTRA: ["5"],
    }
    assert [verdict.positions[key] for key in ("1", "2", "5")] == ["", "", ""]
    assert (verdict.differences, verdict.undecided) == (3 + len(missing), 0)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_key_that_a_scan_meets_again_is_no_difference(keyed: bool) -> None:
    missing = {} if keyed else too_many()
    held = {"1": at(8, row(1, "1")), "2": at(8, row(2, "1")), "3": at(8, row(3, "1"))}
    source = Source({"1": row(1, "1"), "2": row(2, "2")} | missing)
    report = compare(source, Twice(held, dict(held), several=False))
    verdict = report.verdicts[0]
    found = {kind: keys for kind, keys in verdict.keys.items() if keys and kind != Kind.MISSING}
    assert found == {Kind.EXTRA: ["3"], Kind.STALE: ["2"]}
    assert (verdict.differences, verdict.store_rows) == (2 + len(missing), 3)


@pytest.mark.parametrize("certain", [True, False])
def test_each_kind_is_counted_and_named(certain: bool) -> None:
    source = Source({"1": row(1, "1"), "2": row(2, "2"), "5": row(5, "5")}, certain=certain)
    store = Store({"1": at(8, row(1, "1")), "2": at(8, row(2, "0")), "3": at(8, row(3, "3")), "5": at(8, None)})
    verdict = compare(source, store).verdicts[0]
    assert verdict.counts == {Kind.MISSING: 1, Kind.EXTRA: 1, Kind.STALE: 1, Kind.AHEAD: 0, Kind.SHARED: 0}
    assert verdict.keys == {Kind.MISSING: ["5"], Kind.EXTRA: ["3"], Kind.STALE: ["2"], Kind.AHEAD: [], Kind.SHARED: []}


def test_h93_a_key_that_moved_on_is_looked_up_again() -> None:
    store = Store({"1": at(8, row(1, "1"))})

    def write(source: Source) -> None:
        if source.cuts == 1:
            source.held["1"] = row(1, "2")
            store.versions["1"] = at(source.lsn + 8, row(1, "2"))
            source.lsn += 64

    report = compare(Source({"1": row(1, "1")}, meanwhile=write), store)
    assert (report.differences, report.undecided, report.looks) == (0, 0, 2)


def test_h93_a_key_that_moves_at_every_look_is_undecided() -> None:
    store = Store({"1": at(8, row(1, "0"))})

    def write(source: Source) -> None:
        source.held["1"] = row(1, str(source.cuts))
        store.versions["1"] = at(source.lsn + 8, row(1, str(source.cuts)))
        source.lsn += 64

    report = compare(Source({"1": row(1, "0")}, meanwhile=write), store)
    assert (report.differences, report.undecided, report.looks) == (0, 1, rounds.MAX_LOOKS)


def test_a_fault_of_one_look_only_does_not_count() -> None:
    """The store was written between the cut and its reading, at a position the cut cannot tell of."""
    store = Store({"1": at(8, row(1, "wrong"))})

    def heal(source: Source) -> None:
        if source.cuts == 2:
            store.versions["1"] = at(8, row(1, "1"))

    assert compare(Source({"1": row(1, "1")}, meanwhile=heal), store).differences == 0


def test_an_uncertain_cut_needs_a_third_look() -> None:
    wrong = {"1": at(8, row(1, "0"))}
    assert compare(Source({"1": row(1, "1")}, certain=True), Store(dict(wrong))).looks == 2
    assert compare(Source({"1": row(1, "1")}, certain=False), Store(dict(wrong))).looks == 3


def test_too_many_keys_are_read_whole_again_and_counted_once() -> None:
    count = rounds.KEYED_LOOK_KEYS + 7
    report = compare(Source({str(n): row(n, "1") for n in range(count)}), Store({}))
    assert report.verdicts[0].counts[Kind.MISSING] == count
    assert report.looks == 2


@given(
    st.dictionaries(st.integers(0, 30), st.sampled_from("123")),
    st.dictionaries(st.integers(0, 30), st.sampled_from(["1", "2", "3", ""])),
)
def test_at_rest_the_counts_are_exactly_the_differences(left: dict[int, str], right: dict[int, str]) -> None:
    source = Source({str(k): row(k, v) for k, v in left.items()})
    store = Store({str(k): at(8, row(k, v) if v else None) for k, v in right.items()})
    shown = {k: v for k, v in right.items() if v}
    verdict = compare(source, store).verdicts[0]
    assert verdict.counts == {
        Kind.MISSING: len(left.keys() - shown.keys()),
        Kind.EXTRA: len(shown.keys() - left.keys()),
        Kind.STALE: sum(left[k] != shown[k] for k in left.keys() & shown.keys()),
        Kind.AHEAD: 0,
        Kind.SHARED: 0,
    }
    assert (verdict.source_rows, verdict.store_rows) == (len(left), len(shown))


@pytest.mark.parametrize("value", [row(1, "1"), row(1, "0"), None])
def test_h101_a_position_ahead_of_the_source_is_always_wrong(value: bytes | None) -> None:
    source = Source({"1": row(1, "1"), "2": row(2, "2")})
    store = Store({"1": at(5000, value), "2": Version(Position(2, 8, 1).text(), row(2, "2"))})
    report = compare(source, store)
    assert report.verdicts[0].counts[Kind.AHEAD] == report.differences == 2
    assert report.verdicts[0].ahead == {"1", "2"}
    assert (report.undecided, report.looks) == (0, 1)


def test_h101_a_position_at_the_sources_end_is_not_ahead() -> None:
    source = Source({"1": row(1, "1")}, lsn=1000)
    held = Position(1, 1008, 0xFFFFFFFF).text()
    assert compare(source, Store({"1": Version(held, row(1, "1"))})).differences == 0


def test_h101_a_store_that_moves_while_it_is_read_is_not_ahead() -> None:
    store = Store({"1": at(8, row(1, "1"))})

    def write(source: Source) -> None:
        source.lsn += 500
        source.held["1"] = row(1, "2")
        store.versions["1"] = at(source.lsn - 8, row(1, "2"))

    assert compare(Source({"1": row(1, "1")}, meanwhile=write), store).verdicts[0].counts[Kind.AHEAD] == 0


@pytest.mark.parametrize("value", [b"null", b"[]", b"not json", b'{"id":1}', b'{"id":{},"total":[1]}', b'"text"'])
def test_h101_what_somebody_else_put_there_is_counted(value: bytes) -> None:
    report = compare(Source({"1": row(1, "1.5")}), Store({"1": Version("", value), "2": Version("", value)}))
    assert report.verdicts[0].counts == {Kind.STALE: 1, Kind.EXTRA: 1, Kind.MISSING: 0, Kind.AHEAD: 0, Kind.SHARED: 0}
    assert report.verdicts[0].positions == {"1": "", "2": ""}
