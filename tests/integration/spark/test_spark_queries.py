"""A query as Spark has it: its sources, its jobs' names, its figures."""

from __future__ import annotations

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
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog

Opened = Callable[[Settings, str], OpenSink]


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


@pytest.fixture
def progress(spark_session: SparkSession) -> Iterator[Progress]:
    listener = Progress()
    spark_session.streams.addListener(listener)
    yield listener
    spark_session.streams.removeListener(listener)


def row(number: int, note: str = "open") -> dict[str, Any]:
    return {"id": number, "status": note, "total": "1.00"}


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
def test_spark_names_the_jobs_and_its_figures_are_served(
    pipeline: HandMadeLog, sinks: Sinks, redis_url: str, spark_session: SparkSession
) -> None:
    address = f"127.0.0.1:{free_ports(['kafka'])['kafka']}"
    stores = {"cache": {"kind": "redis", "url": redis_url}}
    settings = pipeline.settings(stores, http_address=address, driver_batch_rows=0)
    pipeline.put(row(number) for number in range(40))
    pipeline.progress()
    with sinks.running(settings) as running:
        running.until(lambda: figures_at(address).get(("cdc_query_batches_total", "cache"), 0) >= 1)
        assert figures_at(address)["cdc_query_known", "cache"] == 1
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
    settings = pipeline.settings({"cache": {"kind": "redis", "url": redis_url}})
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
    settings = log.settings({"cache": all_stores["cache"]})
    store = opened(settings, "cache")
    for turn in range(2):
        with sinks.running(settings) as running:
            for some in (tables, tables[:2]):
                for table in some:
                    log.put((row(number, f"turn {turn} of {len(some)}") for number in range(15)), table=table)
                log.progress()
                running.until(lambda: shown(log, store))
    assert {len(one.sources) for one in progress.seen} == {3}
    marked = store.watermarks.read()
    assert marked is not None
    assert sum(len(parts) for parts in marked.offsets.values()) == 6 * 180


def shown(log: HandMadeLog, store: OpenSink) -> bool:
    return all(log.shown(store, table) == log.rows[table] for table in log.tables)
