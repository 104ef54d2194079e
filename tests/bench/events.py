"""What an outbox and histories cost capture: the same WAL drained with and without them, in turn.

Inserts and updates of seven columns in transactions of 100 rows. Each transaction also inserts a row into an outbox
table, which it deletes again, and writes a logical message. Every pipeline has a slot of its own, made before the first
row. Each way drains three times: with the table alone, with both kinds of events (two more records for each 100), and
with a history of the table. Timed from when the table's topic has a quarter of the records, as the first event waits
for its topic to be made, until it has all; with a history both topics. CPU is capture's own, over the same time.
``cdc sink`` then puts each of the histories into a Delta table, beside a table that has no rows.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

import psycopg

from connectors.kafka.admin import TopicAdmin
from tests.bench.capture import INSERT, TABLE
from tests.bench.setting import RUNS, Bench, Pipeline, cpu_of, spread
from tests.bench.sinks import Filled, sink_run
from tests.waiting import wait_until

OUTBOX = (
    "create table outbox (id uuid primary key default gen_random_uuid(), aggregatetype text, aggregateid text, "
    "type text, payload jsonb)"
)
EVENT = (
    "insert into outbox (aggregatetype, aggregateid, type, payload) values ('Order', %s::text, 'Placed', '{\"n\": 1}')"
)
MESSAGE = """
select pg_logical_emit_message(true, 'outbox', json_build_object(
    'id', %s::text, 'aggregatetype', 'Order', 'aggregateid', %s::text, 'type', 'Paid', 'payload', 1)::text)
"""
RESTING = "create table resting (id int primary key)"
_ROWS = 100
WAYS = {
    "table alone": "",
    "with an outbox": '[outbox]\ntable = "public.outbox"\nmessage = "outbox"\n',
    "with a history": '[history]\ntables = ["public.orders"]\n',
}


def bench(bench: Bench) -> None:
    rows = bench.rows(1_000_000, _ROWS)
    with ExitStack() as stack:
        dsn = stack.enter_context(bench.database())
        source = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        source.execute(TABLE)
        source.execute("alter table orders replica identity full")
        source.execute(OUTBOX)
        source.execute(RESTING)
        pipelines = {way: [_made(bench, stack, dsn, section) for _ in range(RUNS)] for way, section in WAYS.items()}
        _write(source, rows)
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        cpu_us: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(RUNS):
            for way in list(WAYS)[:: 1 if number % 2 == 0 else -1]:
                rate, each = _drained(pipelines[way][number], rows, history="history" in way)
                rates[way].append(rate)
                cpu_us[way].append(each)
                bench.say(f"{way}: {rate:,.0f} changes/s, {each:.1f} us CPU each")
        kept = [_kept(bench, pipeline, rows) for pipeline in pipelines["with a history"]]
    plain = rates["table alone"]
    for way in ("with an outbox", "with a history"):
        ratios = [one / other for one, other in zip(rates[way], plain, strict=True)]
        goal = "0.95" if "outbox" in way else "0.65"
        bench.say(f"rate {way} / with the table alone: {spread(ratios, 2)}   (goal {goal})")
        ratios = [one / other for one, other in zip(cpu_us["table alone"], cpu_us[way], strict=True)]
        bench.say(f"the same by CPU: {spread(ratios, 2)}")
    bench.say(f"a history into Delta: {spread([one.per_s for one in kept])} events/s   (goal 100,000)")


def _made(bench: Bench, stack: ExitStack, dsn: str, section: str) -> Pipeline:
    pipeline = stack.enter_context(bench.pipeline(dsn, ["public.orders", "public.resting"]))
    with pipeline.config.open("a", encoding="utf-8") as config:
        config.write(section)
    pipeline.cdc("init")
    pipeline.cdc("snapshot", "--none")
    return pipeline


def _write(source: psycopg.Connection[tuple[object, ...]], rows: int) -> None:
    for start in range(0, rows, _ROWS):
        with source.transaction():
            source.execute(INSERT, [start + 1, start + _ROWS])
            source.execute(EVENT.encode(), [start])
            source.execute(b"delete from outbox")
            source.execute(MESSAGE.encode(), [start, start])


def _drained(pipeline: Pipeline, records: int, *, history: bool) -> tuple[float, float]:
    """Records a second, and us of CPU each, from the first quarter on."""
    name, partitions = pipeline.settings.name, pipeline.settings.log.partitions
    topics = [f"{name}.public.orders", *([f"{name}.public.orders.history"] if history else [])]
    admin = TopicAdmin(pipeline.settings.log)

    def written() -> int:
        ends = admin.end_offsets(dict.fromkeys(topics, partitions))
        return min(sum(parts.values()) for parts in ends.values())

    with pipeline.running("run") as capture:
        wait_until(lambda: capture.said("streaming"), 60, "cdc run to stream")
        wait_until(lambda: written() >= records // 4, 600, f"a quarter of {records} records in {topics}")
        before, begun, used = written(), time.perf_counter(), cpu_of(capture.process.pid)
        wait_until(lambda: written() >= records, 600, f"{records} records in {topics}")
        each = (cpu_of(capture.process.pid) - used) / (records - before) * 1e6
        return (records - before) / (time.perf_counter() - begun), each


def _kept(bench: Bench, pipeline: Pipeline, records: int) -> Filled:
    """What of a history ``cdc sink`` puts into a Delta table a second."""
    folder = bench.folder / pipeline.settings.name
    sections = f"""
[spark]
http_address = ""
checkpoint = "{folder}/checkpoints"
[sinks.lake]
kind = "delta"
path = "{folder}/lake"
tables = ["public.resting"]
history = ["public.orders"]
"""
    with pipeline.config.open("a", encoding="utf-8") as config:
        config.write(sections)
    found, took = sink_run(pipeline.config, records)
    bench.say(f"kept: {found.per_s:,.0f} events/s, {found.cpu_us:.1f} us CPU each (batches of {took} s)")
    return found
