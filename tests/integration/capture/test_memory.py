"""A transaction of a million rows in bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until

ROWS = 1_000_000
LIMIT_MB = 300


@pytest.mark.slow
def test_million_row_transaction_stays_below_300_mb(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)")
    pipeline.execute(f"insert into t select g, 'value of row ' || g from generate_series(1, {ROWS}) g")
    run = pipeline.stream()
    wait_until(lambda: pipeline.count("t") == ROWS, 240, lambda: pipeline.count("t"))
    status = Path(f"/proc/{run.process.pid}/status").read_text()
    peak_mb = next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak_mb < LIMIT_MB
    assert run.terminate() == 0
