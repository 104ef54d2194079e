"""From commit to a document in the search index: a view over three tables at 200 and 500 transactions a second.

A shop of 10,000 customers on a real Postgres, with ``cdc run``, ``cdc view run`` and ``cdc sink`` on this machine. Each
transaction is an order with one line of it. Its time starts when its COMMIT has returned, and ends when a search finds
the order's document, which has the customer and the line. One order in ten is looked for, every 50 ms, which counts as
ours: looking for each of them takes a third of a core from what is measured. A consumer beside it notes when the
document is in the view's topic: until then it is the way of capture and runner, afterwards that of the sink. The
runner's memory is the most that it had resident, and its CPU that of the whole time, its start included.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import orjson
import psycopg
import requests
from confluent_kafka import Consumer, TopicPartition

from cdc.record.topic_names import view_topic
from cdc.settings.model import Settings
from connectors.kafka.clients import reader_config
from tests.bench.freshness import SearchLook, StoreLook, percentiles, written
from tests.bench.setting import Bench, Pipeline
from tests.waiting import wait_until

_RATES_S, _SECONDS, _WARM_UP_S, _CUSTOMERS = (200, 500), 60, 30, 10_000
_TABLES = """
create table customers (id int primary key, name text not null);
create table orders (id int primary key, customer_id int not null, status text not null);
create table lines (id int primary key, order_id int not null, sku text not null, quantity int not null);
create index on lines (order_id)
"""
_VIEW = """
select o.id, o.status, json_build_object('id', c.id, 'name', c.name) as customer,
       (select json_agg(json_build_object('sku', l.sku, 'quantity', l.quantity) order by l.id)
          from lines l where l.order_id = o.id) as lines
  from orders o left join customers c on c.id = o.customer_id
"""
_COMMIT = """
with made as (insert into orders values (%(id)s, %(customer)s, 'open'))
insert into lines values (%(id)s, %(id)s, %(sku)s, 2)
"""


class _Documents(SearchLook):
    one_in = 10


class _TopicLook(StoreLook):
    """Reads the view's topic, whatever waits."""

    every_s = 0.0

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._consumer = Consumer(reader_config(settings.log))
        topic = view_topic(settings.name, "order_search", 1)
        self._consumer.assign([TopicPartition(topic, one, 0) for one in range(settings.log.partitions)])

    def look(self, waiting: list[int]) -> Iterable[int]:
        """The orders whose documents have come; each has its line, because one transaction wrote both."""
        for message in self._consumer.consume(1000, 0.02):
            key, value = message.key(), message.value()
            known = orjson.loads(key) if message.error() is None and isinstance(key, bytes) else {}
            if value is not None and "id" in known:  # Others are the marks that say how far the view is.
                yield int(known["id"])

    def close(self) -> None:
        self._consumer.close()


def bench(bench: Bench) -> None:
    for rate_s in _RATES_S:
        _measure(bench, rate_s)


def _measure(bench: Bench, rate_s: int) -> None:
    servers = bench.stack.ensure("postgres", "kafka", "opensearch")
    with ExitStack() as stack:
        dsn = stack.enter_context(bench.database())
        source = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        for statement in _TABLES.split(";"):
            source.execute(statement.encode())
        source.execute("insert into customers select g, 'customer ' || g from generate_series(0, 9999) g")
        pipeline = stack.enter_context(bench.pipeline(dsn, ["public.*"]))
        _prepare(bench, pipeline, str(servers["opensearch"]["url"]))
        capture = stack.enter_context(pipeline.running("run"))
        wait_until(lambda: capture.said("streaming"), 60, "cdc run to stream")
        began_s = time.monotonic()
        runner = stack.enter_context(pipeline.running("view", "run"))
        sink = stack.enter_context(pipeline.running("sink"))
        wait_until(lambda: sink.said("sink_started"), 180, "cdc sink to start")
        documents = _Documents(str(servers["opensearch"]["url"]), f"{pipeline.settings.name}-view.order_search")
        topic = _TopicLook(pipeline.settings)
        stack.callback(topic.close)
        topic.rate_s = documents.rate_s = rate_s
        warm, count = _WARM_UP_S * rate_s, max(1, int(bench.scale * _SECONDS)) * rate_s

        def put(number: int) -> None:
            source.execute(_COMMIT, {"id": number, "customer": number % _CUSTOMERS, "sku": f"sku {number}"})

        committed = written(put, [topic, documents], warm + count, rate_s)
        middle, most = percentiles(committed, documents.seen, warm, documents.one_in)
        rate = (len(committed) - 1) / (max(committed.values()) - min(committed.values()))
        bench.say(f"at {rate:.0f} transactions/s: p50 {middle:.3f} s, p99 {most:.3f} s   (goal p50 <= 0.3, p99 <= 0.7)")
        middle, most = percentiles(committed, topic.seen, warm)
        bench.say(f"of that until it is in the view's topic: p50 {middle:.3f} s, p99 {most:.3f} s")
        share = runner.cpu_s() / (time.monotonic() - began_s)
        bench.say(f"the runner: {runner.peak_mb():.0f} MB at most, {share:.2f} of a core   (goal 600 MB)")
    index = f"{servers['opensearch']['url']}/{pipeline.settings.name}*"
    for found in requests.get(index, timeout=30).json():
        requests.delete(f"{servers['opensearch']['url']}/{found}", timeout=30)


def _prepare(bench: Bench, pipeline: Pipeline, search: str) -> None:
    """A snapshot, and the settings of the view and of the store."""
    folder = bench.folder / pipeline.settings.name
    folder.mkdir()
    (folder / "order_search.sql").write_text(_VIEW, encoding="utf-8")
    settings: dict[str, dict[str, Any]] = {
        "sinks.search": {"kind": "opensearch", "url": search, "tables": ["view.order_search"]},
        "views.order_search": {"sql": str(folder / "order_search.sql"), "state": str(folder / "state")},
        "view_runner": {"http_address": ""},
        "spark": {"checkpoint": str(folder / "checkpoints"), "http_address": ""},
    }
    with pipeline.config.open("a", encoding="utf-8") as config:
        for section, members in settings.items():
            config.write(f"[{section}]\n")
            config.writelines(
                f"{name} = {str(value) if isinstance(value, list) else repr(value)}\n".replace("'", '"')
                for name, value in members.items()
            )
    pipeline.cdc("init")
    pipeline.cdc("snapshot")
