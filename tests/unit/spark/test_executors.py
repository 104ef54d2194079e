"""A cluster without executors is named within ten seconds, once, and again when it has some."""

from __future__ import annotations

import pytest

from cdc.process.clock import ManualClock
from spark.session.executor_fitness import ClusterSight, ExecutorWatch

NONE, ONE = ClusterSight(0, True), ClusterSight(1, True)


def looks(watch: ExecutorWatch, clock: ManualClock, seen: ClusterSight, for_s: float) -> str:
    said = ""
    for _ in range(int(for_s * 10)):
        if watch.due():
            said = watch.note(seen)
        clock.advance(0.1)
    return said


def test_h104_a_cluster_without_executors_is_named_in_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    watch = ExecutorWatch("spark://m:7077", clock)
    with caplog.at_level("INFO"):
        assert looks(watch, clock, NONE, 5) == "", "executors take some seconds to come"
        assert "spark://m:7077 has had no executor for" in looks(watch, clock, NONE, 5.1)
        looks(watch, clock, NONE, 60)
        assert [record.getMessage() for record in caplog.records] == ["no_executors"]
        assert looks(watch, clock, ONE, 3) == ""
        assert [record.getMessage() for record in caplog.records] == ["no_executors", "executors_here"]


def test_h104_tasks_that_no_executor_takes_are_named() -> None:
    clock = ManualClock()
    watch = ExecutorWatch("spark://m:7077", clock)
    stuck = ClusterSight(1, True, 3)
    assert "3 tasks have waited for" in looks(watch, clock, stuck, 10.1)
    assert looks(watch, clock, ONE, 3) == ""


def test_h104_executors_that_come_when_needed_are_not_missed() -> None:
    clock = ManualClock()
    watch = ExecutorWatch("yarn", clock)
    assert looks(watch, clock, ClusterSight(0, False), 60) == ""
    assert looks(watch, clock, NONE, 5) == ""
