"""``cdc up``: a whole pipeline in one foreground command. Its parts by the settings, and their processes, none of
which outlives us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, NamedTuple, Self

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import ActiveError, CdcError, Exit
from cdc.record.ports import Found, Unknown
from cdc.settings.model import Settings
from cdc.stack.supervised_server import ANYBODY
from cdc.status.facts import SourceState

KEPT_BYTES = 10 * 1024 * 1024
"""Of what a part prints. The same again is kept of what it printed before."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StepFailed(CdcError):
    """A command that ran on our terminal failed, and has said why there."""


@dataclass(slots=True)
class PipelineProcesses:
    """The running parts of one pipeline. ``parts``: in the order of the data. ``tell``: hears a sentence at a time."""

    children: Children
    parts: tuple[Part, ...]
    tell: Callable[[str], None]
    _running: dict[Part, Child] = field(default_factory=dict)

    def must(self, *command: str, allowed: int = 0) -> None:
        """Run a command to its end on our terminal, and look after the parts meanwhile. StepFailed with its exit code
        where that is neither 0 nor ``allowed``. CdcError where a part ends meanwhile."""
        code = self.children.run(*command, beside=self.look)
        if code not in (0, allowed):
            raise StepFailed(f"cdc {' '.join(command)} ended with exit code {code}", exit=exit_of(code))

    def start(self, *names: str) -> None:
        """Start the parts of these names that the pipeline has."""
        for part in self.parts:
            if part.arguments[0] in names and part not in self._running:
                child = self._running[part] = self.children.start(*part.arguments)
                self.tell(f"cdc {' '.join(part.arguments)} runs, its output is in {child.log}")

    def look(self) -> None:
        """CdcError with the exit code of a part that has ended, and with its last words."""
        for child in self._running.values():
            child.require_running()
            shorten(child.log)

    def end(self) -> None:
        """Ask one part after the other to end, and wait for each. CdcError with the first code that is not 0."""
        failed = self.end_quietly()
        if failed is not None:
            raise failed

    def end_quietly(self) -> CdcError | None:
        """:meth:`end`, after an error that is the one to be told. Returns what it would raise."""
        failed: CdcError | None = None
        for part in self.parts:
            child = self._running.pop(part, None)
            if child is None:
                continue
            code = self.children.end(child, part.grace_s)
            if code and failed is None:
                failed = child.last_words(code)
        return failed


def shorten(log: Path, most_bytes: int = KEPT_BYTES) -> None:
    """Begin a child's output anew where it has grown past ``most_bytes``. The output before it is kept in a second
    file. The child appends, so that it goes on at the new beginning."""
    with suppress(FileNotFoundError):
        if log.stat().st_size <= most_bytes:
            return
        before = log.with_suffix(f"{log.suffix}.1")
        before.write_bytes(log.read_bytes())
        os.truncate(log, 0)


@contextmanager
def interruptible(kill: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Within, SIGTERM and a terminal that goes are as Ctrl-C: KeyboardInterrupt. After the yielded function was called
    none interrupts any more: the next one calls ``kill`` and ends the process at once, with 128 and its number."""

    def at_once(number: int, _frame: FrameType | None) -> None:
        kill()
        os._exit(128 + number)

    def ending() -> None:
        for number in before:
            signal.signal(number, at_once)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_LEFT_S = 15.0
"""For what a part does at its end beside the work that its settings bound."""
_STORES_S = 60.0
"""A sink ends between two batches. One that its store does not answer is given up before that."""


class Part(NamedTuple):
    """A command that runs for as long as the pipeline does. ``grace_s``: how long its end may take."""

    arguments: tuple[str, ...]
    grace_s: float


def parts_of(settings: Settings) -> tuple[Part, ...]:
    """The parts in the order of the data, which is the order of their ends: what is read on is written to the end."""
    drain_s = settings.capture.drain_timeout.total_seconds()
    capture = Part(("run",), drain_s + _LEFT_S)
    views = (Part(("view", "run"), _STORES_S),) if settings.views else ()
    streams = (Part(("stream", "run"), _STORES_S),) if settings.streams else ()
    stores = (Part(("sink",), _STORES_S),) if settings.sinks else ()
    return (capture, *views, *streams, *stores)


def slot_to_make(settings: Settings, source: Found[SourceState]) -> str | None:
    """The sentence that the user has to agree to. None where the slot is there already.

    CdcError where the server did not answer: its slot is not known then, and not absent. ActiveError where a capture
    reads the slot, before anything of a second pipeline writes beside it.
    """
    if isinstance(source, Unknown):
        raise source.because
    if source is None:
        raise CdcError("the source is no Postgres, and cdc up makes a replication slot on one")
    if source.slot is not None and source.slot.active_pid is not None:
        raise ActiveError(
            f"the slot {settings.slot} is read by another cdc run or cdc up (walsender {source.slot.active_pid})",
            hint="stop that one first, or look at it with cdc status --watch",
        )
    if source.slot is not None:
        return None
    return (
        f"This makes the replication slot {settings.slot} on {source.address}. A slot keeps WAL on that server until "
        "capture reads it. cdc drop removes it again."
    )


# Commands that run in the background: each in a process group of its own, none of which outlives us.
#
# A child ends in one of three ways: it is asked to (SIGTERM, then SIGKILL to its whole group), or the kernel ends it
# because we ended, however that came about.

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

    def printed(self) -> str:
        """Its output."""
        printed = self.log.read_bytes()
        # A shorter file was begun anew meanwhile: all of it is this child's.
        own = printed[self._begun_bytes :] if len(printed) >= self._begun_bytes else printed
        return own.decode("utf-8", "replace").strip()

    def last_words(self, code: int) -> CdcError:
        """Its end as an error: the exit code, and the last sentence of its output."""
        words = self.printed().splitlines()[-_TAIL_LINES:]
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

    def start(self, *arguments: str, tied: bool = True, output: str | None = None) -> Child:
        """Start ``cdc ARGUMENTS`` in the background. ``tied``: it ends with us. ``output``: the name of the file
        of its output, its command's unless set."""
        name = arguments[0]
        log = self._logs / f"{output or name}.log"
        with log.open("ab") as file:
            begun_bytes = file.tell()
            process = self._spawn(arguments, tied=tied, output=file)
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
