"""A sink's life: stores that go away, come back older, or belong to other topics; several sinks beside each other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from cdc.process.errors import ActiveError, Exit, Retry, SinkError, TopicError
from cdc.record.progress import Watermark
from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog, orders_schema
from tests.integration.spark.stores import FaultyStore, connecting

Opened = Callable[[Settings, str], OpenSink]


@pytest.fixture
def cached(pipeline: HandMadeLog, redis_url: str) -> Settings:
    """Settings with the cache alone."""
    return pipeline.settings({"cache": {"kind": "redis", "url": redis_url}})


def rows(first: int, last: int, status: str = "new") -> list[dict[str, Any]]:
    return [{"id": n, "status": status, "total": "1.00"} for n in range(first, last)]


def two_stores(pipeline: HandMadeLog, **spark: Any) -> tuple[Settings, dict[str, FaultyStore]]:
    """Two sinks over stores in memory, called by their prefixes."""
    sinks = {name: {"kind": "redis", "url": "redis://127.0.0.1:1/0", "prefix": name} for name in ("left", "right")}
    return pipeline.settings(sinks, **spark), {"left": FaultyStore(), "right": FaultyStore()}


@pytest.mark.slow
def test_h63_a_topic_made_anew_is_refused_without_a_checkpoint(
    pipeline: HandMadeLog, sinks: Sinks, cached: Settings, tmp_path: Path
) -> None:
    pipeline.put(rows(0, 20))
    sinks.catch_up(cached)
    topic = pipeline.topic()
    pipeline.admin.delete([topic])
    pipeline.admin.create([pipeline.spec(topic)])
    with pytest.raises(TopicError, match="made anew") as refused:
        sinks.catch_up(cached)
    assert refused.value.exit == Exit.TOPIC
    pipeline.note_topics()
    with pytest.raises(TopicError, match="made anew since the store of cache was filled"):
        sinks.catch_up(cached)


@pytest.mark.slow
def test_h63_a_topic_made_anew_under_a_running_query_ends_it(
    pipeline: HandMadeLog, sinks: Sinks, cached: Settings, opened: Opened
) -> None:
    pipeline.put(rows(0, 20))
    with sinks.running(cached) as running:
        running.until(lambda: len(pipeline.shown(opened(cached, "cache"))) == 20)
        topic = pipeline.topic()
        pipeline.admin.delete([topic])
        pipeline.admin.create([pipeline.spec(topic)])
        pipeline.put(rows(100, 103))
        running.wait_for_end(90)
        assert isinstance(running.failure, TopicError)


@pytest.mark.slow
def test_h84_a_flushed_store_is_filled_while_the_query_runs(
    pipeline: HandMadeLog, sinks: Sinks, cached: Settings, opened: Opened, redis_url: str
) -> None:
    pipeline.put(rows(0, 30))
    with sinks.running(cached) as running:
        store = opened(cached, "cache")
        running.until(lambda: len(pipeline.shown(store)) == 30 and store.watermarks.read())
        with redis.Redis.from_url(redis_url) as client:
            client.flushdb()
        pipeline.put(rows(30, 31))
        running.until(lambda: pipeline.shown(store) == pipeline.rows["orders"])


@pytest.mark.slow
def test_h80_an_idle_stores_lsn_moves_a_new_ones_at_the_end(
    pipeline: HandMadeLog, sinks: Sinks, cached: Settings, opened: Opened
) -> None:
    pipeline.put(rows(0, 30))
    early = pipeline.progress()
    pipeline.put(rows(30, 2000))
    marks: list[int] = []
    settings = cached.model_copy(update={"spark": cached.spark.model_copy(update={"max_offsets_per_trigger": 200})})
    with sinks.running(settings) as running:
        store = opened(cached, "cache")

        def seen() -> bool:
            mark = store.watermarks.read()
            marks.append(mark.lsn if mark is not None else 0)
            return len(pipeline.shown(store)) == 2000 and marks[-1] == early

        running.until(seen)
        assert set(marks) <= {0, early}
        idle = pipeline.progress(pipeline.lsn + 4096)
        running.until(lambda: (mark := store.watermarks.read()) is not None and mark.lsn == idle)


@pytest.mark.slow
def test_a_table_added_to_the_pipeline_is_picked_up(
    pipeline: HandMadeLog, sinks: Sinks, cached: Settings, opened: Opened
) -> None:
    pipeline.put(rows(0, 5))
    with sinks.running(cached) as running:
        store = opened(cached, "cache")
        running.until(lambda: len(pipeline.shown(store)) == 5)
        shape = orders_schema(pipeline.name, "customers")
        pipeline.admin.create([pipeline.spec(shape.topic)])
        pipeline.add_shape(shape)
        pipeline.note_topics()
        pipeline.put(rows(0, 7), table="customers")
        running.until(lambda: len(pipeline.shown(store, "customers")) == 7)


@pytest.mark.slow
def test_a_store_that_is_away_is_awaited_and_delays_no_other(pipeline: HandMadeLog, sinks: Sinks) -> None:
    settings, stores = two_stores(pipeline)
    with sinks.running(settings, connect=connecting(stores)) as running:
        pipeline.put(rows(0, 10))
        running.until(lambda: all(pipeline.shown(store.memory.open()) for store in stores.values()))
        stores["left"].away = True
        pipeline.put(rows(10, 20))
        running.until(lambda: len(pipeline.shown(stores["right"].memory.open())) == 20)
        tried = stores["left"].calls
        running.until(lambda: stores["left"].calls > tried + 3)
        stores["left"].away = False
        running.until(lambda: len(pipeline.shown(stores["left"].memory.open())) == 20)


@pytest.mark.slow
def test_one_store_of_two_is_awaited_and_none_is_a_refusal(pipeline: HandMadeLog, sinks: Sinks) -> None:
    settings, stores = two_stores(pipeline)
    stores["left"].away = stores["right"].away = True
    with pytest.raises(SinkError, match="away"):
        sinks.catch_up(settings, connect=connecting(stores))
    stores["right"].away = False
    pipeline.put(rows(0, 10))
    with sinks.running(settings, connect=connecting(stores)) as running:
        running.until(lambda: len(pipeline.shown(stores["right"].memory.open())) == 10)
        stores["left"].away = False
        running.until(lambda: len(pipeline.shown(stores["left"].memory.open())) == 10)


@pytest.mark.slow
def test_h101_a_watermark_set_ahead_by_hand_stops_that_store(
    pipeline: HandMadeLog, sinks: Sinks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="spark")
    settings, stores = two_stores(pipeline)
    with sinks.running(settings, connect=connecting(stores)) as running:
        pipeline.put(rows(0, 10))
        for store in stores.values():
            running.until(partial(_shows_all, pipeline, store))
        marks = stores["left"].memory.open().watermarks
        # Rows are shown before their watermark: one that comes later would take the place of the one set by hand.
        mark = running.until(lambda: found if (found := marks.read()) is not None and _records(found) == 10 else None)
        assert mark is not None
        ahead = {topic: {p: offset + 1000 for p, offset in parts.items()} for topic, parts in mark.offsets.items()}
        marks.write(replace(mark, offsets=ahead))
        pipeline.put(rows(10, 20))
        running.until(partial(_shows_all, pipeline, stores["right"]))
        running.until(lambda: "sink_stopped" in caplog.messages)
        pipeline.put(rows(20, 30))
        running.until(partial(_shows_all, pipeline, stores["right"]))
        assert not running.ended
        assert len(pipeline.shown(stores["left"].memory.open())) <= 20
    assert isinstance(running.failure, ActiveError), "the end says it"


def test_one_store_s_failure_ends_the_others_where_that_is_asked(pipeline: HandMadeLog, sinks: Sinks) -> None:
    settings, stores = two_stores(pipeline, stop_together=True)
    stores["left"].fails = SinkError("the disk is broken", retry=Retry.NEVER)
    with sinks.running(settings, connect=connecting(stores)) as running:
        running.wait_for_end(60)
    assert isinstance(running.failure, SinkError)


@pytest.mark.slow
def test_h115_a_silent_store_does_not_hold_up_the_end(pipeline: HandMadeLog, sinks: Sinks) -> None:
    settings, stores = two_stores(pipeline)
    pipeline.put(rows(0, 10))
    with sinks.running(settings, connect=connecting(stores)) as running:
        for store in stores.values():
            running.until(partial(_shows_all, pipeline, store))
        stores["left"].free.clear()
        held = stores["left"].calls
        pipeline.put(rows(10, 20))
        running.until(lambda: stores["left"].calls > held)
        running.stop()
    stores["left"].free.set()
    sinks.catch_up(settings, connect=connecting(stores))
    assert all(_shows_all(pipeline, store) for store in stores.values())


def _shows(pipeline: HandMadeLog, store: FaultyStore, count: int) -> bool:
    return len(pipeline.shown(store.memory.open())) >= count


def _shows_all(pipeline: HandMadeLog, store: FaultyStore) -> bool:
    return pipeline.shown(store.memory.open()) == pipeline.rows["orders"]


def _records(mark: Watermark) -> int:
    return sum(offset for parts in mark.offsets.values() for offset in parts.values())
