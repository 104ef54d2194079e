"""A stream that cannot go on, and one that is started again."""

from __future__ import annotations

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import ActiveError, CdcError, ConfigError, LogError
from spark.streams.stream_query import RunningStream
from spark.streams.stream_runner import _Supervision


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
    one, found = _Supervision("traffic", start, clock), []
    for _ in range(2):
        one.look()
        found.append(one.fault)
        clock.advance(60)
    return found
