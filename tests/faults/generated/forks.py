"""Work in forks of this process: each with a limit, and given up when it waits for what does not come."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STUCK_S = 10.0
"""A process that sleeps for so long waits for what does not come. On a busy machine one that only has no processor yet
goes on: else a change would be called noticed that no test notices."""
_LIVES = 60
"""A process that polls is given up after so many times as long."""
_LOOK_S = 1.0
_MORE_BYTES = 2 << 30


def shared(workers: int, work: Callable[[int], None]) -> bool:
    """Do ``work(0)`` to ``work(workers - 1)`` at the same time, the first here. Whether none ended by an error."""
    children = []
    for share in range(1, workers):
        child = os.fork()
        if child == 0:
            ended = 1
            try:
                work(share)
                ended = 0
            finally:
                os._exit(ended)
        children.append(child)
    work(0)
    return all([os.waitpid(child, 0)[1] == 0 for child in children])


def in_child(work: Callable[[], Any], cpu_s: int | None = None, stuck_s: float = _STUCK_S) -> Any:
    """What ``work`` returns in a fork of this process; None when it takes too long, or its process ends."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        _live(work, theirs, cpu_s)
    os.close(theirs)
    try:
        return _heard(ours, child, stuck_s)
    finally:
        os.close(ours)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _live(work: Callable[[], Any], answer: int, cpu_s: int | None) -> None:
    ended = 1
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        if cpu_s is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
            bytes_now = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (bytes_now + _MORE_BYTES,) * 2)
        with os.fdopen(answer, "wb") as out:
            pickle.dump(work(), out)
        ended = 0
    finally:
        os._exit(ended)


def _heard(pipe: int, child: int, stuck_s: float) -> Any:
    data, used = b"", -1
    began = moved = time.monotonic()
    while (now := time.monotonic()) < min(moved + stuck_s, began + _LIVES * stuck_s):
        if select.select([pipe], [], [], min(_LOOK_S, stuck_s))[0]:
            part = os.read(pipe, 1 << 20)
            if not part:
                return pickle.loads(data) if data else None
            data += part
        elif (found := work_of(child)) != ("S", used):
            used, moved = found[1], now
    return None


def work_of(process: int) -> tuple[str, int]:
    """The state of a process, S for asleep, and the processor time that it has taken, in ticks."""
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(") ")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])
