"""Commands that run in the background: each in a process group of its own, none of which outlives us.

A child ends in one of three ways: it is asked to (SIGTERM, then SIGKILL to its whole group), or the kernel ends
it because we ended, however that came about.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import CdcError, Exit
from cdc.stack.account import ANYBODY

TIMEOUT_S = 20.0
_TAIL_LINES = 12
_LOOK_S = 0.5


def exit_of(code: int) -> Exit:
    """Our exit code after a child's. One that a signal ended can be started again.

    >>> exit_of(83).name, exit_of(-9).name, exit_of(2).name
    ('ACTIVE', 'UNAVAILABLE', 'BUG')
    """
    if code < 0:
        return Exit.UNAVAILABLE
    return Exit(code) if code in set(Exit) else Exit.BUG


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class Child:
    """A command that runs in the background, its output in a file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, begun_bytes: int = 0) -> None:
        """``begun_bytes``: of the file, what others printed before it."""
        self.name = name
        self.process = process
        self.log = log
        self._begun_bytes = begun_bytes

    def require_running(self) -> None:
        """CdcError, with its last words, when it has ended."""
        code = self.process.poll()
        if code is not None:
            raise self.last_words(code)

    def last_words(self, code: int) -> CdcError:
        """Its end as an error: the exit code, and the last sentence of its output."""
        printed = self.log.read_bytes()
        # A shorter file was begun anew meanwhile: all of it is this child's.
        own = printed[self._begun_bytes :] if len(printed) >= self._begun_bytes else printed
        words = own.decode("utf-8", "replace").strip().splitlines()[-_TAIL_LINES:]
        said = next((line for line in reversed(words) if line.startswith("error: ")), words[-1] if words else "")
        return CdcError(
            f"cdc {self.name} {_ended(code)}{': ' if said else ''}{said.removeprefix('error: ')}",
            hint=f"its output is in {self.log}",
            exit=exit_of(code),
        )


class Children:
    """Starts commands and, when left, ends those that still run."""

    def __init__(
        self,
        config: Path,
        logs: Path,
        environment: Mapping[str, str],
        *,
        program: Sequence[str] = (sys.executable, "-m", "cdc"),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._program = (*program, "--config", str(config))
        self._logs = logs
        self._environment = {**os.environ, **environment}
        self._clock = clock
        self._running: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, *arguments: str, tied: bool = True) -> Child:
        """Start ``cdc ARGUMENTS`` in the background. ``tied``: it ends with us."""
        name = arguments[0]
        log = self._logs / f"{name}.log"
        with log.open("ab") as output:
            begun_bytes = output.tell()
            process = self._spawn(arguments, tied=tied, output=output)
        child = Child(name, process, log, begun_bytes)
        if tied:
            self._running.append(child)
        return child

    def run(self, *arguments: str, beside: Callable[[], None] = lambda: None) -> int:
        """Run ``cdc ARGUMENTS`` to its end, on our own terminal. Its exit code. ``beside`` is called twice a second
        meanwhile, and what it raises ends the wait."""
        process = self._spawn(arguments, tied=True)
        child = Child(arguments[0], process, self._logs / "none")
        self._running.append(child)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_LOOK_S)
                self._running.remove(child)
                return code
            beside()

    def end(self, child: Child, timeout_s: float) -> int:
        """Ask one child to end, wait, and kill what does not. Its exit code."""
        self._signal(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(timeout_s)
        self._signal(child, signal.SIGKILL)
        self._running = [other for other in self._running if other is not child]
        return child.process.wait()

    def kill(self) -> None:
        """End all at once, without a wait."""
        for child in self._running:
            self._signal(child, signal.SIGKILL)

    def stop(self, timeout_s: float = TIMEOUT_S) -> None:
        """Ask every child to end, wait, and kill what does not."""
        for child in self._running:
            self._signal(child, signal.SIGTERM)
        deadline = self._clock.monotonic() + timeout_s
        for child in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.1, deadline - self._clock.monotonic()))
            # Its own children too: they are in its group.
            self._signal(child, signal.SIGKILL)
            child.process.wait()
        self._running = []

    def _spawn(
        self, arguments: Sequence[str], *, tied: bool, output: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [*self._program, *arguments]
        if tied:
            command = ANYBODY.ending_with_parent(command, death_signal=signal.SIGKILL, parent=os.getpid())
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=self._environment,
            start_new_session=True,  # a Ctrl-C at the terminal is ours to pass on
        )

    @staticmethod
    def _signal(child: Child, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, number)
