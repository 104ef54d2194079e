"""2,000 tables of 4 partitions in one topic list, 1 % of them active: start, memory of the driver, and freshness.

Topics filled by hand, so that no Postgres counts, and one ``cdc sink`` for a cache, all on this machine. The start is
from the command to ``sink_started``, and to the first row in the cache. Then each active table gets a row a second for
ten minutes. A row's time starts when the broker has it and ends when its hash is there, looked at every 10 ms. Memory
is what the driver and its JVM have resident, read every 5 s. Its slope is that of the second half, by least squares.
With ``--scale 0.1`` there are 200 tables, and a minute of changes; with ``--scale 6`` an hour of them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

import redis

from cdc.capture.topic_specs import pipeline_topic_specs
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import LogError
from cdc.record.topic_names import schema_topic, state_topic
from connectors.kafka.admin import topics_state
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from tests.bench.setting import Bench, Pipeline, Running
from tests.integration.spark.family import below
from tests.integration.spark.handmade import HandMadeLog, orders_schema
from tests.waiting import wait_until

TABLES, PARTITIONS, ACTIVE = 2_000, 4, 0.01
SECONDS = 600
_TOPICS_AT_ONCE = 100
_LOOK_S, _MEMORY_S = 0.01, 5.0
_START_S = 900.0


def bench(bench: Bench) -> None:
    servers = bench.stack.ensure("kafka", "redis")
    count = max(1, round(TABLES * min(1.0, bench.scale)))
    tables = [f"t{number}" for number in range(count)]
    log = HandMadeLog(f"m{secrets.token_hex(4)}", servers["kafka"]["bootstrap_servers"], PARTITIONS, tables=tables)
    _make(log)
    # A broker answers that topics are made before it has made the folders of their partitions. What asks it meanwhile
    # waits for those, and that is not the start's own time.
    made_s = time.monotonic()
    wait_until(partial(_answers, log), _START_S)
    bench.say(f"the broker was ready {time.monotonic() - made_s:.0f} s after it had said so")
    active = tables[:: round(1 / ACTIVE)]
    url = str(servers["redis"]["url"])
    config = bench.folder / f"{log.name}.toml"
    stores = {"cache": {"kind": "redis", "url": url}}
    config.write_text(log.toml(stores, checkpoint=str(bench.folder / log.name)), encoding="utf-8")
    pipeline = Pipeline(log.settings(stores), config)
    _put(log, active, 0)
    began_s = time.monotonic()
    try:
        with pipeline.running("sink") as sink, redis.Redis.from_url(url) as cache:
            wait_until(lambda: sink.said("sink_started"), _START_S)
            started_s = time.monotonic() - began_s
            wait_until(lambda: _shows(cache, log, active, 0), _START_S)
            shown_s = time.monotonic() - began_s
            bench.say(
                f"{count:,} tables, {count * PARTITIONS:,} partitions, {len(active)} tables active: started in "
                f"{started_s:.0f} s (goal <= 60 s), first rows shown after {shown_s:.0f} s"
            )
            _measure(bench, log, active, sink, cache)
    finally:
        log.admin.delete([topic for topic in log.admin.names() if topic.startswith(f"{log.name}.")])


def _measure(bench: Bench, log: HandMadeLog, active: Sequence[str], sink: Running, cache: redis.Redis) -> None:
    fresh_s: list[float] = []
    memory: list[tuple[float, float]] = []
    began_s = time.monotonic()
    seconds = max(60.0, SECONDS * bench.scale)
    number = 0
    while (now_s := time.monotonic()) - began_s < seconds:
        number += 1
        _put(log, active, number)
        put_s = time.monotonic()
        wait_until(partial(_shows, cache, log, active, number), 120)
        fresh_s.append(time.monotonic() - put_s)
        if not memory or now_s - began_s - memory[-1][0] >= _MEMORY_S:
            memory.append((now_s - began_s, _resident_mb(sink.process.pid)))
        SYSTEM_CLOCK.sleep(max(0.0, now_s + 1.0 - time.monotonic()))
    fresh_s.sort()
    late = memory[len(memory) // 2 :]
    bench.say(
        f"fresh p50 {median(fresh_s):.3f} s, p99 {fresh_s[int(len(fresh_s) * 0.99)]:.3f} s   "
        f"(goal p50 <= 0.35 s, p99 <= 0.8 s), {len(fresh_s)} rounds"
    )
    bench.say(
        f"driver and JVM: {max(mb for _, mb in memory):,.0f} MB at most (goal <= 2,048 MB), "
        f"{_slope(late) * 3600:+,.0f} MB an hour over the last {late[-1][0] - late[0][0]:.0f} s"
    )


def _make(log: HandMadeLog) -> None:
    """What ``cdc init`` makes, in lots: one by one, 2,000 tables take longer than what is measured."""
    log.admin.create(pipeline_topic_specs(log.log, log.name))
    shapes = [orders_schema(log.name, table) for table in log.tables]
    for first in range(0, len(shapes), _TOPICS_AT_ONCE):
        log.admin.create([log.spec(shape.topic) for shape in shapes[first : first + _TOPICS_AT_ONCE]])
    registry = SchemaRegistry(KafkaCompactedTopic(log.log, schema_topic(log.name)))
    log.shapes.update((shape.table.table, shape) for shape in registry.register_all(shapes))
    topics = {str(shape.table): shape.topic for shape in shapes}
    state = topics_state(log.admin.describe(topics.values()), topics, log.admin.cluster_id(), "readable")
    KafkaCompactedTopic(log.log, state_topic(log.name)).write([(state.key(), state.to_json())])


def _answers(log: HandMadeLog) -> bool:
    """Whether the broker has every partition."""
    try:
        log.admin.end_offsets({shape.topic: PARTITIONS for shape in log.shapes.values()})
    except LogError:
        return False
    return True


def _put(log: HandMadeLog, tables: Sequence[str], number: int) -> None:
    for table in tables:
        log.put([{"id": number, "status": "new", "total": "1.00"}], table=table)


def _shows(cache: redis.Redis, log: HandMadeLog, tables: Sequence[str], number: int) -> bool:
    SYSTEM_CLOCK.sleep(_LOOK_S)
    pipe = cache.pipeline(transaction=False)
    for table in tables:
        pipe.exists(f"{log.name}:public.{table}:{number}")
    return all(pipe.execute())


def _resident_mb(pid: int) -> float:
    """Of a process and those below it."""
    pids = [pid, *(process.pid for process in below(pid))]
    lines = [line for one in pids for line in _status(one) if line.startswith("VmRSS:")]
    return sum(int(line.split()[1]) for line in lines) / 1024


def _status(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """By least squares.

    >>> _slope([(0, 1), (1, 3), (2, 5)])
    2.0
    """
    at = sum(x for x, _ in points) / len(points)
    of = sum(y for _, y in points) / len(points)
    width = sum((x - at) ** 2 for x, _ in points)
    return sum((x - at) * (y - of) for x, y in points) / width if width else 0.0
