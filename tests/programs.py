"""Programs that a test starts, with what they print in files."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from cdc.stack.supervised_server import ANYBODY
from tests.fork_server import Forked
from tests.waiting import TIME_SCALE

RunCdc = Callable[..., subprocess.CompletedProcess[str]]
Process = subprocess.Popen[bytes] | Forked


class Spawn(Protocol):
    """Start a program that ends with the test, and with the test process even when that is killed."""

    def __call__(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> Spawned: ...


class Spawned:
    """A running program with its stdout and stderr in files."""

    def __init__(self, process: Process, out: Path, err: Path) -> None:
        self.process = process
        self.out = out
        self.err = err

    @classmethod
    def cold(
        cls, argv: Sequence[str], out: Path, err: Path, env: Mapping[str, str], folder: Path | None = None
    ) -> Spawned:
        """Started as any program, in this folder; the kernel ends it with us."""
        command_line = ANYBODY.ending_with_parent(argv, death_signal=signal.SIGKILL, parent=os.getpid())
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                command_line, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=dict(env), cwd=folder
            )
        return cls(process, out, err)

    @property
    def stdout(self) -> str:
        return self.out.read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        return self.err.read_text(encoding="utf-8", errors="replace")

    def wait(self, timeout_s: float = 60.0) -> int:
        """Its exit code; subprocess.TimeoutExpired past the time."""
        return self.process.wait(timeout_s * TIME_SCALE)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        self.process.wait(30)

    def terminate(self, timeout_s: float = 40.0) -> int:
        """SIGTERM, and its exit code."""
        self.process.terminate()
        return self.process.wait(timeout_s * TIME_SCALE)
