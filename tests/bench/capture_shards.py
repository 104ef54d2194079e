"""Changes of two tables drained into Kafka by one capture, and by two shards of capture on the same WAL.

Half of the changes are of each table, in transactions of 1,000 rows in turn. Each side has slots of its own, made
before the first row, and drains the same WAL three times, in turn. Timed from the start of the processes until the
topics have every record. CPU is that of each process of capture, its start included, and of its walsender. A side's
noise is the range of its runs.

Each part wants a core (two captures, two walsenders, the broker): on two cores the second shard has none of its own,
and the ratio of the rates says only that it runs. The ratio of the CPU says the same on any machine: what two slots
cost that one does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import psycopg

from connectors.kafka.admin import TopicAdmin
from tests.bench.capture import INSERT, TABLE, UPDATE
from tests.bench.setting import RUNS, Bench, Pipeline, cpu_of, spread
from tests.waiting import wait_until

TABLES = ("orders", "lines")
_ROWS = 1000
_WALSENDER = "select active_pid from pg_replication_slots where slot_name = %s and active_pid is not null"


class Cpu(NamedTuple):
    """Seconds of one capture and of its walsender."""

    capture_s: float
    walsender_s: float


@dataclass(frozen=True, slots=True)
class Drained:
    """One side, once. ``parts``: by shard, "" for a capture without."""

    wall_s: float
    parts: dict[str, Cpu]

    @property
    def cpu_s(self) -> float:
        """All captures and walsenders together."""
        return sum(part.capture_s + part.walsender_s for part in self.parts.values())

    def words(self, changes: int) -> str:
        """Rate and CPU, by part: its cores are CPU over wall time."""
        cores = {
            shard: Cpu(cpu.capture_s / self.wall_s, cpu.walsender_s / self.wall_s) for shard, cpu in self.parts.items()
        }
        parts = ", ".join(
            f"{shard or 'capture'} {cpu.capture_s:.2f} + walsender {cpu.walsender_s:.2f} cores"
            for shard, cpu in cores.items()
        )
        each_us = self.cpu_s / changes * 1e6
        return f"{self.wall_s:.2f} s, {changes / self.wall_s:,.0f} changes/s, {each_us:.1f} us CPU per change: {parts}"


def bench(bench: Bench) -> None:
    inserts, updates = (bench.rows(full, _ROWS) for full in (250_000, 250_000))
    changes = len(TABLES) * (inserts + updates)
    names = [f"public.{table}" for table in TABLES]
    shards = {f"s{number}": [name] for number, name in enumerate(names)}
    sides = {"one capture": [""], "two shards": list(shards)}
    with ExitStack() as stack:
        dsn = stack.enter_context(bench.database())
        source = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        for table in TABLES:
            source.execute(_of(TABLE, table))
        made: dict[str, list[Pipeline]] = {}
        for side, parts in sides.items():
            divided = shards if len(parts) > 1 else None
            made[side] = [stack.enter_context(bench.pipeline(dsn, names, shards=divided)) for _ in range(RUNS)]
            for pipeline in made[side]:
                pipeline.cdc("init")
                pipeline.cdc("snapshot", "--none")
        _write(source, INSERT, inserts)
        _write(source, UPDATE, updates)
        found: dict[str, list[Drained]] = {side: [] for side in sides}
        for number in range(RUNS):
            for side in list(sides) if number % 2 == 0 else reversed(list(sides)):
                found[side].append(_drain(source, made[side][number], sides[side], changes))
                bench.say(f"{side}: {found[side][-1].words(changes)}")
    _conclude(bench.say, found, changes)


def _conclude(say: Callable[[str], None], found: dict[str, list[Drained]], changes: int) -> None:
    for side, runs in found.items():
        say(f"{side}: {spread([changes / one.wall_s for one in runs])} changes/s")
    whole, divided = found.values()
    pairs = list(zip(whole, divided, strict=True))
    say(f"rate of two shards / rate of one capture: {spread([one.wall_s / two.wall_s for one, two in pairs], 2)}")
    say(f"CPU of two shards / CPU of one capture: {spread([two.cpu_s / one.cpu_s for one, two in pairs], 2)}")
    for side, runs in found.items():
        walls = [one.wall_s for one in runs]
        say(f"noise of {side}: {(max(walls) - min(walls)) / median(walls):.0%} between its runs")


def _write(source: psycopg.Connection[tuple[object, ...]], statement: str, rows: int) -> None:
    for start in range(0, rows, _ROWS):
        for table in TABLES:
            source.execute(_of(statement, table), [start + 1, start + _ROWS])


def _of(statement: str, table: str) -> str:
    return statement.replace("orders", table)


def _drain(
    source: psycopg.Connection[tuple[object, ...]], pipeline: Pipeline, parts: list[str], records: int
) -> Drained:
    counts = {f"{pipeline.settings.name}.public.{table}": pipeline.settings.log.partitions for table in TABLES}
    admin = TopicAdmin(pipeline.settings.log)

    def held() -> int:
        return sum(sum(ends.values()) for ends in admin.end_offsets(counts).values())

    def walsender(shard: str) -> int:
        slot = f"{pipeline.settings.slot}__{shard}" if shard else pipeline.settings.slot
        row = source.execute(_WALSENDER, [slot]).fetchone()
        return int(str(row[0])) if row is not None else 0

    begun = time.perf_counter()
    with ExitStack() as stack:
        named = {shard: ("--shard", shard) if shard else () for shard in parts}
        captures = {shard: stack.enter_context(pipeline.running("run", *option)) for shard, option in named.items()}
        for capture in captures.values():
            wait_until(lambda: capture.said("streaming"), 120, "cdc run to stream")  # noqa: B023 - run at once
        senders = {shard: walsender(shard) for shard in parts}
        wait_until(lambda: held() >= records, 900, f"{records} records")
        wall_s = time.perf_counter() - begun
        return Drained(wall_s, {shard: Cpu(captures[shard].cpu_s(), cpu_of(senders[shard])) for shard in parts})
