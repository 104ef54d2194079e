"""The tables of a batch, each on a thread of its own: what one waits for is another one's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from sinks.batch_plan import Readable

T = TypeVar("T")
R = TypeVar("R")


class SideBySide:
    """Does something for several, ``most`` at once. The threads stay until :meth:`close`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._threads: ThreadPoolExecutor | None = None

    def each(self, act: Callable[[T], R], some: Sequence[T]) -> list[R]:
        """The results, in the order of ``some``. All are done, or have failed, when this returns or raises: the error
        of the first one in this order that failed."""
        if len(some) < 2 or self.most < 2:
            return [act(one) for one in some]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.most, thread_name_prefix="table")
        # How often a store is tried is a matter of the caller's context.
        running: list[Future[R]] = [self._threads.submit(copy_context().run, act, one) for one in some]
        wait(running)
        return [one.result() for one in running]

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


def by_table(batches: Iterable[Readable]) -> list[list[Readable]]:
    """The versions of each table together, in the order in which they come: they share a place in the store."""
    found: dict[str, list[Readable]] = {}
    for readable in batches:
        found.setdefault(str(readable.batch.schema.table), []).append(readable)
    return list(found.values())
