"""A generation filled from the log by an application of its own, beside the one that feeds the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.operate.rebuild import GenerationProgress, RebuildState, apart
from cdc.process.clock import SYSTEM_CLOCK
from cdc.wire.dead_letter import DeadLetter, DeadLetters
from sinks.contract.kinds import beside
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import open_sink
from spark.runner.application import SinkApplication
from spark.runner.application import run as feed
from spark.session.stop import SinkStop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.5


class SparkFilling:
    """:class:`cdc.operate.rebuild.Filling` on Spark.

    ``build`` makes the application that feeds the sink. ``session``: one to be used in place of one of its own.
    """

    def __init__(self, build: Callable[[], SinkApplication], session: SparkSession | None = None) -> None:
        self._build = build
        self._session = session

    def fill(self, run: RebuildState, level: Callable[[GenerationProgress], bool]) -> bool:
        application = self._build()
        used = application.specs[run.sink]
        spec = beside(used, run.generation)
        own = replace(
            application,
            specs={run.sink: spec},
            dead=LettersApart(application.dead, run),
            open_letters=_NoLetters,
        )
        with (
            closing(open_sink(replace(spec, parallel=False))) as new,
            closing(open_sink(replace(used, parallel=False))) as old,
        ):
            stop = _Level(lambda: level(_standing(application, run.sink, old, new)))
            feed(own, stop, session=self._session)
        return stop.reached


def _standing(application: SinkApplication, sink: str, old: OpenSink, new: OpenSink) -> GenerationProgress:
    shown, facts = old.watermarks.read(), application.facts
    ends = facts.ends(facts.topics(sink))
    return GenerationProgress(shown, ends, new.watermarks.read())


class _Level(SinkStop):
    """Asks to stop as soon as the new generation is level."""

    def __init__(self, look: Callable[[], bool]) -> None:
        super().__init__()
        self.reached = False
        self._look = look
        self._due_s = 0.0

    def wait(self, timeout_s: float) -> bool:
        asked = super().wait(timeout_s)
        now_s = SYSTEM_CLOCK.monotonic()
        if not asked and now_s >= self._due_s:
            self._due_s = now_s + _LOOK_S
            self.reached = self._look()
            if self.reached:
                self.ask("the new generation is level")
        return self.asked


class LettersApart:
    """:class:`cdc.wire.dead_letter.DeadLetters` of a generation that is not in use: under a name of its own."""

    def __init__(self, dead: DeadLetters, run: RebuildState) -> None:
        self._dead = dead
        self._sink, self._apart = run.sink, apart(run)

    def read(self) -> Iterator[DeadLetter]:
        return (replace(one, sink=self._sink) for one in self._dead.read() if one.sink == self._apart)

    def write(self, letters: Iterable[DeadLetter]) -> None:
        self._dead.write(replace(one, sink=self._apart) for one in letters)


class _NoLetters:
    """Nobody gives orders to a generation that is not in use."""

    def poll(self, timeout_s: float) -> list[DeadLetter]:
        return []

    def close(self) -> None:
        """Nothing is open."""
