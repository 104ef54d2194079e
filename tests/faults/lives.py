"""Programs of ours that are started, killed, paused and started again, hundreds of times.

What takes time at a start is importing, so one server process does that once and forks each life from itself: a
life is a real process with the real command in it, and is there in a tenth of a second.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson

import cdc.cli
from cdc.process import crash_points as crash

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.faults.lives", "cdc.cli.run", "cdc.wiring.pipeline", f"{__package__}.follower"])
# The last one is spelt so that experiments without a sink do not count as reaching it (tests/faults/reach.py).

Program = Callable[[Sequence[str]], None]


class Life:
    """One process. ``stderr`` is in the file ``err``, behind what earlier lives said there."""

    def __init__(self, program: Program, argv: Sequence[str], err: Path, *, crash_at: str = "") -> None:
        self._err = err
        err.touch()
        self._start = err.stat().st_size
        ours, theirs = Pipe(duplex=False)
        self._parent = theirs
        self._process = _FORKS.Process(target=_live, args=(program, list(argv), str(err), crash_at, ours), daemon=True)
        self._process.start()
        ours.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit(self) -> int | None:
        """Its exit code, -9 for a SIGKILL; None while it lives."""
        code = self._process.exitcode
        if code is not None:
            self._parent.close()
        return code

    @property
    def stderr(self) -> str:
        with self._err.open("rb") as file:
            file.seek(self._start)
            return file.read().decode("utf-8", "replace")

    @property
    def reason(self) -> str:
        """Its last word: of a traceback the line that says what was raised."""
        return next((line.strip() for line in reversed(self.stderr.splitlines()) if line.strip()), "it said nothing")

    def events(self, name: str) -> Iterator[Mapping[str, Any]]:
        """The log lines of that event."""
        for line in self.stderr.splitlines():
            if f'"event":"{name}"' in line:
                yield orjson.loads(line)

    def said(self, event: str) -> bool:
        return any(True for _ in self.events(event))

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self._process.join(30)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, timeout_s: float = 60) -> int | None:
        """SIGTERM, and its exit code; None if it lives on."""
        self._process.terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> int | None:
        self._process.join(timeout_s)
        return self._process.exitcode


def command(argv: Sequence[str]) -> None:
    """The command line ``cdc``."""
    sys.argv = ["cdc", *argv]
    cdc.cli.main()


def _live(program: Program, argv: Sequence[str], err: str, crash_at: str, parent: Connection) -> None:
    out = os.open(err, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    # The server's own handlers and its logging are not this program's.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    logging.getLogger().handlers.clear()
    gc.enable()
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    crash.arm(crash_at)
    program(argv)


def _die_with(parent: Connection) -> None:
    """End when whoever started us has ended: the pipe's other end is theirs."""
    parent.poll(None)
    os._exit(1)
