"""What the care of a query does when a run of it ends: rest and start anew, or stand still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.clock import ManualClock
from cdc.errors import CdcError, Exit, LogError, Retry, SinkError
from sinks.kinds import spec_for
from sinks.port import StoreAway
from spark.checkpoint import LocalFolder
from spark.failures import QueryFailed, SparkLost
from spark.query import Engine, Query
from spark.sink_metrics import Metrics
from spark.source import KafkaInput
from tests.unit.spark.test_store import Bench

HOUR_S = 3600.0


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    for store in made.stores:
        store.end()


def cared_for(bench: Bench, folder: Path, clock: ManualClock | None = None) -> Query:
    """A query of which nothing is started: no session and no reader are asked."""
    nothing: Any = None
    engine = Engine(
        session=nothing,
        kafka=KafkaInput({}, 500_000, nothing),
        folder=LocalFolder(folder),
        metrics=Metrics(),
        driver_rows=20_000,
        clock=clock or ManualClock(),
    )
    return Query(bench.store(), spec_for("redis", prefix="shop", options={"url": "redis://x"}), engine)


def test_an_unknown_failure_is_tried_three_times_more(bench: Bench, tmp_path: Path) -> None:
    query = cared_for(bench, tmp_path)
    for _ in range(3):
        query.again(QueryFailed("a"))
        assert query.failure is None
    query.again(QueryFailed("b"))
    assert query.failure is not None
    assert (query.failure.message, query.failure.exit) == ("b", Exit.BUG)


@pytest.mark.parametrize("away", [StoreAway("away"), LogError("away"), SparkLost("ended")])
def test_what_time_can_mend_is_waited_for_without_end(bench: Bench, tmp_path: Path, away: CdcError) -> None:
    """A store that answers again after a night is gone on with, by the driver and by executors alike."""
    clock = ManualClock()
    query = cared_for(bench, tmp_path, clock)
    for _ in range(50):
        query.again(away)
        clock.advance(HOUR_S)
    query.again(QueryFailed("the first unknown one"))
    assert query.failure is None


def test_what_nothing_mends_stands_still_at_once(bench: Bench, tmp_path: Path) -> None:
    query = cared_for(bench, tmp_path)
    query.again(SinkError("refused", retry=Retry.NEVER))
    assert query.failure is not None
