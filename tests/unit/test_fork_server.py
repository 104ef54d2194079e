"""A forked command is a process like any other, and ends with what forked it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_server import Forked, ForkServer
from tests.integration.stack.processes import left_over
from tests.waiting import wait_until


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


def started(fork_server: ForkServer, folder: Path, *arguments: str, **env: str) -> Forked:
    return fork_server.start(
        arguments, folder / "out", folder / "err", env={"PATH": os.environ["PATH"], **env}, cwd=folder
    )


def test_it_has_its_own_arguments_files_folder_and_exit_code(fork_server: ForkServer, tmp_path: Path) -> None:
    assert started(fork_server, tmp_path, "--version").wait(60) == 0
    assert (tmp_path / "out").read_text(encoding="utf-8").strip()
    refused = started(fork_server, tmp_path, "check")
    assert refused.wait(60) == 78
    assert "cdc.toml" in (tmp_path / "err").read_text(encoding="utf-8")
    assert refused.poll() == 78


@pytest.mark.slow
def test_it_ends_by_a_signal_or_with_the_server(fork_server: ForkServer, tmp_path: Path) -> None:
    def waiting(name: str) -> Forked:
        other = started(fork_server, tmp_path, "demo", "--dir", str(tmp_path / name))
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.2)
        return other

    killed = waiting("killed")
    killed.kill()
    assert killed.wait(10) == -9
    left = waiting("left")
    fork_server.close()
    with pytest.raises(RuntimeError, match="fork server ended"):
        left.wait(10)
    wait_until(lambda: left_over(tmp_path) == [], 30)
