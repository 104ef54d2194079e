"""One million existing rows into Kafka with two workers, beside COPY ... TO STDOUT of the same table.

Seven columns, about 650 bytes per record. COPY by psql into /dev/null and the snapshot into a fresh topic are run
in turn, twice. The snapshot is timed from its first chunk's start to its last one's end, when the broker holds
every record, and counted at the topic's end offsets. The time of the whole command is shown beside it: settings,
planning, making the slot, starting the workers. CPU and memory are the workers', librdkafka's threads included.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

import psycopg

from cdc.settings.model import Settings
from cdc.stack.postgres import install_folder
from cdc.wiring.pipeline import build_snapshot
from connectors.kafka.admin import TopicAdmin
from snapshot.source.ports import NoReport
from tests.bench.setting import Bench, Pipeline

TABLE = """
create table orders (
    id bigint primary key, customer int not null, status text not null, amount numeric(12,2),
    placed timestamptz not null, note text, express boolean)
"""
INSERT = """
insert into orders
select g, g %% 5000, (array['open', 'paid', 'sent'])[1 + g %% 3], (g %% 100000) / 100.0,
       '2026-01-01'::timestamptz + g * interval '1 second', 'note of order ' || g, g %% 2 = 0
from generate_series(1, %s::int8) g
"""
WORKERS = 2
GOAL = 115_000 / 1_300_000


def bench(bench: Bench) -> None:
    rows = bench.rows(1_000_000)
    copied, ours = [], []
    with ExitStack() as stack:
        dsn = stack.enter_context(bench.database())
        with psycopg.connect(dsn, autocommit=True) as source:
            source.execute(TABLE)
            source.execute(INSERT, [rows])
            source.execute("vacuum analyze orders")
        for _ in range(2):
            copied.append(rows / _copy(dsn))
            bench.say(f"COPY: {copied[-1]:,.0f} rows/s")
            pipeline = stack.enter_context(bench.pipeline(dsn, ["public.orders"]))
            pipeline.cdc("init")
            ours.append(_snapshot(bench, pipeline, rows))
    ratio = mean(ours) / mean(copied)
    bench.say(f"rate of cdc snapshot / rate of COPY: {ratio:.3f}   (goal {GOAL:.3f})")
    bench.say(f"A/A: COPY {_noise(copied)}, cdc snapshot {_noise(ours)}")


def _copy(dsn: str) -> float:
    argv = [str(install_folder() / "bin" / "psql"), dsn, "-qXc", "copy orders to stdout"]
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _snapshot(bench: Bench, pipeline: Pipeline, rows: int) -> float:
    """Rows per second."""
    # In a process of its own: a peak is that of all children that a process ever had.
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        rate, said = alone.submit(_measure, pipeline.settings, rows).result()
    bench.say(said)
    return rate


def _measure(settings: Settings, rows: int) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = build_snapshot(settings, NoReport(), workers=WORKERS).run()
    _end_fork_server()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    topic = f"{settings.name}.public.orders"
    ends = TopicAdmin(settings.log).end_offsets({topic: settings.log.partitions})[topic]
    assert sum(ends.values()) == summary.rows == rows, f"{ends} of {rows} rows"
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = (
        f"cdc snapshot: {summary.rows_per_s:,.0f} rows/s, {summary.size_bytes / summary.read_s / 1e6:.0f} MB/s, "
        f"{cpu_s / rows * 1e6:.1f} us CPU per row, peak {after.ru_maxrss / 1024:.0f} MB per worker, "
        f"{summary.elapsed_s:.1f} s in all"
    )
    return summary.rows_per_s, said


def _end_fork_server() -> None:
    """What workers used is known to their parent, and to us when that one has ended."""
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, path.read_text(encoding="ascii").split()):
            if b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _noise(values: list[float]) -> str:
    return f"{abs(values[0] - values[1]) / min(values):.0%}"
