"""The names of failed tests stand at the end of the output, also with workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import TIME_SCALE

ROOT = Path(__file__).parents[2]
_TESTS = """
import pytest

@pytest.fixture
def broken():
    raise ValueError("no server")

@pytest.mark.parametrize("n", [1, 2])
def test_wrong(n):
    print("x" * 100_000)
    assert n == 1

def test_without_its_server(broken):
    pass
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "workers"])
@pytest.mark.slow
def test_the_names_of_failed_tests_are_the_last_lines(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_some.py").write_text(_TESTS, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "from tests.last_lines import pytest_unconfigure as pytest_unconfigure\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", "."]
    done = subprocess.run(
        [*command, *workers, "test_some.py"], cwd=tmp_path, capture_output=True, text=True,
        timeout=60 * TIME_SCALE, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    *_, count, first, second = done.stdout.splitlines()
    assert "1 failed, 1 passed, 1 error" in count, done.stdout[-2000:] + done.stderr
    assert [first, second] == ["FAILED test_some.py::test_wrong[2]", "FAILED test_some.py::test_without_its_server"]
