"""What an experiment with servers is given: its seeds, its servers, and where to put what it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.stack.local import LocalStack, free_ports
from tests.faults import results
from tests.faults.results import Figures, Part
from tests.processes import ProcessStack


class Found(AssertionError):
    """A promise that did not hold: one sentence. Any other error out of an experiment counts as one too."""


@dataclass(slots=True, kw_only=True)
class Limits:
    """How long a run goes on: the first limit that is met ends it. ``seed``: try this one only, count nothing.

    ``mended``: what was wrong with the seeds that failed before and hold now.
    """

    seconds: float
    count: int | None = None
    seed: int | None = None
    mended: str = ""


@dataclass(kw_only=True)
class Lab:
    """One run of one experiment.

    ``figures``: over all runs; saved after each seed that held, unless a single seed is replayed.
    ``stack``: the servers, started at the first use.
    """

    name: str
    limits: Limits
    folder: Path
    figures: Figures
    results: Path = results.FOLDER
    workers: int = 1
    stack_dir: Path | None = None
    clock: Clock = SYSTEM_CLOCK
    say: Callable[[str], None] = print
    seed: int = 0
    """The one being tried."""
    _stack: LocalStack | None = field(default=None, repr=False)

    def seeds(self) -> Iterator[int]:
        """The seeds of this run, those that failed before first, then from where the last run ended.

        What was counted is saved after each.
        """
        if self.limits.seed is not None:
            self.seed = self.limits.seed
            yield self.limits.seed
            return
        for failure in self.figures.open_failures:
            began, self.seed = self.clock.monotonic(), failure.seed
            yield self.seed
            self.figures.held(self.seed, self.limits.mended)
            self.tried(self.seed + 1, self.clock.monotonic() - began)
        start = self.clock.monotonic()
        done = 0
        while (self.limits.count is None or done < self.limits.count) and self.clock.monotonic() < (
            start + self.limits.seconds
        ):
            began = self.clock.monotonic()
            self.seed = self.figures.next_seed
            yield self.seed
            self.tried(self.seed + 1, self.clock.monotonic() - began)
            done += 1

    def count(self, **sums: int) -> None:
        """Add to the figures."""
        self.figures.add(sums)

    def peak(self, **peaks: float) -> None:
        """Keep the greatest."""
        self.figures.peak(peaks)

    def note(self, name: str, text: str) -> None:
        """Keep a word, the newest of each name."""
        self.figures.notes[name] = text

    def parts(self, codes: Mapping[str, str]) -> Iterator[str]:
        """The parts that did not hold on this code, within the run's limits; ``seed``: the one of that number alone."""
        if self.limits.seed is not None:
            yield list(codes)[self.limits.seed]
            return
        start = self.clock.monotonic()
        for name in self.figures.due(codes)[: self.limits.count]:
            if self.clock.monotonic() >= start + self.limits.seconds:
                return
            began = self.clock.monotonic()
            yield name
            self.tried(0, self.clock.monotonic() - began)

    def part(self, name: str, code: str, notes: Mapping[str, str], **sums: int) -> None:
        """Keep what came of a part. ``code``: the digest that it held on; empty where it did not hold."""
        self.figures.part(name, Part(code, self.figures.commit, sums, dict(notes)))

    def tried(self, next_seed: int, seconds: float) -> None:
        """Every seed below ``next_seed`` held; save."""
        self.figures.next_seed = max(next_seed, self.figures.next_seed)
        self.figures.seconds += seconds
        if self.limits.seed is None:
            results.save(self.name, self.figures, self.results)

    def failed(self, error: str) -> None:
        """A promise did not hold at this seed: keep it, and what it had counted; later runs try it first."""
        self.figures.failed(self.seed, error)
        self.tried(self.seed + 1, 0.0)

    @property
    def stack(self) -> LocalStack:
        if self._stack is None:
            self._stack = ProcessStack(self.stack_dir or self.folder / "stack")
            if self.stack_dir is None:
                self._stack.start(ports=free_ports(), durable=False)
        return self._stack

    def close(self) -> None:
        """End the servers that :attr:`stack` started."""
        if self._stack is not None and self.stack_dir is None:
            self._stack.wipe()
        self._stack = None
