"""A stream that cannot go on, one that is started again, and the end of Spark's JVM."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import ActiveError, CdcError, ConfigError, LogError
from cdc.record.documents import dumped
from cdc.views.known_views import BatchNote
from spark.session.failures import SparkLost
from spark.session.stop import SinkStop
from spark.streams.stream_query import RunningStream
from spark.streams.stream_runner import _Supervision, keep_streams


@pytest.mark.parametrize("failure", [ActiveError("another", hint="h"), ConfigError("text", hint="h")])
def test_e8_one_that_another_runner_has_ended_stays_ended(failure: CdcError) -> None:
    """To take it back would be to end the other one, for ever in turn."""
    assert faults(failure) == [failure, failure]


def test_one_whose_log_is_away_is_started_again() -> None:
    assert faults(LogError("away", hint="h")) == [None, None]


def faults(failure: CdcError) -> list[CdcError | None]:
    """What a stream is held to have ended by, at each of two looks."""

    def start(name: str) -> RunningStream:
        raise failure

    clock = ManualClock()
    one, found = _Supervision("traffic", start, clock, "spark.log"), []
    for _ in range(2):
        one.look()
        found.append(one.fault)
        clock.advance(60)
    return found


class Gone:
    """A query whose JVM is gone: each question and its stop end in the socket."""

    last = None

    @property
    def active(self) -> bool:
        raise ConnectionRefusedError

    def stop(self) -> None:
        raise ConnectionRefusedError


def test_e8_a_jvm_that_was_killed_is_told_as_such(tmp_path: Path) -> None:
    """A supervisor starts it again by the exit code 69; that of a bug would end it."""
    process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    process.wait(30)
    gateway = SimpleNamespace(proc=process)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))

    def start(name: str) -> RunningStream:
        return cast("RunningStream", Gone())

    with pytest.raises(SparkLost, match="was killed by signal 9"):
        keep_streams(session, start, {"traffic": None}, SinkStop(tmp_path / "stop"), ManualClock(), "spark.log")


def note(batch: int, end: int) -> BatchNote:
    """A batch that ends at this offset of the one topic."""
    cut = dumped({"topics": {"t": {"offsets": {"0": end}}}}).decode()
    return BatchNote(batch=batch, cuts=[cut], state_rows=batch, set_apart={"late": batch})


def test_a_stream_that_was_away_is_as_late_as_what_it_has() -> None:
    clock = ManualClock()
    last = note(0, 5)
    last = replace(last, at_us=clock.now_ns() // 1000 - 3600 * 10**6)
    query: Any = SimpleNamespace(last=last, rows=0, active=True)
    one = _Supervision("traffic", lambda name: cast("RunningStream", query), clock, "spark.log")
    one.look()
    one.measure({"t": {0: 9}})
    assert one.figures.lag_s(clock.monotonic()) == pytest.approx(3600)
    query.last = note(1, 9)
    one.look()
    one.measure({"t": {0: 9}})
    assert one.figures.lag_s(clock.monotonic()) == 0.0


def test_a_streams_lag_is_that_of_the_log_it_has() -> None:
    clock = ManualClock()
    query: Any = SimpleNamespace(last=None, rows=0, active=True)
    one = _Supervision("traffic", lambda name: cast("RunningStream", query), clock, "spark.log")
    figures, begun_s = one.figures, clock.monotonic()

    def lag_s(end: int) -> float:
        clock.advance(10)
        one.look()
        one.measure({"t": {0: end}})
        return figures.lag_s(clock.monotonic())

    assert lag_s(0) == 0.0
    assert lag_s(5) == 10.0
    query.last, query.rows = note(0, 5), 3
    assert (lag_s(5), figures.batch, figures.rows, figures.set_apart) == (0.0, 0, 3, {"late": 0})
    # Under a steady flow it has what the log held some time ago.
    assert lag_s(6) == 10.0
    query.last = note(1, 7)
    assert lag_s(8) == 10.0
    assert lag_s(9) == 20.0
    # It ends, and what it published stays counted.
    query.active, query.failure = False, lambda: LogError("away", hint="h")
    assert (lag_s(9), figures.away, figures.rows) == (30.0, "away", 3)
    query.active, query.last, query.rows = True, note(2, 9), 4
    clock.advance(60)
    one.look()
    assert lag_s(9) == 0.0
    assert (figures.away, figures.rows, figures.state_rows) == ("", 7, 2)
    assert figures.level_s > begun_s
