"""A test that waits for ever fails with its stack, and the next one runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
