"""From commit to topic at 500 single-row transactions per second for a minute.

One session commits single-row inserts on a schedule; each row holds the time just before its COMMIT was sent. A
consumer beside it notes when each record arrives. So the figure includes the commit itself and the consumer's
fetch. The run is cut in two halves, whose difference is the noise.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from threading import Thread

import orjson
import psycopg
from confluent_kafka import Consumer, TopicPartition

from cdc.process.clock import SYSTEM_CLOCK
from cdc.settings.model import Settings
from connectors.kafka.clients import reader_config
from tests.bench.setting import Bench
from tests.waiting import wait_until

RATE = 500
SECONDS = 60
_WARM = 2 * RATE


def bench(bench: Bench) -> None:
    count = int(RATE * max(4.0, SECONDS * bench.scale))
    with ExitStack() as stack:
        dsn = stack.enter_context(bench.database())
        source = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        source.execute("create table ticks (id bigint primary key, sent_us bigint not null)")
        pipeline = stack.enter_context(bench.pipeline(dsn, ["public.ticks"]))
        pipeline.cdc("init")
        pipeline.cdc("snapshot", "--none")
        with pipeline.running("run") as capture:
            wait_until(lambda: capture.said("streaming"), 60, "cdc run to stream")
            writer = Thread(target=write_ticks, args=(source, count), daemon=True)
            writer.start()
            delays_ms = arrivals(pipeline.settings, count)[_WARM:]
            writer.join()
            cpu = capture.cpu_s()
    half = len(delays_ms) // 2
    bench.say(f"commit to topic: p50 {share(delays_ms, 0.5):.1f} ms   (goal 15)")
    bench.say(f"commit to topic: p99 {share(delays_ms, 0.99):.1f} ms   (goal 60)")
    bench.say(f"cdc run used {cpu / (count / RATE):.2f} of a core, its start included")
    first, second = delays_ms[:half], delays_ms[half:]
    bench.say(
        f"A/A: p50 {share(first, 0.5):.1f} and {share(second, 0.5):.1f} ms, "
        f"p99 {share(first, 0.99):.1f} and {share(second, 0.99):.1f} ms"
    )


def write_ticks(source: psycopg.Connection[tuple[object, ...]], count: int) -> None:
    start = time.perf_counter()
    for number in range(count):
        due = start + number / RATE
        while (left := due - time.perf_counter()) > 0:
            SYSTEM_CLOCK.sleep(left)
        source.execute("insert into ticks values (%s, %s)", [number, time.time_ns() // 1000])


def arrivals(settings: Settings, count: int) -> list[float]:
    """Milliseconds from each row's time to its record's arrival, in order of arrival."""
    topic, partitions = f"{settings.name}.public.ticks", settings.log.partitions
    config = reader_config(settings.log) | {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    consumer = Consumer(config | {"enable.partition.eof": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    delays_ms: list[float] = []
    try:
        while len(delays_ms) < count:
            message = consumer.poll(30)
            assert message is not None, "no record for 30 s"
            now_us = time.time_ns() / 1000
            value = message.value()
            if message.error() is None and isinstance(value, bytes):
                delays_ms.append((now_us - orjson.loads(value)["after"]["sent_us"]) / 1000)
    finally:
        consumer.close()
    return delays_ms


def share(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
