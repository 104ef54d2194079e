"""A test that waits for ever fails with its stack, and the next one runs. A run ends at its time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import BEHIND_S, limit_of

ROOT = Path(__file__).parents[2]
_TESTS = """
import threading

def test_waits_for_ever():
    try:
        threading.Event().wait(60)
    except Exception:
        pass

def test_next():
    pass
"""


def test_each_test_has_a_time_limit(tmp_path: Path) -> None:
    (tmp_path / "test_stuck.py").write_text(_TESTS, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "from tests.limits import pytest_runtest_protocol as pytest_runtest_protocol\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", "."]
    done = subprocess.run(
        [*command, "test_stuck.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "CDC_TEST_TIME_SCALE": "0.003", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "TooLong: not done in 0.9 s" in done.stdout
    assert "threading.Event().wait(60)" in done.stdout, "where it waited"


def test_a_run_whose_time_is_over_counts_what_it_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_few.py").write_text("def test_one():\n    pass\n", encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "from tests.limits import pytest_runtest_setup as pytest_runtest_setup\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--rootdir", ".", "test_few.py"]
    for until_s, said in ((1, ["SKIPPED [1]", "not run: this run's time is over"]), (1 << 40, ["1 passed"])):
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "CDC_TEST_UNTIL": str(until_s), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert all(word in done.stdout for word in said), done.stdout + done.stderr


def test_a_test_that_begins_last_does_not_outlast_its_run(request: pytest.FixtureRequest) -> None:
    own_s = limit_of(request.node)
    assert limit_of(request.node, left_s=own_s) == own_s
    assert limit_of(request.node, scale=1000, left_s=1) == 1 + BEHIND_S
    assert limit_of(request.node, scale=1000, left_s=-1) == BEHIND_S
