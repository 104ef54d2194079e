"""``reader = "spark"``: the query carries the records, each is read once, and Spark's progress says so."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from cdc.settings.model import Settings
from cdc.stack.local import free_ports
from sinks.contract.port import OpenSink
from spark.records.source import OBSERVED
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog

Opened = Callable[[Settings, str], OpenSink]
MB = 1024**2
WAYS = {"driver": {}, "executors": {"driver_batch_rows": 0}}


class Progress(StreamingQueryListener):
    """Every query's progress."""

    def __init__(self) -> None:
        self.seen: list[StreamingQueryProgress] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.seen.append(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def records(self, query: str) -> int:
        """How many records Spark says that the queries of a name read."""
        return sum(one.numInputRows for one in self.seen if (one.name or "").startswith(f"{query}-"))

    def observed(self, query: str) -> int:
        """How many the stream itself counted."""
        own = [one for one in self.seen if (one.name or "").startswith(f"{query}-")]
        return sum(one.observedMetrics[OBSERVED]["records"] for one in own if OBSERVED in one.observedMetrics)


@pytest.fixture
def progress(spark_session: SparkSession) -> Iterator[Progress]:
    listener = Progress()
    spark_session.streams.addListener(listener)
    yield listener
    spark_session.streams.removeListener(listener)


def row(number: int, note: str = "open") -> dict[str, Any]:
    return {"id": number, "status": note, "total": "1.00"}


@pytest.fixture
def twelve(kafka: str, topic_prefix: str) -> HandMadeLog:
    """Twelve tables with 22 records each: a delete is an event and a tombstone."""
    tables = [f"t{number}" for number in range(12)]
    log = HandMadeLog(topic_prefix, kafka, tables=tables)
    log.init()
    for table in tables:
        log.put((row(number % 7) for number in range(20)), table=table)
        log.put([{"id": 3}], table=table)
    log.progress()
    return log


@pytest.mark.slow
def test_each_record_of_many_tables_is_read_once(
    twelve: HandMadeLog, sinks: Sinks, opened: Opened, all_stores: dict[str, Any], progress: Progress
) -> None:
    stores = {name: all_stores[name] for name in ("cache", "reports")}
    settings = twelve.settings(stores, reader="spark")
    with sinks.running(settings) as running:
        for name in stores:
            running.until(lambda name=name: progress.records(name) >= 12 * 22)  # type: ignore[misc]
            assert progress.records(name) == 12 * 22 == progress.observed(name)
    for name in stores:
        store = opened(settings, name)
        for table in twelve.tables:
            twelve.assert_shown(store, table)


@pytest.mark.slow
def test_each_record_is_read_once_for_all_stores_of_one_query(
    pipeline: HandMadeLog,
    sinks: Sinks,
    opened: Opened,
    all_stores: dict[str, Any],
    progress: Progress,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="spark")
    settings = pipeline.settings(all_stores, reader="spark", fan_out=True)
    pipeline.put(row(number) for number in range(40))
    pipeline.progress()
    sinks.catch_up(pipeline.settings(all_stores))
    everyone = ",".join(all_stores)
    with sinks.running(settings) as running:
        running.until(
            lambda: any(
                one.getMessage() == "stores_share_a_query" and vars(one)["sinks"] == everyone for one in caplog.records
            )
        )
        pipeline.put(row(number, "paid") for number in range(300))
        lsn = pipeline.progress()
        for name in all_stores:
            running.until(lambda name=name: reached(opened(settings, name), lsn))  # type: ignore[misc]
        running.until(lambda: progress.records("shared") >= 300)
        assert progress.records("shared") == 300
    for name in all_stores:
        pipeline.assert_shown(opened(settings, name))


def figures_at(address: str) -> dict[tuple[str, str], float]:
    """(figure, query) -> value. Nothing while nobody answers."""
    try:
        with urlopen(f"http://{address}/metrics", timeout=10) as page:
            text = page.read().decode()
    except OSError:
        return {}
    found = re.findall(r'^(cdc_query_\w+)\{pipeline="\w+",query="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {(name, query): float(value) for name, query, value in found}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_spark_names_the_jobs_and_its_figures_are_served(
    pipeline: HandMadeLog, sinks: Sinks, redis_url: str, spark_session: SparkSession, way: str
) -> None:
    address = f"127.0.0.1:{free_ports(['kafka'])['kafka']}"
    stores = {"cache": {"kind": "redis", "url": redis_url}}
    settings = pipeline.settings(stores, http_address=address, **WAYS[way])
    pipeline.put(row(number) for number in range(40))
    pipeline.progress()
    with sinks.running(settings) as running:
        running.until(lambda: figures_at(address).get(("cdc_query_records_total", "cache")) == 40)
        found = figures_at(address)
        assert found["cdc_query_known", "cache"] == 1
        assert found["cdc_query_batches_total", "cache"] >= 1
        running.until(lambda: figures_at(address).get(("cdc_query_offsets_behind", "cache")) == 0)
        store: Any = spark_session.sparkContext._jsc.sc().statusStore()
        jobs = store.jobsList(None)
        described = {jobs.apply(number).description().toString() for number in range(jobs.size())}
    assert any(re.match(r"Some\(cache-\d+\n.*batch = \d+", text, re.DOTALL) for text in described), described


def reached(store: OpenSink, lsn: int) -> bool:
    mark = store.watermarks.read()
    return mark is not None and mark.lsn >= lsn


@pytest.mark.slow
def test_h298_the_markers_of_transactions_hold_no_batch_up(
    pipeline: HandMadeLog, sinks: Sinks, opened: Opened, redis_url: str
) -> None:
    """They take offsets, and no reader sees them."""
    producer = Producer(
        {"bootstrap.servers": pipeline.bootstrap_servers, "transactional.id": pipeline.name, "partitioner": "murmur2"}
    )
    producer.init_transactions(30)
    pipeline.put(row(number) for number in range(10))
    for number in range(3):
        producer.begin_transaction()
        for partition in range(pipeline.partitions):
            headers: Any = pipeline.headers()
            producer.produce(pipeline.topic(), b"aborted", b"%d" % number, partition, headers=headers)
        producer.flush(30)
        producer.abort_transaction(30)
    lsn = pipeline.progress()
    settings = pipeline.settings({"cache": {"kind": "redis", "url": redis_url}}, reader="spark")
    sinks.catch_up(settings)
    store = opened(settings, "cache")
    pipeline.assert_shown(store)
    mark = store.watermarks.read()
    assert mark is not None and (mark.lsn, mark.offsets) == (lsn, pipeline.offsets())


@pytest.mark.slow
def test_h478_many_partitions_are_several_sources_of_one_query(
    kafka: str,
    topic_prefix: str,
    sinks: Sinks,
    opened: Opened,
    all_stores: dict[str, Any],
    progress: Progress,
) -> None:
    tables = [f"t{number}" for number in range(6)]
    log = HandMadeLog(topic_prefix, kafka, partitions=180, tables=tables)
    log.init()
    settings = log.settings({"cache": all_stores["cache"]}, reader="spark")
    store = opened(settings, "cache")
    written = 0
    for turn in range(2):
        with sinks.running(settings) as running:
            for some in (tables, tables[:2]):
                for table in some:
                    log.put((row(number, f"turn {turn} of {len(some)}") for number in range(15)), table=table)
                written += 15 * len(some)
                log.progress()
                running.until(lambda: shown(log, store))
            running.until(lambda most=written: progress.records("cache") >= most)  # type: ignore[misc]
            assert progress.records("cache") == written == progress.observed("cache")
    assert {len(one.sources) for one in progress.seen} == {3}
    marked = store.watermarks.read()
    assert marked is not None
    assert sum(len(parts) for parts in marked.offsets.values()) == 6 * 180


def shown(log: HandMadeLog, store: OpenSink) -> bool:
    return all(log.shown(store, table) == log.rows[table] for table in log.tables)
