"""What capture holds in memory, whatever the size of what goes through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.capture.later import ask, over
from tests.integration.capture.pipeline import Pipeline
from tests.programs import Spawned
from tests.waiting import wait_until

ROWS = 1_000_000
LIMIT_MB = 300


def peak_mb(run: Spawned) -> float:
    status = Path(f"/proc/{run.process.pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.mark.slow
def test_million_row_transaction_stays_below_300_mb(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)")
    pipeline.execute(f"insert into t select g, 'value of row ' || g from generate_series(1, {ROWS}) g")
    run = pipeline.stream()
    wait_until(lambda: pipeline.count("t") == ROWS, 240, lambda: pipeline.count("t"))
    assert peak_mb(run) < LIMIT_MB
    assert run.terminate() == 0


@pytest.mark.long
def test_a_million_wide_rows_read_again_stay_below_300_mb(pipeline: Pipeline) -> None:
    """700 bytes each, and every 2,000th 200 kB: what one window holds is not what another does."""
    pipeline.prepare(
        "create table t (id int primary key, v text)",
        "alter table t alter v set storage external",
        f"insert into t select g, repeat('x', case when g % 2000 = 0 then 200000 else 700 end)"
        f" from generate_series(1, {ROWS}) g",
    )
    run = pipeline.stream()
    state = over(pipeline, ask(pipeline), 500)
    assert (state.state, state.rows) == ("done", ROWS)
    print(f"windows: {peak_mb(run):.0f} MB, {(state.finished_ns - state.started_ns) / 1e9:.0f} s")
    assert peak_mb(run) < LIMIT_MB
    assert run.terminate() == 0


@pytest.mark.slow
def test_h38_values_read_beside_the_stream_stay_below_300_mb(pipeline: Pipeline) -> None:
    """One transaction changes 20,000 rows and leaves out 20 kB of each."""
    pipeline.prepare(
        "create table t (id int primary key, n int, v text)",
        "alter table t alter v set storage external",
        "insert into t select g, 0, repeat('x', 20000) from generate_series(1, 20000) g",
    )
    run = pipeline.stream()
    pipeline.execute("update t set n = 1")
    wait_until(lambda: pipeline.count("t") == 20_000, 240, lambda: pipeline.count("t"))
    print(f"re-select: {peak_mb(run):.0f} MB")
    assert peak_mb(run) < LIMIT_MB
    assert run.terminate() == 0
