"""Killed anywhere and started again: nothing lost, nothing twice, never an old record behind a newer one."""

from __future__ import annotations

import random
import subprocess
from contextlib import suppress
from functools import partial

import pytest

from cdc.process.crash_points import CRASH_EXIT
from tests.conftest import Stack
from tests.integration.capture.pipeline import Pipeline
from tests.integration.capture.workload import NAMES, TABLES, Background, Workload
from tests.waiting import wait_until

CRASH_POINTS = (
    "after_read",
    "after_assemble",
    "after_produce",
    "before_progress",
    "after_progress",
    "before_acknowledge",
    "after_acknowledge",
)


@pytest.mark.slow
def test_h1_h2_h7_h8_h75_h81_killed_at_every_crash_point(pipeline: Pipeline) -> None:
    pipeline.prepare(*TABLES)
    with pipeline.session() as session:
        workload = Workload(session, seed=1)
        for nth, point in enumerate(CRASH_POINTS):
            run = pipeline.start(crash_at=f"{point}:{nth // 2 + 1}")
            while run.process.poll() is None:
                workload.step()
                with suppress(subprocess.TimeoutExpired):
                    # A pace: what is left for the last one to send does not grow with how slowly the others start.
                    run.process.wait(0.005)
            assert run.process.returncode == CRASH_EXIT, run.stderr
            workload.step()
    with pipeline.capturing():
        pipeline.settle()
    pipeline.assert_equal(*NAMES)


@pytest.mark.slow
def test_h16_a_clean_stop_resends_nothing_a_kill_is_repaired(pipeline: Pipeline) -> None:
    pipeline.prepare(*TABLES)
    run = pipeline.stream()
    with Background(pipeline.dsn, seed=2):
        wait_until(lambda: pipeline.count("t") > 20, 30)
        assert run.terminate() == 0
    position = pipeline.progress()
    assert position is not None
    assert pipeline.confirmed() == position.lsn
    with Background(pipeline.dsn, seed=3):
        ends: list[int] = []
        while CRASH_EXIT not in ends:
            # One that was told while the broker owed nothing has nothing to drain.
            assert ends == [0] * len(ends), run.stderr
            assert len(ends) < 10
            before = pipeline.count("f")
            run = pipeline.stream(CDC_CRASH_AT="while_draining")
            wait_until(partial(_grown, pipeline, before + 20), 30)
            ends.append(run.terminate())
    with pipeline.capturing():
        pipeline.settle()
    pipeline.assert_equal(*NAMES)


def _grown(pipeline: Pipeline, count: int) -> bool:
    return pipeline.count("f") > count


@pytest.mark.slow
def test_h8_killed_in_the_middle_of_a_large_transaction(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)")
    pipeline.execute("insert into t select g, repeat('v', 200) from generate_series(1, 40000) g")
    pipeline.execute("update t set v = 'small' where id % 2 = 0")
    run = pipeline.stream()
    wait_until(lambda: pipeline.count("t") > 0, 30, lambda: run.stderr)
    run.kill()
    with pipeline.capturing():
        pipeline.settle()
    pipeline.assert_equal("t")


@pytest.mark.slow
def test_random_kills_under_load(pipeline: Pipeline) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    pick = random.Random(seed)
    pipeline.prepare(*TABLES)
    with Background(pipeline.dsn, seed):
        for _ in range(6):
            run = pipeline.stream()
            after = pick.randrange(0, 400)
            count = pipeline.count("t")
            wait_until(lambda c=count, a=after: pipeline.count("t") >= c + a, 30)  # type: ignore[misc]
            run.kill()
    with pipeline.capturing():
        pipeline.settle()
    pipeline.assert_equal(*NAMES)


@pytest.mark.slow
def test_h7_server_killed_and_h1_broker_killed_while_streaming(pipeline: Pipeline, stack: Stack) -> None:
    """One daemon lives through both: it connects again by itself, and nothing is lost or twice."""
    pipeline.prepare(*TABLES)
    run = pipeline.stream()
    with pipeline.session() as session:
        Workload(session, seed=5).steps(50)
    stack.stop_part("postgres", kill=True)
    wait_until(lambda: pipeline.said(run, "reconnecting"), 30, lambda: run.stderr)
    stack.start_part("postgres")
    stack.ensure("postgres")
    with pipeline.session() as session:
        workload = Workload(session, seed=6)
        workload.steps(50)
        pipeline.settle(60)
        stack.stop_part("kafka", kill=True)
        workload.steps(50)
        stack.start_part("kafka")
        stack.ensure("kafka")
        workload.steps(50)
    pipeline.settle(60)
    pipeline.assert_equal(*NAMES)
    assert run.terminate() == 0
