"""A verification on doubles of its ports: the wait for a fence, repairs in rounds, what is refused, and kills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson
import pytest

from cdc.cli.verify import conclude
from cdc.process.clock import ManualClock
from cdc.process.errors import ConfigError, DifferenceFound, SinkError
from cdc.record.progress import EpochsState, Watermark
from cdc.record.schema import TableSchema
from cdc.record.state import SlotState, SnapshotState, TopicsState
from cdc.verification.ports import RepairRow, VerificationPorts, VerifiedStore, VerifiedTable
from cdc.verification.result import VerificationReport
from cdc.verification.run import KnownPipeline, Verification, known_of
from tests.killing import Killed, Steps, every_kill
from tests.unit.cdc.verification.test_rounds import TABLE, Silent, Store, Version, at, row
from tests.unit.cdc.verification.test_rounds import Source as ComparedSource

TOPICS = TopicsState(cluster_id="c", tables={"public.orders": "shop.public.orders"})


@dataclass
class Source(ComparedSource):
    """Rows by key, at one cut."""

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        held = {key: RepairRow(orjson.dumps({"id": int(key)}), self.held[key]) for key in keys if key in self.held}
        if held:
            yield held


class Target:
    """Writes into a store; ``stubborn``: keys that it never writes."""

    def __init__(self, store: Store, steps: Steps, stubborn: Sequence[str] = ()) -> None:
        self._store, self._steps, self._stubborn = store, steps, stubborn

    def put(self, shape: TableSchema, pos: str, rows: Sequence[RepairRow]) -> Sequence[str]:
        for one in rows:
            key = str(orjson.loads(one.key)["id"])
            if key not in self._stubborn:
                self._store.versions[key] = Version(pos, one.after)
            self._steps.reach("wrote a row")
        return [f"{key} does not fit" for key in self._stubborn]

    def remove(self, shape: TableSchema, versions: Mapping[str, str]) -> None:
        for key in versions:
            self._store.versions.pop(key, None)


@dataclass
class World:
    """Four rows, of which the store has one wrong, one missing, and one too many."""

    steps: Steps = field(default_factory=Steps)
    stubborn: Sequence[str] = ()
    mark: Watermark | None = field(default_factory=lambda: Watermark(epoch=1, lsn=1 << 40))
    kind: str = "postgres"
    fills: bool = True
    table: VerifiedTable = TABLE
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = {str(number): row(number, str(number)) for number in range(1, 5)}
        self.source = Source(rows, lsn=800)
        self.store = Store({key: at(8, value) for key, value in rows.items() if key != "2"})
        self.store.versions |= {"3": at(8, row(3, "wrong")), "9": at(8, row(9, "9"))}

    def read(self) -> Watermark | None:
        return self.mark

    def verification(self) -> Verification:
        over = self.steps.over
        store = VerifiedStore(
            reader=over("reader", self.store),
            watermarks=over("watermarks", self),
            target=over("target", Target(self.store, self.steps, self.stubborn)),
            tables=[TABLE.table],
            fills_lost_tables=self.fills,
        )
        tables = {self.table.table: self.table}
        ports = VerificationPorts(
            source=over("source", self.source),
            stores={"cache": store},
            tables=tables,
            left_out=self.left_out,
        )
        known = KnownPipeline(TOPICS, 1, self.kind)
        return Verification(known, ports, Silent(), ManualClock(), timeout_s=5)

    def rows(self) -> dict[str, bytes]:
        return {key: version.row for key, version in self.store.versions.items() if version.row is not None}


def test_what_differs_is_counted_and_repaired() -> None:
    world, shown = World(), list[int]()
    assert world.verification().compare().differences == 3

    def show(report: VerificationReport) -> None:
        shown.append(report.differences)

    report, (done,) = world.verification().repair_all(show)
    assert (report.differences, shown) == (0, [3])
    assert (done.written, done.deleted) == (2, 1)
    assert world.rows() == world.source.held


def test_a_repair_killed_at_any_step_is_run_again() -> None:
    def run(steps: Steps) -> object:
        return World(steps=steps).verification().repair_all(lambda report: None)

    count = 0
    for steps in every_kill(run):
        world = World(steps=steps)
        with pytest.raises(Killed):
            world.verification().repair_all(lambda report: None)
        world.steps = Steps()
        report, _ = world.verification().repair_all(lambda report: None)
        assert report.differences == 0
        assert world.rows() == world.source.held
        count += 1
    assert count > 20


def test_a_repair_that_mends_nothing_more_ends() -> None:
    world = World(stubborn=["2"])
    report, done = world.verification().repair_all(lambda report: None)
    assert report.differences == 1
    assert done[-1].refused == ["2 does not fit"]
    assert len(done) == 2


def test_a_store_that_does_not_reach_the_fence_is_not_compared() -> None:
    with pytest.raises(SinkError, match="no comparison: cache has no watermark yet"):
        World(mark=None).verification().compare()
    with pytest.raises(SinkError, match="no comparison: cache stands at 0/1"):
        World(mark=Watermark(epoch=1, lsn=1)).verification().compare()


def test_a_store_fed_by_debezium_is_repaired_by_offsets() -> None:
    world = World(kind="debezium", mark=Watermark(epoch=1, lsn=1 << 40, offsets={TABLE.shape.topic: {0: 9, 1: 5}}))
    report, _ = world.verification().repair_all(lambda report: None)
    assert report.differences == 0
    assert world.rows() == world.source.held


def test_a_warehouse_without_a_row_is_rebuilt_and_not_repaired() -> None:
    world = World(fills=False)
    world.store.versions.clear()
    with pytest.raises(ConfigError, match="cache holds no row of "):
        world.verification().repair_all(lambda report: None)
    whole = World(fills=False)
    assert whole.verification().repair_all(lambda report: None)[0].differences == 0


def test_nothing_is_compared_before_the_first_snapshot_is_done() -> None:
    slot = SlotState(
        epoch=4,
        system_identifier="7",
        timeline=1,
        database="shop",
        database_oid=5,
        slot="s",
        publication="p",
        consistent_point=0,
    )
    snapshot = SnapshotState(epoch=4, state="running", consistent_point=0, last_cut_lsn=0)
    held = {one.key(): one.to_json() for one in (TOPICS, slot)}
    with pytest.raises(ConfigError, match="nothing to compare yet"):
        known_of(held, "postgres")
    with pytest.raises(ConfigError, match="first snapshot is not complete"):
        known_of(held | {snapshot.key(): snapshot.to_json()}, "postgres")
    complete = SnapshotState(epoch=4, state="complete", consistent_point=0, last_cut_lsn=0)
    assert known_of(held | {complete.key(): complete.to_json()}, "postgres").epoch == 4
    epochs = EpochsState(latest=2)
    assert known_of(held | {epochs.key(): epochs.to_json()}, "debezium").epoch == 2


@pytest.mark.parametrize(("kind", "command"), [("postgres", "cdc init"), ("debezium", "cdc connect deploy")])
def test_h154_what_begins_a_pipeline_goes_by_its_kind(kind: str, command: str) -> None:
    with pytest.raises(ConfigError, match="nothing to compare yet") as refused:
        known_of({}, kind)
    assert refused.value.hint.startswith(command)


def test_what_is_not_compared_is_in_the_report_by_name() -> None:
    world = World(table=replace(TABLE, left_out={"f": "not of that kind"}))
    report = world.verification().compare()
    assert report.document()["columns_not_compared"] == {"public.orders": {"f": "not of that kind"}}


def test_h333_what_never_can_be_compared_fails_nothing() -> None:
    world = World(left_out={"view.orders": "its table has masks"})
    report, _ = world.verification().repair_all(lambda report: None)
    assert report.document()["left_out"] == {"view.orders": "its table has masks"}
    conclude(report)
    with pytest.raises(DifferenceFound, match=r"not compared: public\.t"):
        conclude(replace(report, not_compared={"public.t": "it is set aside"}))
