"""A pipeline's parts, started in order, looked after, and ended in order."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from cdc.errors import CdcError
from cdc.up.children import Child, Children, exit_of
from cdc.up.parts import Part

KEPT_BYTES = 10 * 1024 * 1024
"""Of what a part prints. The same again is kept of what it printed before."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StepFailed(CdcError):
    """A command that ran on our terminal failed, and has said why there."""


@dataclass(slots=True)
class Together:
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
