"""Topics that Debezium fills into a cache: read, translated and applied on executors, beside the driver alone.

200,000 updates of about 650 bytes on 50,000 keys in four partitions, once with embedded schemas and once without. The
same topic is read by both, in turn, three times each, by a ``cdc sink --until-caught-up`` of its own from the start;
topic records over the time from the start of the first batch to the last watermark, as its log states them. CPU is that
of all its processes, Java's among them, over the same time.
"""

from __future__ import annotations

import secrets
from typing import Any

from tests.bench import sinks
from tests.bench.setting import RUNS, Bench, spread
from tests.integration.spark.embedded import EmbeddedLog

_WAYS: dict[str, dict[str, Any]] = {"driver": {"driver_batch_rows": 10**9}, "executors": {"driver_batch_rows": 0}}


def bench(bench: Bench) -> None:
    events = bench.rows(200_000)
    servers = bench.stack.ensure("kafka", "redis")
    cache = {"kind": "redis", "url": servers["redis"]["url"]}
    for schemas in (True, False):
        topics = EmbeddedLog(f"b{secrets.token_hex(4)}", servers["kafka"]["bootstrap_servers"], partitions=4)
        topics.schemas = schemas
        topics.init()
        try:
            topics.put(sinks.rows(events))
            topics.progress()
            filled: dict[str, list[sinks.Filled]] = {way: [] for way in _WAYS}
            for number in range(RUNS):
                for way in _WAYS if number % 2 == 0 else reversed(_WAYS):
                    filled[way].append(sinks.fill(bench, topics, "cache", cache, events, **_WAYS[way]))
            what = "with embedded schemas" if schemas else "without schemas"
            for way, found in filled.items():
                bench.say(
                    f"{what}, {way}: {spread([one.per_s for one in found])} records/s, "
                    f"{spread([one.cpu_us for one in found], 1)} us CPU each"
                )
            turns = list(zip(filled["executors"], filled["driver"], strict=True))
            ratios = [one.per_s / two.per_s for one, two in turns]
            bench.say(f"{what}, rate of executors / driver: {spread(ratios, 2)}")
            ratios = [one.cpu_us / two.cpu_us for one, two in turns]
            bench.say(f"{what}, CPU of executors / driver: {spread(ratios, 2)}")
        finally:
            topics.admin.delete([name for name in topics.admin.names() if name.startswith(f"{topics.name}.")])
