"""The order page on a real Postgres and a real cache: over HTTP, and with a sink that is now and then far behind."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from urllib.request import HTTPCookieProcessor, Request, build_opener
from wsgiref.simple_server import WSGIRequestHandler, make_server

import orjson
import psycopg
import pytest

from cdc.read import Cache, Freshness, token
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from sinks.cache.examples.order_page import CachedOrders, OrderPage, PostgresShop
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import open_sink
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch
from tests.unit.sinks.cache.examples.order_pages import browse, places, sinking

READERS = 4
TOPICS = {ORDERS.topic: "id"}
SCHEMA = """
create table orders (id bigint primary key, status text);
insert into orders select n, 'open' from generate_series(1, 9) n;
"""


class HandSink:
    """Brings the cache to where Postgres is: all rows at an LSN below which every commit is visible."""

    def __init__(self, dsn: str, url: str) -> None:
        self._source = psycopg.connect(dsn)
        self._store = open_sink(spec_for("redis", prefix="shop", options={"url": url}))
        self._topic, self._times = Topic(), 0

    def bring(self) -> None:
        taken = token(self._source)
        with self._source.transaction():
            # It waits for every writer, and a writer's lock is released behind the visibility of its commit.
            self._source.execute("lock table orders in share mode")
            found = self._source.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            rows = self._source.execute("select id, status from orders").fetchall()
        assert found is not None
        self._times += 1
        orders = [{"id": key, "status": status, "note": None} for key, status in rows]
        changes = (self._topic.upsert(order, at(self._times)) for order in orders)
        self._store.sink.apply(batch(*changes), Shapes(ORDERS))
        lineage = SourceLineage(taken.system, taken.timeline)
        self._store.commit(Watermark(epoch=1, lsn=int(Lsn.parse(found[0])), lineage=lineage, topic_ids=TOPICS))

    def close(self) -> None:
        self._store.close()
        self._source.close()


@pytest.fixture
def page(database: str, redis_url: str) -> Iterator[OrderPage]:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(SCHEMA)
    with Cache(redis_url, "shop") as cache, Freshness("redis", "shop", url=redis_url) as freshness:
        yield OrderPage(PostgresShop(database), CachedOrders(cache), freshness)


@pytest.mark.parametrize(("seed", "longest_s"), [(1, 0.02), (2, 0.5)])
def test_no_look_is_stale_on_real_servers(
    page: OrderPage, database: str, redis_url: str, seed: int, longest_s: float
) -> None:
    with contextlib.closing(HandSink(database, redis_url)) as sink, sinking(sink.bring, seed, longest_s):
        browsers = browse(page, READERS, changes=5, seed=seed)
    assert set(places(browsers)) <= {"cache", "postgres"}
    if longest_s < 0.1:
        assert places(browsers)["cache"] > 0


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


def test_a_browser_gets_its_cookie_and_the_order(page: OrderPage, database: str, redis_url: str) -> None:
    with (
        contextlib.closing(HandSink(database, redis_url)) as sink,
        make_server("127.0.0.1", 0, page, handler_class=Quiet) as server,
    ):
        served = threading.Thread(target=server.serve_forever)
        served.start()
        browser = build_opener(HTTPCookieProcessor())
        place = f"http://127.0.0.1:{server.server_port}/orders/7"
        try:
            with browser.open(Request(f"{place}?status=sent", method="POST")) as answer:
                first = orjson.loads(answer.read()), answer.headers["X-Read-From"]
            sink.bring()
            with browser.open(place) as answer:
                second = orjson.loads(answer.read()), answer.headers["X-Read-From"]
        finally:
            server.shutdown()
            served.join()
    assert first == ({"id": 7, "status": "sent"}, "postgres")
    assert second == ({"id": 7, "status": "sent", "note": None}, "cache")
