"""A quick sample of the experiments on real servers, at every commit; ``make faults`` does it at length."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cdc.stack.local import LocalStack
from tests.conftest import Stack
from tests.faults import points
from tests.faults.experiments import (
    big_transaction,
    broken_links,
    cluster_kills,
    crash_capture,
    crash_sinks,
    crash_snapshot,
    disk_full,
    full_load,
    idle_day,
    large_readings,
    many_tables,
    oversized_field,
    reader_kills,
    sequences,
    wide_table,
)
from tests.faults.experiments.sequences import Sequence
from tests.faults.lab import Found, Lab, Limits
from tests.faults.results import Figures
from tests.faults.row_changes import Change


@pytest.fixture
def seed() -> int:
    """Another one each time; a test that fails shows it."""
    return random.SystemRandom().randrange(1 << 30)


@pytest.fixture
def lab(stack: Stack, tmp_path: Path) -> Lab:
    """On the session's servers; its figures are its own."""
    if not isinstance(stack, LocalStack):
        pytest.skip("the laboratory kills and pauses local processes")
    return Lab(
        name="sample", limits=Limits(seconds=0, seed=0), folder=tmp_path, figures=Figures(), stack_dir=stack.folder
    )


def test_a_test_or_an_experiment_dies_at_every_crash_point() -> None:
    assert points.visited() <= points.declared()
    assert len(points.visited()) >= 40
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [point for point in sorted(points.declared() - points.visited()) if point not in tests] == []


@pytest.mark.slow
def test_h1_h2_h7_h8_h75_h81_capture_dies_at_some_points(lab: Lab, seed: int) -> None:
    some = random.Random(seed).sample(points.CAPTURE, 3)
    crash_capture.one(lab, seed, some)
    assert lab.figures.sums["crashes"] == 3


@pytest.mark.slow
def test_h19_h20_snapshot_dies_once(lab: Lab, seed: int) -> None:
    point = random.Random(seed).choice(points.SNAPSHOT)
    # A cut is taken anew by a run that finds a slot: another has to have died before.
    died = ["slot_recorded"] if point in ("cut_exported", "cut_recorded") else []
    crash_snapshot.one(lab, seed, [*died, point], [])
    assert lab.figures.sums["crashes"] == 1 + len(died)


@pytest.mark.slow
def test_h1_h84_a_sink_dies_once(lab: Lab, seed: int) -> None:
    pick = random.Random(seed)
    store = pick.choice(["cache", "delta", "sql"])
    crash_sinks.one(lab, seed, {store: [pick.choice(points.SINK), pick.choice(points.OF_STORE[store])]})
    assert lab.figures.sums["crashes"] == 2


@pytest.mark.long
@pytest.mark.slow
def test_h19_h20_snapshot_dies_at_some_points(lab: Lab, seed: int) -> None:
    pick = random.Random(seed)
    some = sorted(pick.sample(points.SNAPSHOT, 5), key=points.SNAPSHOT.index)
    crash_snapshot.one(lab, seed, some, pick.sample(points.SNAPSHOT_WORKER, 1))
    assert lab.figures.sums["crashes"] == 6


@pytest.mark.long
@pytest.mark.slow
def test_h1_h84_sinks_die_at_some_points(lab: Lab, seed: int) -> None:
    pick = random.Random(seed)
    some = {store: (pick.choice(points.SINK), pick.choice(own)) for store, own in points.OF_STORE.items()}
    crash_sinks.one(lab, seed, some, points.VERIFY[:1])
    assert lab.figures.sums["crashes"] == 9


@pytest.mark.slow
def test_h363_parts_of_a_cluster_are_killed_at_random(lab: Lab, seed: int) -> None:
    cluster_kills.one(lab, seed, 2)
    assert lab.figures.sums["kills"] >= 2 and lab.figures.sums["rows_compared"] > 0


@pytest.mark.slow
def test_h1_h8_h75_capture_is_killed_at_random(lab: Lab, seed: int) -> None:
    reader_kills.one(lab, seed, 3)
    assert lab.figures.sums["records"] > 0


class Forgetful(Sequence):
    """Its dict hears of no row."""

    def _note(self, change: Change, table: str) -> None: ...


@pytest.mark.slow
def test_h1_h37_h71_a_sequence_leaves_what_the_dict_has(lab: Lab, seed: int) -> None:
    sequences.one(lab, seed, 2, Sequence)
    assert lab.figures.sums["sequences"] >= 2


@pytest.mark.long
def test_a_dict_that_forgets_is_found(lab: Lab) -> None:
    with pytest.raises(Found, match=r"the topics give .+, and the dict has .+, after \["):
        sequences.one(lab, 1, 5, Forgetful)


def test_h12_each_row_of_a_large_transaction_is_read_back(lab: Lab) -> None:
    big_transaction.one(lab, 20_000)
    assert lab.figures.sums == {"rows_compared": 20_000, "lost": 0, "wrong": 0, "duplicates": 0}


@pytest.mark.long
@pytest.mark.slow
def test_each_row_of_many_tables_is_read_back(lab: Lab) -> None:
    many_tables.one(lab, 20)
    assert lab.figures.sums == {"rows_compared": 60, "lost": 0, "wrong": 0, "duplicates": 0}


@pytest.mark.slow
def test_h13_h59_links_break_in_every_way(lab: Lab, seed: int) -> None:
    broken_links.one(lab, seed, 3)
    assert lab.figures.sums["faults"] == 3


@pytest.mark.long
@pytest.mark.slow
def test_h39_a_table_of_1600_columns(lab: Lab) -> None:
    wide_table.one(lab, wide_table.COLUMNS)
    assert lab.figures.peaks["columns"] == 1600


@pytest.mark.long
@pytest.mark.slow
def test_h57_a_field_too_large_for_any_topic_is_refused(lab: Lab) -> None:
    oversized_field.one(lab, 20)
    assert lab.figures.sums["refused"] == 1


@pytest.mark.long
@pytest.mark.slow
def test_h3_an_hour_of_idleness_costs_nothing(lab: Lab) -> None:
    idle_day.one(lab, 3_600, idle_day.SPEED)
    assert lab.figures.sums["idle_s"] == 3_600


@pytest.mark.long
@pytest.mark.slow
def test_a_full_disk_is_said_and_lived_through(lab: Lab) -> None:
    try:
        disk_full.one(lab)
    except disk_full.CannotMount as why:
        pytest.skip(str(why))
    assert lab.figures.sums["disks"] == 4


@pytest.mark.slow
def test_nothing_grows_at_full_load(lab: Lab) -> None:
    """Ten minutes of it are an experiment: here the samples are few, and the rows count."""
    full_load.one(lab, 15)
    assert lab.figures.sums["rows_compared"] > 10_000
    assert lab.figures.sums["lost"] == lab.figures.sums["wrong"] == lab.figures.sums["duplicates"] == 0


@pytest.mark.slow
def test_h117_a_large_reading_needs_little_memory(lab: Lab) -> None:
    large_readings.one(lab, 100_000, 30)
    assert lab.figures.sums["rows_compared"] == 100_000
    assert lab.figures.sums["rows_refused"] == 1
