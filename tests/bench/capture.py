"""One million row changes drained from a slot into Kafka, beside pg_recvlogical on the same WAL.

500,000 inserts, 400,000 updates and 100,000 deletes of seven columns in 1,000-row transactions are written first.
Then each side reads the same WAL three times, in turn: pg_recvlogical into /dev/null, ``cdc run`` into a topic, and
a loop that only takes frames from our socket, which is the ceiling of what ``cdc run`` can reach. Each has a slot
of its own made before the first row. All are timed from the start of their process (the bare loop: of its session)
until the topic's end offsets have reached the number of records due, or the WAL's end is there. ``cdc run`` is also
given from the line ``streaming`` in its log. CPU is that of the whole process, all threads, over the same time;
memory is its peak.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

import psycopg

from cdc.settings.model import Settings
from cdc.stack.postgres import install_folder
from connectors.kafka.admin import TopicAdmin
from connectors.postgres.server.connections import connect
from connectors.postgres.server.transport import open_link
from tests.bench.setting import RUNS, Bench, Pipeline, cpu_of, peak_of, spread
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
        pipelines = [stack.enter_context(bench.pipeline(dsn, ["public.orders"])) for _ in range(RUNS)]
        for pipeline in pipelines:
            pipeline.cdc("init")
            pipeline.cdc("snapshot", "--none")
        publication = pipelines[0].settings.publication
        for pipeline in pipelines:
            for side in ("recv", "bare"):
                slot = f"{pipeline.settings.slot}_{side}"
                source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        write_changes(source, inserts, updates, deletes)
        received: list[Drain] = []
        bare: list[Drain] = []
        ours: list[Drain] = []
        for number, pipeline in enumerate(pipelines):
            slot = pipeline.settings.slot
            turns: list[tuple[str, list[Drain], Callable[[], Drain]]] = [
                ("pg_recvlogical", received, partial(_receive, source, dsn, f"{slot}_recv", publication)),
                ("bare socket", bare, partial(_bare, pipeline.settings, source, f"{slot}_bare", publication)),
                ("cdc run", ours, partial(_capture, pipeline, records)),
            ]
            for name, found, measure in turns if number % 2 == 0 else reversed(turns):
                found.append(measure())
                bench.say(f"{name}: {found[-1].words(changes)}")
    for name, found in (("pg_recvlogical", received), ("bare socket", bare), ("cdc run", ours)):
        bench.say(f"{name}: {spread([changes / one.wall_s for one in found])} changes/s, "
                  f"{spread([one.cpu_s / changes * 1e6 for one in found], 1)} us CPU per change")  # fmt: skip
    streaming = [changes / one.streaming_s for one in ours]
    bench.say(f"cdc run from its first frame on: {spread(streaming)} changes/s")
    ratios = [one.wall_s / other.wall_s for one, other in zip(received, ours, strict=True)]
    bench.say(f"rate of cdc run / rate of pg_recvlogical, from process start: {spread(ratios, 2)}")
    ratios = [one.wall_s / other.streaming_s for one, other in zip(received, ours, strict=True)]
    bench.say(f"rate of cdc run from its first frame on / rate of pg_recvlogical: {spread(ratios, 2)}   (goal 0.32)")
    ceiling = [one.wall_s / other.streaming_s for one, other in zip(bare, ours, strict=True)]
    bench.say(f"rate of cdc run from its first frame on / rate of the bare socket: {spread(ceiling, 2)}")
    bench.say(f"peak memory: {max(one.peak_mb for one in ours):.0f} MB   (goal 200)")


@dataclass(frozen=True, slots=True)
class Drain:
    """One side, once. ``streaming_s``: of ``wall_s`` what is left when the process has started."""

    wall_s: float
    streaming_s: float
    cpu_s: float
    peak_mb: float

    def words(self, changes: int) -> str:
        return (
            f"{self.wall_s:.2f} s ({self.streaming_s:.2f} s streaming), {changes / self.wall_s:,.0f} changes/s, "
            f"{self.cpu_s / changes * 1e6:.1f} us CPU per change, peak {self.peak_mb:.0f} MB"
        )


def write_changes(source: psycopg.Connection[tuple[object, ...]], inserts: int, updates: int, deletes: int) -> None:
    for statement, first, last in ((INSERT, 0, inserts), (UPDATE, 0, updates), (DELETE, updates, updates + deletes)):
        for start in range(first, last, _ROWS):
            source.execute(statement, [start + 1, start + _ROWS])


def _receive(source: psycopg.Connection[tuple[object, ...]], dsn: str, slot: str, publication: str) -> Drain:
    row = source.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    argv = [str(install_folder() / "bin" / "pg_recvlogical"), "-d", dsn, "-S", slot, "--start", "-f", "/dev/null"]
    argv += ["-o", "proto_version=1", "-o", f"publication_names={publication}", f"--endpos={row[0]}"]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True)
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Drain(wall_s, wall_s, cpu_s, 0.0)


def _bare(settings: Settings, source: psycopg.Connection[tuple[object, ...]], slot: str, publication: str) -> Drain:
    """Frames taken from the socket as the capture takes them, and thrown away."""
    row = source.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    end = int(str(row[0]))
    start, cpu_s = time.perf_counter(), cpu_of(os.getpid())
    connection = connect(settings.source, application_name="cdc bench", replication=True)
    with closing(connection), closing(open_link(connection, 1 << 30, lambda _: None)) as link:
        options = f"proto_version '1', publication_names '\"{publication}\"'"
        said = link.start(f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({options})'.encode())
        assert said is None, said
        begun, reached = time.perf_counter(), 0
        while reached < end:
            frames = link.receive(_FRAMES)
            if not frames:
                link.wait(1)
                continue
            # XLogData has where the WAL begins at 1 and where it ends at 9; a keepalive its end at 1.
            last = frames[-1]
            reached = int.from_bytes(last[9:17] if last[:1] == b"w" else last[1:9], "big")
        now = time.perf_counter()
        return Drain(now - start, now - begun, cpu_of(os.getpid()) - cpu_s, peak_of(os.getpid()))


_FRAMES = 10_000


def _capture(pipeline: Pipeline, records: int) -> Drain:
    topic, partitions = f"{pipeline.settings.name}.public.orders", pipeline.settings.log.partitions
    admin = TopicAdmin(pipeline.settings.log)
    start = time.perf_counter()
    with pipeline.running("run") as capture:
        wait_until(lambda: capture.said("streaming"), 60, "cdc run to stream")
        begun, cpu_s = time.perf_counter(), capture.cpu_s()
        wait_until(
            lambda: sum(admin.end_offsets({topic: partitions})[topic].values()) >= records,
            600,
            f"{records} records in {topic}",
        )
        now = time.perf_counter()
        return Drain(now - start, now - begun, capture.cpu_s() - cpu_s, capture.peak_mb())
