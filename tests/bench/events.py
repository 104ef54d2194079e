"""What an outbox and histories cost capture, a warehouse, and who reads the past.

Capture: the same WAL drained with and without them, in turn.

Inserts and updates of seven columns in transactions of 100 rows. Each transaction also inserts a row into an outbox
table, which it deletes again, and writes a logical message. Every pipeline has a slot of its own, made before the first
row. Each way drains three times: with the table alone, with both kinds of events (two more records for each 100), and
with a history of the table. Timed from the line ``streaming`` in the log of ``cdc run`` until the table's topic has all
records; with a history until that has them, too.

Warehouse: batches of 250,000 records of a history of seven columns into Delta by the embedded engine, from the columns
of the log's reader to the commit, as one process does it. Past: three Delta tables with ten million versions of 100,000
rows each third, and ``as_of`` in their middle, with all rows counted.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from statistics import median

import psycopg
import pyarrow as pa

from cdc.read import as_of
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from connectors.kafka.admin import TopicAdmin
from sinks.contract.batch import Event
from sinks.contract.history_rows import history_shape
from sinks.contract.kinds import spec_for
from sinks.contract.registry import open_sink
from sinks.contract.table_places import SchemaBook, TablePlace
from spark.stores.apply import Rules, compact, sort_out
from tests.bench.capture import INSERT, TABLE
from tests.bench.setting import RUNS, Bench, Pipeline, spread
from tests.contract.histories import records_of
from tests.contract.topics import Topic, at, column, numeric, shape
from tests.lake_sessions import lake_spark
from tests.settings_file import write_settings
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
_ROWS = 100
ORDERS = shape(
    *(column("id", "int8", key=1), column("customer", "int4"), column("status", "text"), numeric("amount", 10, 2)),
    *(column("note", "text"), column("n", "int4"), column("placed", "timestamptz")),
)
HISTORY = history_shape(ORDERS)
BOOK = SchemaBook([ORDERS, HISTORY])
WAYS = {
    "table alone": "",
    "with an outbox": '[outbox]\ntable = "public.outbox"\nmessage = "outbox"\n',
    "with a history": '[history]\ntables = ["public.orders"]\n',
}


def bench(bench: Bench) -> None:
    _appended(bench)
    _past(bench)
    _captured(bench)


def _appended(bench: Bench) -> None:
    size, rates = bench.rows(250_000), []
    spec = spec_for("delta", prefix="shop", options={"path": str(bench.folder / "appended")})
    with closing(open_sink(spec)) as opened:
        opened.places.read(HISTORY)
        for number in range(4):
            records = _records(number * size, size)
            begun, cpu = time.perf_counter(), time.process_time()
            events = compact(sort_out(records, Rules(book=BOOK)).events, BOOK)
            opened.places.lead([(HISTORY, TablePlace(topic_id="bench", offsets={0: (number + 1) * size}))])
            opened.sink.apply(events, BOOK)
            opened.show()
            opened.places.settle()
            rates.append(size / (time.perf_counter() - begun))
            each_us = (time.process_time() - cpu) / size * 1e6
            bench.say(f"a history into Delta: {rates[-1]:,.0f} events/s, {each_us:.1f} us of CPU each")
    bench.say(f"a history into Delta: {median(rates):,.0f} events/s   (goal 100,000)")


def _records(first: int, count: int) -> pa.Table:
    topic, past = Topic(ORDERS), []
    for number in range(first, first + count):
        pos = at(number // _ROWS, number % _ROWS + 1)
        row = {"id": number % 50_000, "customer": 7, "status": "paid", "amount": "10.50", "note": "some text", "n": 1}
        moment = {"placed": "2016-11-04T11:51:30.120000Z"}
        value = topic.envelope("u", pos, after={**row, **moment})
        past.append(Event(HISTORY.topic, 0, number, b'{"id":%d}' % (number % 50_000), value, pos.text(), "u", 1))
    return records_of(past)


VERSIONS = """
select id % 100000 as id, id as n, 'u' as _op, timestamp_seconds(1700000000 + id div 1000) as _commit_ts,
       id div 1000 as _xid, cast(null as string) as _seen, pos as _pos, concat(pos, ':', id % 100000) as _key,
       false as _deleted, cast(null as timestamp) as _deleted_at, cast(null as map<string, string>) as _exact
from (select id, lower(concat('00000001', lpad(hex(16777216 + (id div 1000) * 8), 16, '0'),
                              lpad(hex(id % 1000 + 1), 8, '0'))) as pos from range({rows}))
union all select null, null, null, null, null, null, repeat('f', 32), '%place', true, null, map('%place', '{place}')
"""


def _past(bench: Bench) -> None:
    rows, names = bench.rows(10_000_000) // 3, ("orders", "lines", "customers")
    root, topics = bench.folder / "past", [f"shop.public.{name}.history" for name in names]
    sinks = {"lake": {"kind": "delta", "path": str(root)}}
    source, log = {"dsn": "host=127.0.0.1", "tables": ["public.*"]}, {"bootstrap_servers": "127.0.0.1:1"}
    config = write_settings(bench.folder, {"name": "shop", "source": source, "log": log, "sinks": sinks})
    with closing(open_sink(spec_for("delta", prefix="shop", options={"path": str(root)}))) as opened:
        offsets = {topic: {0: rows} for topic in topics}
        opened.watermarks.write(Watermark(epoch=1, lsn=1 << 40, offsets=offsets))
    # As a session of one's own is, and not as a sink has it.
    with lake_spark(bench.folder, {"spark.sql.adaptive.enabled": "true"}) as session:
        place = TablePlace(topic_id="bench", offsets={0: rows}).to_json().decode()
        for name in names:
            made = session.sql(VERSIONS.replace("{rows}", str(rows)).replace("{place}", place))
            made.write.format("delta").save(f"{root}/public/{name}__history")
        frames = {f"public.{n}": session.read.format("delta").load(f"{root}/public/{n}__history") for n in names}
        lsn = str(Lsn(0x1000000 + rows // 2000 * 8))
        for _ in range(RUNS):
            begun = time.perf_counter()
            found = [one.count() for one in as_of(frames, sink="lake", lsn=lsn, config=str(config)).values()]
            took_s = time.perf_counter() - begun
            bench.say(f"as_of of three tables over {3 * rows:,} versions: {took_s:.1f} s, {sum(found):,} rows")


def _captured(bench: Bench) -> None:
    rows = bench.rows(300_000, _ROWS)
    with ExitStack() as stack:
        dsn = stack.enter_context(bench.database())
        source = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        source.execute(TABLE)
        source.execute("alter table orders replica identity full")
        source.execute(OUTBOX)
        pipelines = {way: [_made(bench, stack, dsn, section) for _ in range(RUNS)] for way, section in WAYS.items()}
        _write(source, rows)
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(RUNS):
            for way in list(WAYS)[:: 1 if number % 2 == 0 else -1]:
                rates[way].append(rows / _drained_s(pipelines[way][number], rows, history="history" in way))
                bench.say(f"{way}: {rates[way][-1]:,.0f} changes/s")
    plain = rates["table alone"]
    for way in ("with an outbox", "with a history"):
        ratios = [one / other for one, other in zip(rates[way], plain, strict=True)]
        goal = "0.95" if "outbox" in way else "0.65"
        bench.say(f"rate {way} / with the table alone: {spread(ratios, 2)}   (goal {goal})")


def _made(bench: Bench, stack: ExitStack, dsn: str, section: str) -> Pipeline:
    pipeline = stack.enter_context(bench.pipeline(dsn, ["public.orders"]))
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


def _drained_s(pipeline: Pipeline, records: int, *, history: bool) -> float:
    name, partitions = pipeline.settings.name, pipeline.settings.log.partitions
    topics = [f"{name}.public.orders", *([f"{name}.public.orders.history"] if history else [])]
    admin = TopicAdmin(pipeline.settings.log)

    def complete() -> bool:
        ends = admin.end_offsets(dict.fromkeys(topics, partitions))
        return all(sum(parts.values()) >= records for parts in ends.values())

    with pipeline.running("run") as capture:
        wait_until(lambda: capture.said("streaming"), 60, "cdc run to stream")
        begun = time.perf_counter()
        wait_until(complete, 600, f"{records} records in {topics}")
        return time.perf_counter() - begun
