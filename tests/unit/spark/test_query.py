"""What the care of a query does when a run of it ends: rest and start anew, or stand still."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import CdcError, Exit, LogError, Retry, SinkError, TopicError
from cdc.settings.secret_reference import SHORT_S
from sinks.contract.kinds import spec_for
from sinks.contract.port import StoreAway
from sinks.contract.store_connection import login_refused
from spark.figures.sink_metrics import Metrics
from spark.queries.query import Query
from spark.queries.query_run import Engine, LocalFolder
from spark.records.source import KafkaInput
from spark.session.failures import Halted, QueryFailed, SparkLost
from spark.stores.place_check import StoreMoved
from spark.stores.watermark import LogEnds
from tests.unit.spark.records import TOPIC
from tests.unit.spark.test_store import Bench, row

HOUR_S = 3600.0


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    for store in made.stores:
        store.end()


def cared_for(bench: Bench, folder: Path, clock: ManualClock | None = None, *, every_s: float = 0.0) -> Query:
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
    spec = replace(spec_for("redis", prefix="shop", options={"url": "redis://x"}), every_s=every_s)
    return Query(bench.store(), spec, engine)


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


def test_x4_a_refused_login_is_tried_again_for_a_while(bench: Bench, tmp_path: Path) -> None:
    clock = ManualClock()
    query = cared_for(bench, tmp_path, clock)
    refused = login_refused("the store", "no")
    query.again(refused)
    clock.advance(SHORT_S)
    query.again(refused)
    found = [query.failure]
    clock.advance(1)
    query.again(refused)
    assert [*found, query.failure] == [None, refused]
    assert refused.exit is Exit.CONFIG


def test_h189_an_error_right_before_the_end_is_told(bench: Bench, tmp_path: Path) -> None:
    """A stop in that half second ended with 0, and the store had refused its last batch."""
    query = cared_for(bench, tmp_path)
    refused = SinkError("refused", retry=Retry.NEVER)
    query.store.fault = refused
    query.conclude()
    assert query.failure is refused
    query.heed(SinkError("another", retry=Retry.NEVER))
    assert query.failure is refused, "the first one is kept"


def test_h189_a_start_refused_right_before_the_end_is_told(bench: Bench, tmp_path: Path) -> None:
    bench.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    bench.settle(bench.begun(), 7, row(1, 6))
    bench.facts.topic_id = "id2"
    query = cared_for(bench, tmp_path)
    query.tend()
    assert query.store.attempt(lambda: True).result(30), "what was begun before it is done"
    query.conclude()
    assert isinstance(query.failure, TopicError)


@pytest.mark.parametrize("met_again", [StoreAway("away"), StoreMoved("restored"), Halted("told to end"), None])
def test_an_end_has_no_failure_where_a_start_can_cure_it(
    bench: Bench, tmp_path: Path, met_again: CdcError | None
) -> None:
    query = cared_for(bench, tmp_path)
    query.store.fault = met_again
    query.conclude()
    assert query.failure is None


def test_h445_a_store_that_fills_or_is_far_behind_has_no_rest(bench: Bench, tmp_path: Path) -> None:
    """It would take in one batch a period, and be filled in days."""
    clock = ManualClock()
    query = cared_for(bench, tmp_path, clock, every_s=30.0)
    bench.facts.end = 7
    query.store.run(query.store.begin)
    began_s = clock.monotonic()
    assert not query.store.caught_up and query.rested(began_s), "it fills"
    bench.settle(query.store, 7, row(1, 6))
    bench.view.note_ends(LogEnds(1.0, {TOPIC: {0: 7}}))
    assert not query.rested(began_s)
    bench.view.note_ends(LogEnds(1.0, {TOPIC: {0: 8 + 500_000}}))
    assert query.rested(began_s), "behind by more than a batch"
    bench.view.note_ends(LogEnds(1.0, {TOPIC: {0: 9}}))
    clock.advance(29.0)
    assert not query.rested(began_s)
    clock.advance(1.0)
    assert query.rested(began_s)
