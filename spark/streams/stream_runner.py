"""Streams kept until asked to stop: one query each, started again where that can help. One that cannot go on leaves the
others alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import orjson
from py4j.protocol import Py4JJavaError

from cdc.figures.stream_metrics import StreamFigures, StreamHealth
from cdc.process.clock import Clock
from cdc.process.errors import ActiveError, CdcError, ConfigError, Retry, SinkError
from cdc.record.progress import Offsets
from spark.session.failures import read_failure
from spark.session.spark_session import require_jvm, telling_of_jvm
from spark.streams.stream_query import RunningStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.views.known_views import BatchNote
    from spark.session.stop import SinkStop

log = logging.getLogger(__name__)
_LOOK_S = 0.2
_MEASURE_S = 2.0
"""Between two looks at where the log ends."""
_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_MOST_UNKNOWN = 3
_REST_S = 3.0
"""A stream that is level and has published nothing for so long has closed the windows that it can."""

Start = Callable[[str], RunningStream]
"""Starts a stream by its name. CdcError where that fails."""
Ends = Callable[[str], Offsets]
"""Where the topics of a stream end now. CdcError where the log does not say."""


class _Supervision:
    """One stream and its restarts. ``patient``: it waits for a store however long that takes."""

    def __init__(self, name: str, start: Start, clock: Clock, log_file: str, *, patient: bool = True) -> None:
        self.name = name
        self.fault: CdcError | None = None
        self.running: RunningStream | None = None
        self.figures = StreamFigures(name, level_s=clock.monotonic())
        self._awaited: tuple[float, Offsets] | None = None
        """Ends of the log that it lacks, and when they were read."""
        self._last: BatchNote | None = None
        self._rows = 0
        self._start = start
        self._patient = patient
        self._clock = clock
        self._log_file = log_file
        self._tries = self._unknown = 0
        self._due_s = 0.0
        self._still: tuple[int, float] = (-1, 0.0)
        self._published: int | None = None
        """Its newest batch when it failed last, or began."""

    def look(self) -> None:
        """One look."""
        if self.running is not None:
            self._note(self.running)
        if self.fault is not None:
            return
        if self.running is None:
            if self._clock.monotonic() >= self._due_s:
                self._begin()
        elif not self.running.active:
            failure = self.running.failure() or ConfigError(
                f"the query of the stream {self.name} was stopped", hint="another program stopped it"
            )
            newest = _newest(self.running)
            if self._published is not None and newest > self._published:
                self._tries = self._unknown = 0
            self._published = newest
            self._note(self.running)
            self._rows += self.running.rows
            self.running = None
            self._failed(failure)

    def _begin(self) -> None:
        try:
            self.running = self._start(self.name)
            if self._published is None:
                self._published, last = _newest(self.running), self.running.last
                if last is not None and last.at_us:
                    # Of what came while no process ran some may be as old as what was published before.
                    age_s = max(0.0, self._clock.now_ns() / 1e9 - last.at_us / 1e6)
                    self.figures.level_s = min(self.figures.level_s, self._clock.monotonic() - age_s)
            self.figures.away = self.figures.cure = ""
            log.info("stream_started", extra={"stream": self.name})
        except CdcError as failure:
            self._failed(failure)
        except Py4JJavaError as failure:
            # Spark asks a worker of Python's for the source already then, and that may be killed.
            self._failed(read_failure(f"stream.{self.name}", str(failure), self._log_file))

    def _failed(self, failure: CdcError) -> None:
        self._unknown += failure.retry is Retry.NOW
        self.figures.away, self.figures.cure = failure.message, failure.hint
        # Of two that run it, each would end the other for ever.
        final = failure.retry in (Retry.NEVER, Retry.SECRET) or isinstance(failure, ActiveError)
        waits_in_vain = isinstance(failure, SinkError) and not self._patient
        if final or waits_in_vain or self._unknown > _MOST_UNKNOWN:
            log.error("stream_stopped", extra={"stream": self.name, "reason": failure.message, "hint": failure.hint})
            self.fault, self.figures.stopped = failure, failure.message
            return
        wait_s = _BACKOFF_S[min(self._tries, len(_BACKOFF_S) - 1)]
        log.warning("stream_waits", extra={"stream": self.name, "reason": failure.message, "wait_s": wait_s})
        self._tries += 1
        self._due_s = self._clock.monotonic() + wait_s

    def is_level(self, ends: Offsets) -> bool:
        """Whether it has published all below these ends, and rests."""
        last = self.running.last if self.running is not None else None
        now_s = self._clock.monotonic()
        if last is not None and last.batch != self._still[0]:
            self._still = last.batch, now_s
        return _has(last, ends) and (last is None or now_s - self._still[1] >= _REST_S)

    def measure(self, ends: Offsets) -> None:
        """Note how far it is behind. ``ends``: what the log holds now. Under a steady flow it never has all of this, so
        it is as late as the look whose ends it has."""
        now_s = self._clock.monotonic()
        if self._awaited is not None and _has(self._last, self._awaited[1]):
            self.figures.level_s, self._awaited = self._awaited[0], None
        if self._awaited is None and _has(self._last, ends):
            self.figures.level_s = now_s
        elif self._awaited is None:
            self._awaited = now_s, ends
        self.figures.looked_s = now_s

    def _note(self, running: RunningStream) -> None:
        last = self._last = running.last
        self.figures.rows = self._rows + running.rows
        self.figures.batch = last.batch if last is not None else None
        if last is not None:
            self.figures.state_rows, self.figures.state_partitions = last.state_rows, last.state_partitions
            self.figures.set_apart = last.set_apart


def _has(last: BatchNote | None, ends: Offsets) -> bool:
    """Whether all below these ends is published, ``last`` being the newest batch."""
    if last is None:
        return not any(end for parts in ends.values() for end in parts.values())
    return covers(last.cuts, ends)


def _newest(running: RunningStream) -> int:
    return running.last.batch if running.last is not None else -1


def covers(cuts: object, ends: Offsets) -> bool:
    """Whether each cut, as Spark's checkpoint has it, lies at or behind these ends."""
    for cut in cuts if isinstance(cuts, list | tuple) else ():
        topics: Mapping[str, dict[str, dict[str, int]]] = orjson.loads(cut)["topics"] if cut else {}
        for topic, facts in topics.items():
            here = facts["offsets"]
            if any(here.get(str(p), 0) < end for p, end in ends.get(topic, {}).items()):
                return False
    return True


def keep_streams(
    session: SparkSession,
    start: Start,
    names: Mapping[str, Offsets | None],
    stop: SinkStop,
    clock: Clock,
    log_file: str,
    shown: tuple[StreamHealth, Ends] | None = None,
) -> None:
    """Keep streams until a stop is asked for, or until each is level with the ends given for it. ``shown``: where their
    figures go, and what these are measured by. Raises the error of the first that could not go on, once none goes on or
    at the end."""
    kept = [_Supervision(name, start, clock, log_file, patient=ends is None) for name, ends in names.items()]
    measured_s = clock.monotonic() - _MEASURE_S
    if shown is not None:
        shown[0].streams = [one.figures for one in kept]
    with telling_of_jvm(session, log_file):
        try:
            while not stop.asked:
                for one in kept:
                    one.look()
                if shown is not None and clock.monotonic() - measured_s >= _MEASURE_S:
                    measured_s = clock.monotonic()
                    _measure(kept, shown[1])
                require_jvm(session, log_file)
                going = [one for one in kept if one.fault is None]
                level = all((ends := names[one.name]) is not None and one.is_level(ends) for one in going)
                if not going or level:
                    break
                stop.wait(_LOOK_S)
        finally:
            for one in kept:
                if one.running is not None:
                    one.running.stop()
    faults = [one.fault for one in kept if one.fault is not None]
    if faults:
        raise faults[0]


def _measure(kept: Sequence[_Supervision], ends: Ends) -> None:
    """Measure each stream. Where the log does not answer, what they lack becomes unknown with time."""
    with suppress(CdcError):
        for one in kept:
            one.measure(ends(one.name))
