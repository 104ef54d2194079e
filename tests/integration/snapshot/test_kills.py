"""Killed anywhere, it goes on where it was, and nothing is lost or extra (H19, H20, H76)."""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest

import snapshot.first.first_snapshot
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.crash_points import CRASH_EXIT, POINTS
from cdc.process.errors import Exit
from cdc.record.state import ChunkState
from connectors.postgres.server.connections import writer_lock
from tests.integration.snapshot.pipeline import Pipeline
from tests.integration.snapshot.writers import SCHEMA, TABLES, writing
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

assert snapshot.first.first_snapshot is not None  # its import declares the points

IN_PARENT = (
    "snapshot_planned",
    "slot_noted",
    "slot_made",
    "slot_recorded",
    "cut_exported",
    "cut_recorded",
    "chunk_reported",
    "chunk_recorded",
    "chunks_all_recorded",
    "snapshot_completed",
)
"""In the order in which one snapshot can die at all of them."""
IN_WORKERS = (
    "chunk_begun",
    "chunk_locked",
    "chunk_checked",
    "chunk_first_block",
    "chunk_produced",
    "chunk_flushed",
    "chunk_committed",
)


def prepared(pipeline: Pipeline) -> Path:
    pipeline.execute(*SCHEMA)
    pipeline.prepare()
    return pipeline.config()


def test_every_crash_point_is_visited_here() -> None:
    mine = {point for point in POINTS if point.startswith(("snapshot_", "slot_", "cut_", "chunk"))}
    assert mine == {*IN_WORKERS, *IN_PARENT}  # sweep_marked: see integration/capture/test_epochs.py


@pytest.mark.slow
def test_h20_crashed_at_every_step_of_its_own_it_goes_on(pipeline: Pipeline, spawn: Spawn) -> None:
    """One snapshot that dies at each step in turn, and a last run that ends it."""
    config = prepared(pipeline)
    done: dict[tuple[str, int], ChunkState] = {}
    with writing(pipeline.dsn, seed=1):
        for point in IN_PARENT:
            crashed = spawn("cdc", "--config", config, "snapshot", env={"CDC_CRASH_AT": point})
            assert crashed.wait(60) == CRASH_EXIT, f"{point}: {crashed.stderr}"
            now = {(c.table, c.number): c for c in pipeline.chunks()}
            assert all(now[chunk] == state for chunk, state in done.items()), f"{point}: finished chunks stay"
            done = {chunk: state for chunk, state in now.items() if state.state == "done"}
        last = spawn("cdc", "--config", config, "snapshot")
        assert last.wait(60) == 0, last.stderr
    assert done
    head = pipeline.head()
    assert head is not None
    assert head.state == "complete"
    assert head.last_cut_lsn > head.consistent_point, "the rest came from a later cut"
    pipeline.assert_equal(*TABLES)


@pytest.mark.slow
def test_h20_workers_that_crash_at_a_step_are_replaced_at_first(pipeline: Pipeline, spawn: Spawn) -> None:
    config = prepared(pipeline)
    with writing(pipeline.dsn, seed=2):
        for point in IN_WORKERS:
            # Each worker dies at its first chunk; too many of them, and the run ends with an error.
            crashing = spawn("cdc", "--config", config, "snapshot", env={"CDC_CRASH_AT": point})
            assert crashing.wait(60) == Exit.UNAVAILABLE, f"{point}: {crashing.stderr}"
            assert f"exit code {CRASH_EXIT}" in crashing.stderr
            assert "another one takes its place" in crashing.stderr
        last = spawn("cdc", "--config", config, "snapshot")
        assert last.wait(60) == 0, last.stderr
    pipeline.assert_equal(*TABLES)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "3"])
def test_h20_killed_at_any_moment_again_and_again(pipeline: Pipeline, spawn: Spawn, workers: str) -> None:
    config = prepared(pipeline)
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    dice = random.Random(seed)
    kills = 0
    with writing(pipeline.dsn, seed=seed):
        for _ in range(4):
            running = spawn("cdc", "--config", config, "snapshot", "--workers", workers)
            wait_until(partial(begun_or_over, pipeline, running), 60)
            SYSTEM_CLOCK.sleep(dice.uniform(0, 0.5))
            if running.process.poll() is None:
                running.kill()
                kills += 1
        last = spawn("cdc", "--config", config, "snapshot", "--workers", workers)
        assert last.wait(90) == 0, last.stderr
    assert kills
    pipeline.assert_equal(*TABLES)


def begun_or_over(pipeline: Pipeline, running: Spawned) -> bool:
    """Whether workers hold their lock, so that rows may be flowing."""
    count = (
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()"
    )
    return pipeline.one(f"{count} where l.locktype = 'advisory'") > 1 or running.process.poll() is not None


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_h76_no_worker_outlives_its_parent(pipeline: Pipeline, spawn: Spawn, stopped: bool) -> None:
    """Not even one that is stopped when the parent is killed, with the server that it was forked from."""
    config = prepared(pipeline)
    pipeline.execute("insert into hot select g, 0, repeat('n', 500) from generate_series(200000, 260000) g")
    running = spawn("cdc", "--config", config, "snapshot")
    at_work = "select count(*) from pg_stat_activity where application_name = 'cdc snapshot worker' and datname = %s"
    name = pipeline.one("select current_database()")
    wait_until(lambda: pipeline.one(at_work, name) == 2, 60, lambda: running.stderr)
    workers = children(running.process.pid)
    try:
        for pid in {*workers, *map(parent, workers)} if stopped else ():
            os.kill(pid, signal.SIGSTOP)
        running.kill()
        wait_until(lambda: not any(alive(pid) for pid in workers), 10, "the workers die with their parent")
    finally:
        for pid in filter(alive, workers):
            os.kill(pid, signal.SIGKILL)
    assert len(workers) == 2
    kind, number = writer_lock(pipeline.name)
    wait_until(lambda: pipeline.one("select pg_try_advisory_lock(%s, %s)", kind, number), 10, "the lock is free")


def children(program: int) -> list[int]:
    """The worker processes of a running snapshot: forked from the server that is somewhere below it."""
    found, pids = [], [program]
    while pids:
        pid = pids.pop()
        below = [
            int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
        ]
        pids += below
        if forks(pid):
            found += [child for child in below if forks(child)]
    return found


def forks(pid: int) -> bool:
    """Whether it is the fork server, or forked from it."""
    return b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    """A zombie is dead; only its parent has not heard."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(pipeline: Pipeline) -> None:
    prepared(pipeline)

    def kill_one() -> None:
        os.kill(children(os.getpid())[0], signal.SIGKILL)

    pipeline.told.after(3, kill_one)
    with writing(pipeline.dsn, seed=1):
        pipeline.run()
    assert "exit code -9" in pipeline.told.text()
    pipeline.assert_equal(*TABLES)


@pytest.mark.slow
def test_a_worker_that_loses_its_session_reads_its_chunk_again(pipeline: Pipeline) -> None:
    prepared(pipeline)
    end = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'cdc snapshot worker' and datname = current_database()"
    )
    pipeline.told.after(3, lambda: pipeline.execute(end))
    with writing(pipeline.dsn, seed=2):
        pipeline.run()
    assert "lost its session" in pipeline.told.text()
    pipeline.assert_equal(*TABLES)


@pytest.mark.slow
def test_h19_without_the_cuts_session_another_cut_reads_the_rest(pipeline: Pipeline) -> None:
    prepared(pipeline)
    end = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'cdc snapshot slot' and datname = current_database()"
    )
    pipeline.told.after(3, lambda: pipeline.execute(end))
    with writing(pipeline.dsn, seed=3):
        pipeline.run()
    assert "the rest is read in a new cut" in pipeline.told.text()
    head = pipeline.head()
    assert head is not None
    assert head.last_cut_lsn > head.consistent_point
    pipeline.assert_equal(*TABLES)


@pytest.mark.slow
def test_without_the_session_that_locks_it_stops_and_says_so(pipeline: Pipeline, spawn: Spawn) -> None:
    config = prepared(pipeline)
    pipeline.execute("insert into hot select g, 0, repeat('n', 500) from generate_series(200000, 260000) g")
    running = spawn("cdc", "--config", config, "snapshot")
    wait_until(lambda: [c for c in pipeline.chunks() if c.state == "done"], 60, lambda: running.stderr)
    pipeline.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'cdc snapshot' and datname = current_database()"
    )
    assert running.wait(60) == 69, running.stderr
    assert "goes on where it was" in running.stderr
    again = spawn("cdc", "--config", config, "snapshot")
    assert again.wait(60) == 0, again.stderr
    pipeline.assert_equal(*TABLES)


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once_and_leaves_no_process(pipeline: Pipeline, spawn: Spawn) -> None:
    config = prepared(pipeline)
    pipeline.execute("insert into hot select g, 0, repeat('n', 500) from generate_series(200000, 260000) g")
    running = spawn("cdc", "--config", config, "snapshot")
    wait_until(lambda: [c for c in pipeline.chunks() if c.state == "done"], 60, lambda: running.stderr)
    workers = children(running.process.pid)
    running.process.send_signal(signal.SIGINT)
    assert running.wait(20) in (130, -signal.SIGINT), running.stderr
    assert "Traceback" not in running.stderr
    wait_until(lambda: not any(alive(pid) for pid in workers), 10)
