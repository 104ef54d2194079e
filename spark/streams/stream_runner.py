"""Streams kept until asked to stop: one query each, started again where that can help. One that cannot go on leaves the
others alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import orjson
from py4j.protocol import Py4JJavaError

from cdc.process.clock import Clock
from cdc.process.errors import ActiveError, CdcError, ConfigError, Retry, SinkError
from cdc.record.progress import Offsets
from spark.session.failures import read_failure
from spark.session.spark_session import require_jvm, telling_of_jvm
from spark.streams.stream_query import RunningStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.session.stop import SinkStop

log = logging.getLogger(__name__)
_LOOK_S = 0.2
_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_MOST_UNKNOWN = 3
_REST_S = 3.0
"""A stream that is level and has published nothing for so long has closed the windows that it can."""

Start = Callable[[str], RunningStream]
"""Starts a stream by its name. CdcError where that fails."""


class _Supervision:
    """One stream and its restarts. ``patient``: it waits for a store however long that takes."""

    def __init__(self, name: str, start: Start, clock: Clock, log_file: str, *, patient: bool = True) -> None:
        self.name = name
        self.fault: CdcError | None = None
        self.running: RunningStream | None = None
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
            self.running = None
            self._failed(failure)

    def _begin(self) -> None:
        try:
            self.running = self._start(self.name)
            if self._published is None:
                self._published = _newest(self.running)
            log.info("stream_started", extra={"stream": self.name})
        except CdcError as failure:
            self._failed(failure)
        except Py4JJavaError as failure:
            # Spark asks a worker of Python's for the source already then, and that may be killed.
            self._failed(read_failure(f"stream.{self.name}", str(failure), self._log_file))

    def _failed(self, failure: CdcError) -> None:
        self._unknown += failure.retry is Retry.NOW
        # Of two that run it, each would end the other for ever.
        final = failure.retry in (Retry.NEVER, Retry.SECRET) or isinstance(failure, ActiveError)
        waits_in_vain = isinstance(failure, SinkError) and not self._patient
        if final or waits_in_vain or self._unknown > _MOST_UNKNOWN:
            log.error("stream_stopped", extra={"stream": self.name, "reason": failure.message, "hint": failure.hint})
            self.fault = failure
            return
        wait_s = _BACKOFF_S[min(self._tries, len(_BACKOFF_S) - 1)]
        log.warning("stream_waits", extra={"stream": self.name, "reason": failure.message, "wait_s": wait_s})
        self._tries += 1
        self._due_s = self._clock.monotonic() + wait_s

    def is_level(self, ends: Offsets) -> bool:
        """Whether it has published all below these ends, and rests."""
        last = self.running.last if self.running is not None else None
        if last is None:
            return not any(end for parts in ends.values() for end in parts.values())
        now_s = self._clock.monotonic()
        if last.batch != self._still[0]:
            self._still = last.batch, now_s
        return covers(last.cuts, ends) and now_s - self._still[1] >= _REST_S


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
) -> None:
    """Keep streams until a stop is asked for, or until each is level with the ends given for it. Raises the error of
    the first that could not go on, once none goes on or at the end."""
    kept = [_Supervision(name, start, clock, log_file, patient=ends is None) for name, ends in names.items()]
    with telling_of_jvm(session, log_file):
        try:
            while not stop.asked:
                for one in kept:
                    one.look()
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
