"""One million row changes drained from a slot into Kafka, beside pg_recvlogical on the same WAL.

500,000 inserts, 400,000 updates and 100,000 deletes of seven columns in 1,000-row transactions are written
first. Then the same WAL is read four times, in turn: by pg_recvlogical into /dev/null and by ``cdc run`` into
a topic, each from a slot of its own made before the first row. Ours is timed from the line ``streaming`` in its
log until the topic's end offsets have reached the number of records due; pg_recvlogical from its start to its
end. CPU is that of the whole process, librdkafka's threads included, over the same time; memory is its peak.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack

import psycopg

from cdc.stack.postgres import install_folder
from connectors.kafka.admin import TopicAdmin
from tests.bench.setting import Bench, Pipeline
from tests.waiting import wait_until

TABLE = """
create table orders (
    id bigint primary key, customer int not null, status text not null, total numeric(12,2), note text,
    paid boolean, placed timestamptz not null default now())
"""
INSERT = """
insert into orders
select g, g %% 1000, 'open', (g %% 10000) / 100.0, 'note of order number ' || g, g %% 2 = 0, now()
from generate_series(%s::int8, %s::int8) g
"""
UPDATE = "update orders set status = 'paid', total = total + 1 where id between %s and %s"
DELETE = "delete from orders where id between %s and %s"
_ROWS = 1000


def bench(bench: Bench) -> None:
    inserts, updates, deletes = (bench.rows(full, _ROWS) for full in (500_000, 400_000, 100_000))
    changes, records = inserts + updates + deletes, inserts + updates + 2 * deletes
    with ExitStack() as stack:
        dsn = stack.enter_context(bench.database())
        source = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        source.execute(TABLE)
        pipelines = [stack.enter_context(bench.pipeline(dsn, ["public.orders"])) for _ in range(2)]
        for pipeline in pipelines:
            pipeline.cdc("init")
            pipeline.cdc("snapshot", "--none")
        publication = pipelines[0].settings.publication
        slots = [f"{pipeline.settings.slot}_recv" for pipeline in pipelines]
        for slot in slots:
            source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        write_changes(source, inserts, updates, deletes)
        received, ours = [], []
        for slot, pipeline in zip(slots, pipelines, strict=True):
            received.append(_receive(source, dsn, slot, publication))
            bench.say(f"pg_recvlogical: {received[-1]:.2f} s, {changes / received[-1]:,.0f} changes/s")
            ours.append(_capture(pipeline, records))
            wall, cpu, peak = ours[-1]
            bench.say(
                f"cdc run: {wall:.2f} s, {changes / wall:,.0f} changes/s, "
                f"{cpu / changes * 1e6:.1f} us CPU per change, peak {peak:.0f} MB"
            )
    ratio = sum(received) / sum(wall for wall, _, _ in ours)
    bench.say(f"rate of cdc run / rate of pg_recvlogical: {ratio:.2f}   (goal 0.32)")
    bench.say(f"CPU per change: {sum(cpu for _, cpu, _ in ours) / 2 / changes * 1e6:.1f} us   (goal 10)")
    bench.say(f"peak memory: {max(peak for _, _, peak in ours):.0f} MB   (goal 200)")
    bench.say(f"A/A: pg_recvlogical {_noise(received)}, cdc run {_noise([wall for wall, _, _ in ours])}")


def write_changes(source: psycopg.Connection[tuple[object, ...]], inserts: int, updates: int, deletes: int) -> None:
    for statement, first, last in ((INSERT, 0, inserts), (UPDATE, 0, updates), (DELETE, updates, updates + deletes)):
        for start in range(first, last, _ROWS):
            source.execute(statement, [start + 1, start + _ROWS])


def _receive(source: psycopg.Connection[tuple[object, ...]], dsn: str, slot: str, publication: str) -> float:
    row = source.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    argv = [str(install_folder() / "bin" / "pg_recvlogical"), "-d", dsn, "-S", slot, "--start", "-f", "/dev/null"]
    argv += ["-o", "proto_version=1", "-o", f"publication_names={publication}", f"--endpos={row[0]}"]
    start = time.perf_counter()
    subprocess.run(argv, check=True)
    return time.perf_counter() - start


def _capture(pipeline: Pipeline, records: int) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds, peak MB."""
    topic, partitions = f"{pipeline.settings.name}.public.orders", pipeline.settings.log.partitions
    admin = TopicAdmin(pipeline.settings.log)
    with pipeline.running("run") as capture:
        wait_until(lambda: capture.said("streaming"), 60, "cdc run to stream")
        start, cpu = time.perf_counter(), capture.cpu_s()
        wait_until(
            lambda: sum(admin.end_offsets({topic: partitions})[topic].values()) >= records,
            600,
            f"{records} records in {topic}",
        )
        return time.perf_counter() - start, capture.cpu_s() - cpu, capture.peak_mb()


def _noise(values: list[float]) -> str:
    return f"{abs(values[0] - values[1]) / min(values):.0%}"
