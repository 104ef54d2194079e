"""A standalone cluster of two workers of one core each, beside ``local[2]``: a filled topic into cache and warehouse.

One million events of about 650 bytes on 250,000 keys in four partitions. Master, workers and driver are processes of
this machine, as are Kafka and the stores, so both sides have the same two cores. Each store is filled from the start by
a ``cdc sink --until-caught-up`` of its own on either, in turn, so many times; topic records over the time from the
start of the first batch, when both executors are there, to the last watermark, as its log states them. CPU is that of
the application's processes and of the workers' with their executors, Java's among them, over the same time. A ratio is
of the two runs of a turn, and its range is the noise.
"""

from __future__ import annotations

import secrets
from typing import Any

from tests.bench import sinks
from tests.bench.setting import RUNS, Bench, spread
from tests.integration.spark.handmade import HandMadeLog
from tests.standalone_cluster import Cluster, bare_cluster

WORKERS = 2


def bench(bench: Bench) -> None:
    events = bench.rows(1_000_000)
    servers = bench.stack.ensure("kafka", "redis")
    stores: dict[str, dict[str, Any]] = {
        "cache": {"kind": "redis", "url": servers["redis"]["url"]},
        "warehouse": {"kind": "delta"},
    }
    topics = HandMadeLog(f"b{secrets.token_hex(4)}", servers["kafka"]["bootstrap_servers"], partitions=4)
    topics.init()
    folder = bench.folder / "cluster"
    folder.mkdir()
    try:
        topics.put(sinks.rows(events))
        topics.progress()
        with bare_cluster(folder) as cluster:
            for _ in range(WORKERS):
                cluster.add_worker()
            for store, options in stores.items():
                _compare(bench, topics, cluster, {store: options}, events)
    finally:
        topics.admin.delete([name for name in topics.admin.names() if name.startswith(f"{topics.name}.")])


def _compare(
    bench: Bench, topics: HandMadeLog, cluster: Cluster, store: dict[str, dict[str, Any]], events: int
) -> None:
    ((name, options),) = store.items()
    ways: dict[str, dict[str, Any]] = {
        "local": {"master": f"local[{WORKERS}]"},
        "cluster": {"master": cluster.url, "conf": _conf()},
    }
    found: dict[str, list[sinks.Filled]] = {way: [] for way in ways}
    for number in range(RUNS):
        for way in ways if number % 2 == 0 else reversed(ways):
            workers = [worker.process.pid for worker in cluster.started] if way == "cluster" else []
            bench.say(f"{name}, {ways[way]['master']}:")
            found[way].append(sinks.fill(bench, topics, name, options, events, workers, **ways[way]))
    for way, filled in found.items():
        bench.say(
            f"{name}, {way}: {spread([one.per_s for one in filled])} events/s, "
            f"{spread([one.cpu_us for one in filled], 1)} us CPU each"
        )
    turns = list(zip(found["cluster"], found["local"], strict=True))
    bench.say(f"{name}, rate of the cluster / local: {spread([one.per_s / two.per_s for one, two in turns], 2)}")
    bench.say(f"{name}, CPU of the cluster / local: {spread([one.cpu_us / two.cpu_us for one, two in turns], 2)}")


def _conf() -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.cores.max": str(WORKERS),
        # Both executors are there before the first batch begins.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
