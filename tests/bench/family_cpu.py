"""The CPU time of a process and all below it, over any part of its life."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from subprocess import Popen
from threading import Event, Thread
from types import TracebackType

from tests.bench.setting import cpu_of
from tests.integration.spark.family import below

_EVERY_S = 0.1
Sample = tuple[float, float]
"""Wall clock, and CPU seconds used until then."""


class FamilyCpu:
    """Looks at a process and those below it ten times a second, as a context, until it is left. ``beside``: further
    processes, each with those below it."""

    def __init__(self, process: Popen[str], beside: Sequence[int] = ()) -> None:
        self._process, self._roots = process, (process.pid, *beside)
        self._used: dict[int, float] = {}
        self._samples: list[Sample] = []
        self._over = Event()
        self._thread = Thread(target=self._look, daemon=True)

    def __enter__(self) -> FamilyCpu:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def runs(self) -> bool:
        """Whether the process itself has not ended."""
        return self._process.poll() is None

    def between(self, first: float, last: float) -> float:
        """CPU seconds between two moments of the wall clock."""
        return at(self._samples, last) - at(self._samples, first)

    def _look(self) -> None:
        while not self._over.wait(_EVERY_S):
            # An ended process keeps what it had used when it was last seen.
            for pid in (*self._roots, *(one.pid for root in self._roots for one in below(root))):
                with suppress(OSError, IndexError):
                    self._used[pid] = cpu_of(pid)
            self._samples.append((time.time(), sum(self._used.values())))


def at(samples: list[Sample], moment: float) -> float:
    """CPU seconds used until then, on the line between the two samples around it.

    >>> at([(10.0, 1.0), (11.0, 3.0)], 10.5)
    2.0
    >>> at([(10.0, 1.0), (11.0, 3.0)], 12.0)
    3.0
    """
    before = samples[0]
    for sample in samples:
        if sample[0] >= moment:
            span_s = sample[0] - before[0]
            return before[1] + (sample[1] - before[1]) * ((moment - before[0]) / span_s if span_s else 0.0)
        before = sample
    return before[1]
