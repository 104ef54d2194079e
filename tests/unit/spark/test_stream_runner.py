"""A stream that cannot go on, one that is started again, and the end of Spark's JVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import ActiveError, CdcError, ConfigError, LogError
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
