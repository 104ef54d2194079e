"""``cdc rebuild``: a Spark application of its own fills the new generation, then the store is switched to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK
from cdc.crash import crash_point, declare
from cdc.dead import DeadLetter, Parked, Why, waiting
from cdc.errors import SinkError
from cdc.orders import order
from cdc.rebuilding import RebuildState, Step, find_rebuild, level, next_rebuild, rolled_back, share
from cdc.settings import Settings
from cdc.topic import dead_topic
from cdc.wiring import open_schemas, open_state, require_broker
from cdc.wiring.sinks import SinkLog, build_sinks
from cdc.wiring.stores import sink_settings, spec_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.schema import TableSchema
    from sinks.generations import Generations
    from sinks.registry import SinkSpec
    from spark.app import SinkApplication

Tell = Callable[[str, float | None], None]
"""Told of each step in words, with the share of the log that was read while it is."""

declare("rebuild_after_begin", "rebuild_after_fill", "rebuild_after_keep", "rebuild_after_switch")

_SEPARATE = ("redis", "opensearch")
"""Kinds whose generations stay where they were built."""
_LOOK_S = 0.5


def rebuild_store(settings: Settings, sink: str, tell: Tell, *, session: SparkSession | None = None) -> RebuildState:
    """Build a sink's store anew from the log and switch to it; goes on where an earlier call was killed.

    SinkError when it was told to stop while the new generation is filled. ``session``: one to be used, for tests.
    """
    from sinks.generations import open_generations

    sink_settings(sink, settings)
    require_broker(settings)
    state, spec = open_state(settings), spec_of(sink, settings)
    with closing(open_generations(spec)) as generations:
        last = find_rebuild(state.read(), sink)
        run = next_rebuild(sink, generations.in_use(), last)

        def reached(step: Step) -> None:
            nonlocal run
            run = run.at(step)
            state.write([(run.key(), run.to_json())])

        shapes = shapes_of(settings, sink)
        if run != last:
            _discard(generations, spec, last, shapes)
            reached(Step.BUILDING)
        crash_point("rebuild_after_begin")
        if run.step == Step.BUILDING:
            tell(f"generation {run.generation} of {sink} is filled from the log", 0.0)
            _fill(settings, run, tell, session)
            reached(Step.KEEPING)
        crash_point("rebuild_after_fill")
        shapes = shapes_of(settings, sink)
        if run.step == Step.KEEPING:
            tell(f"generation {run.previous} is kept for a rollback", None)
            generations.keep(run.previous, shapes)
            _take_letters_over(settings, run)
            reached(Step.SWITCHING)
        crash_point("rebuild_after_keep")
        generations.switch(run.generation, shapes)
        crash_point("rebuild_after_switch")
        retry_everything(settings, sink)
        reached(Step.DONE)
        if spec.kind not in _SEPARATE:
            generations.discard(run.generation, shapes)
    return run


def roll_back(settings: Settings, sink: str) -> RebuildState:
    """Switch back to the generation before the last rebuild. UsageError when there is none."""
    from sinks.generations import open_generations

    sink_settings(sink, settings)
    require_broker(settings)
    state = open_state(settings)
    run = rolled_back(sink, find_rebuild(state.read(), sink))
    with closing(open_generations(spec_of(sink, settings))) as generations:
        generations.switch(run.previous, shapes_of(settings, sink))
        retry_everything(settings, sink)
        state.write([(run.key(), run.to_json())])
    return run


def shapes_of(settings: Settings, sink: str) -> list[TableSchema]:
    """Every version of the shapes of a sink's tables, older ones first."""
    topics = SinkLog(settings).topics(sink).ids
    versions = [shape for shape in open_schemas(settings).versions() if shape.topic in topics]
    return sorted(versions, key=lambda shape: (shape.topic, shape.version))


def retry_everything(settings: Settings, sink: str) -> None:
    """What waits for the old generation is tried on the new one, by whoever feeds it."""
    from connectors.kafka.letters import DeadLetterTopic

    topic = DeadLetterTopic(settings.log, dead_topic(settings.name))
    last = {(one.topic, one.key): one for one in waiting(topic.read()) if one.sink == sink and one.parks}
    topic.write(order(one, Why.RETRY, token_hex(8)) for one in last.values())


def _discard(
    generations: Generations, spec: SinkSpec, last: RebuildState | None, shapes: Sequence[TableSchema]
) -> None:
    """Remove what an earlier rebuild kept."""
    if last is not None:
        in_use = {generations.in_use()} if spec.kind in _SEPARATE else set()
        for number in sorted({last.previous, last.generation} - in_use):
            generations.discard(number, shapes)


def _fill(settings: Settings, run: RebuildState, tell: Tell, session: SparkSession | None) -> None:
    """Feed the new generation until it shows what the old one shows."""
    from sinks.generations import beside
    from sinks.registry import open_sink
    from spark.app import run as feed

    checkpoint = f"{settings.spark.checkpoint.rstrip('/')}/_rebuild/{run.sink}"
    spark = settings.spark.model_copy(update={"checkpoint": checkpoint, "http_address": "", "fan_out": False})
    application = build_sinks(settings.model_copy(update={"spark": spark}), [run.sink])
    spec = beside(application.specs[run.sink], run.generation)
    application = replace(application, specs={run.sink: spec}, dead=_Apart(application, run), open_letters=_NoLetters)
    used = spec_of(run.sink, settings)
    with closing(open_sink(beside(used, run.generation))) as new, closing(open_sink(used)) as old:
        log = SinkLog(settings)

        def look() -> bool:
            held, ends = old.watermarks.read(), log.ends(log.topics(run.sink))
            found = new.watermarks.read()
            tell(f"generation {run.generation} of {run.sink}", share(found, ends))
            return level(found, held, ends)

        if not _filled(feed, application, look, session):
            raise SinkError(
                f"the rebuild of {run.sink} was stopped: generation {run.generation} is not whole yet",
                hint=f"cdc rebuild {run.sink} goes on where it was",
            )


def _filled(
    feed: Callable[..., None], application: SinkApplication, look: Callable[[], bool], session: SparkSession | None
) -> bool:
    from spark.stop import Stop

    class Level(Stop):
        """Asks to stop as soon as the new generation is level."""

        reached = False
        due_s = 0.0

        def wait(self, timeout_s: float) -> bool:
            asked = super().wait(timeout_s)
            now_s = SYSTEM_CLOCK.monotonic()
            if not asked and now_s >= self.due_s:
                self.due_s = now_s + _LOOK_S
                self.reached = look()
                if self.reached:
                    self.ask("the new generation is level")
            return self.asked

    stop = Level()
    feed(application, stop, session=session)
    return stop.reached


class _Apart:
    """:class:`spark.ports.DeadLetters` of a generation that is not in use: under a name of its own."""

    def __init__(self, application: SinkApplication, run: RebuildState) -> None:
        self._dead = application.dead
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


def apart(run: RebuildState) -> str:
    """The name under which the letters of a generation stand while it is built."""
    return f"{run.sink}@{run.generation}"


def _take_letters_over(settings: Settings, run: RebuildState) -> None:
    """What the new generation refused waits for the sink from now on."""
    from connectors.kafka.letters import DeadLetterTopic

    topic = DeadLetterTopic(settings.log, dead_topic(settings.name))
    letters = list(topic.read())
    mine = [one for one in waiting(letters) if one.sink == apart(run)]
    fresh = Parked(run.sink, letters).fresh(replace(one, sink=run.sink) for one in mine)
    topic.write(
        [*fresh, *(replace(one, why=Why.RELEASED, reason="in use now", value=None, headers=()) for one in mine)]
    )
