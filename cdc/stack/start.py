"""Starting a stack while a person looks on: downloads as bars, parts as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from cdc.jvm.jars import JarSet, resolve
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.stack.local import Connections, LocalStack


def fetch(sets: Iterable[JarSet], console: Console) -> None:
    """Fetch jar sets that are missing, a bar each. Silent when all are there."""
    with _bars(console) as bars:
        resolve(sets, progress=bars)


def start_watched(
    stack: LocalStack,
    parts: Iterable[str],
    console: Console,
    *,
    ports: Mapping[str, int] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Connections:
    """Start the stack, tied to this process, and return when all parts answer. Each is named as it does.

    No server is left behind after any failure, Ctrl-C included.
    """
    began = clock.monotonic()
    named: set[str] = set()

    def tell(states: Mapping[str, str]) -> None:
        for name, state in states.items():
            if state == "ready" and name not in named:
                named.add(name)
                console.print(f"{name:<11} ready after {clock.monotonic() - began:.1f} s", highlight=False)

    try:
        with _bars(console) as bars:
            stack.start(parts, ports=ports, progress=bars)
        return stack.wait(watch=tell)
    except BaseException:
        stack.abandon()
        raise


class _Bars:
    """A bar for each set that is fetched. Made when its first bytes arrive."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    @property
    def shown(self) -> bool:
        return bool(self._tasks)

    def __call__(self, name: str, done_bytes: int, total_bytes: int) -> None:
        self._progress.start()
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(f"jars: {name}", total=total_bytes)
        self._progress.update(self._tasks[name], completed=done_bytes)


@contextmanager
def _bars(console: Console) -> Iterator[_Bars]:
    columns = (TextColumn("{task.description:<18}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*columns, console=console)
    bars = _Bars(progress)
    try:
        yield bars
    finally:
        if bars.shown:
            progress.stop()
