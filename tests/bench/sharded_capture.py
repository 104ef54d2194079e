"""Changes of two tables drained into Kafka by one capture, and by two shards of capture on the same WAL.

Half of the changes are of each table, in transactions of 1,000 rows in turn. Each side has slots of its own, made
before the first row, and drains the same WAL three times, in turn. Timed from the start of the processes until the
topics have every record. CPU is that of the processes of capture, their start included, and of their walsenders.

Both sides need more than one core each (a capture, a walsender, the broker): on two cores the second shard has none of
its own, and the ratio says nothing but that it runs.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg

from connectors.kafka.admin import TopicAdmin
from tests.bench.capture import INSERT, TABLE, UPDATE
from tests.bench.setting import RUNS, Bench, Pipeline, cpu_of, spread
from tests.waiting import wait_until

TABLES = ("orders", "lines")
_ROWS = 1000
_WHOLE: list[tuple[str, ...]] = [()]
_WALSENDERS = "select active_pid from pg_replication_slots where slot_name like %s and active_pid is not null"


@dataclass(frozen=True, slots=True)
class Drained:
    """One side, once."""

    wall_s: float
    capture_s: float
    walsender_s: float

    def words(self, changes: int) -> str:
        capture_us, walsender_us = self.capture_s / changes * 1e6, self.walsender_s / changes * 1e6
        return (
            f"{self.wall_s:.2f} s, {changes / self.wall_s:,.0f} changes/s, "
            f"{capture_us:.1f} us CPU of capture and {walsender_us:.1f} us of walsenders per change"
        )


def bench(bench: Bench) -> None:
    inserts, updates = (bench.rows(full, _ROWS) for full in (250_000, 250_000))
    changes = len(TABLES) * (inserts + updates)
    names = [f"public.{table}" for table in TABLES]
    with ExitStack() as stack:
        dsn = stack.enter_context(bench.database())
        source = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        for table in TABLES:
            source.execute(_of(TABLE, table))
        shards = {f"s{number}": [name] for number, name in enumerate(names)}
        whole = [stack.enter_context(bench.pipeline(dsn, names)) for _ in range(RUNS)]
        divided = [stack.enter_context(bench.pipeline(dsn, names, shards=shards)) for _ in range(RUNS)]
        each = [(one, part) for one in whole for part in _WHOLE]
        each += [(one, part) for one in divided for part in _parts(shards)]
        for pipeline, part in each:
            pipeline.cdc("init", *part)
            pipeline.cdc("snapshot", "--none", *part)
        _write(source, INSERT, inserts)
        _write(source, UPDATE, updates)
        found: dict[str, list[Drained]] = {"one capture": [], "two shards": []}
        for number in range(RUNS):
            turns = [("one capture", whole[number], _WHOLE), ("two shards", divided[number], _parts(shards))]
            for name, pipeline, parts in turns if number % 2 == 0 else reversed(turns):
                found[name].append(_drain(source, pipeline, parts, changes))
                bench.say(f"{name}: {found[name][-1].words(changes)}")
    for name, all_runs in found.items():
        bench.say(f"{name}: {spread([changes / one.wall_s for one in all_runs])} changes/s")
    pairs = zip(found["one capture"], found["two shards"], strict=True)
    bench.say(f"rate of two shards / rate of one capture: {spread([one.wall_s / two.wall_s for one, two in pairs], 2)}")


def _parts(shards: dict[str, list[str]]) -> list[tuple[str, ...]]:
    return [("--shard", shard) for shard in shards]


def _write(source: psycopg.Connection[tuple[object, ...]], statement: str, rows: int) -> None:
    for start in range(0, rows, _ROWS):
        for table in TABLES:
            source.execute(_of(statement, table), [start + 1, start + _ROWS])


def _of(statement: str, table: str) -> str:
    return statement.replace("orders", table)


def _drain(
    source: psycopg.Connection[tuple[object, ...]], pipeline: Pipeline, parts: list[tuple[str, ...]], records: int
) -> Drained:
    counts = {f"{pipeline.settings.name}.public.{table}": pipeline.settings.log.partitions for table in TABLES}
    admin = TopicAdmin(pipeline.settings.log)

    def held() -> int:
        return sum(sum(ends.values()) for ends in admin.end_offsets(counts).values())

    begun = time.perf_counter()
    with ExitStack() as stack:
        captures = [stack.enter_context(pipeline.running("run", *part)) for part in parts]
        for capture in captures:
            wait_until(lambda: capture.said("streaming"), 120, "cdc run to stream")  # noqa: B023 - run at once
        rows = source.execute(_WALSENDERS, [f"{pipeline.settings.slot}%"]).fetchall()
        wait_until(lambda: held() >= records, 900, f"{records} records")
        wall_s = time.perf_counter() - begun
        walsenders_s = sum(cpu_of(int(str(pid))) for (pid,) in rows)
        return Drained(wall_s, sum(capture.cpu_s() for capture in captures), walsenders_s)
