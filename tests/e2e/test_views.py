"""Views in the stores: a shop's documents beside its tables, kept, waited for and compared on real servers."""

from __future__ import annotations

import random
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
import redis

from cdc.process.errors import Exit
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

CUSTOMERS, ORDERS, LINES = 20, 100, 300
ORDER_SEARCH = """
select o.id, o.status, json_build_object('id', c.id, 'name', c.name, 'city', c.city) as customer,
  (select json_agg(json_build_object('id', l.id, 'qty', l.qty, 'price', l.price) order by l.id)
     from order_lines l where l.order_id = o.id) as lines,
  (select sum(l.qty * l.price) from order_lines l where l.order_id = o.id) as total,
  null::text as slug
from orders o left join customers c on c.id = o.customer_id where o.status <> 'draft'
"""
BY_CITY = """
select c.city, w, count(*) as n, sum(l.price) as total, (array_agg(o.id order by l.price desc, l.id))[1] as best
from order_lines l join orders o on o.id = l.order_id left join customers c on c.id = o.customer_id
cross join lateral generate_series(l.qty, 2) as w group by 1, 2
"""
TOTAL = "select count(*) as n, sum(l.qty * l.price) as total from order_lines l"
SHOP = (
    "create table customers (id int primary key, name text, city text)",
    "create table orders (id int primary key, customer_id int, status text)",
    "create table order_lines (id int primary key, order_id int, qty int, price numeric)",
    f"insert into customers select g, 'n' || g, nullif('c' || g % 5, 'c0') from generate_series(1, {CUSTOMERS}) g",
    f"insert into orders select g, 1 + g % {CUSTOMERS}, 'open' from generate_series(1, {ORDERS}) g",
    f"insert into order_lines select g, 1 + g % {ORDERS}, g % 4, g * 1.10 from generate_series(1, {LINES}) g",
)


@pytest.fixture
def stores(redis_url: str, opensearch: str, index_prefix: str, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Settings of a store of each kind."""
    return {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "warehouse": {"kind": "delta", "path": str(tmp_path / "warehouse")},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }


@pytest.fixture
def pipeline(
    database: str, kafka: str, topic_prefix: str, stores: dict[str, dict[str, Any]], tmp_path: Path, run_cdc: RunCdc
) -> Pipeline:
    texts = {"order_search": ORDER_SEARCH, "by_city": BY_CITY, "total": TOTAL}
    for name, text in texts.items():
        (tmp_path / f"{name}.sql").write_text(text, encoding="utf-8")
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "views": {
            name: {
                "sql": str(tmp_path / f"{name}.sql"),
                "state": str(tmp_path / "state"),
                "post": "tests.view_posts:add_slug" if name == "order_search" else "",
            }
            for name in texts
        },
        "sinks": {name: store | {"tables": ["public.*", "view.*"]} for name, store in stores.items()},
        "spark": {"checkpoint": str(tmp_path / "checkpoints"), "http_address": "", "view_limit": "15s"},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(*SHOP)
    return made


def change(conn: psycopg.Connection, chance: random.Random) -> None:
    """One change of any table."""
    order, line, customer = chance.randint(1, ORDERS), chance.randint(1, LINES + 50), chance.randint(1, CUSTOMERS)
    conn.execute(
        chance.choice(
            [
                f"update orders set customer_id = {customer} where id = {order}",
                f"update orders set status = 'draft' where id = {order}",
                f"update orders set status = 'paid' where id = {order}",
                f"update order_lines set order_id = {order}, qty = {chance.randint(0, 5)} where id = {line}",
                f"delete from order_lines where id = {line}",
                f"insert into order_lines values ({line}, {order}, 2, 1.10) on conflict do nothing",
                f"update customers set name = 'x{chance.randint(1, 99)}' where id = {customer}",
                f"delete from orders where id = {order}",
                f"insert into orders values ({order}, {customer}, 'new') on conflict do nothing",
            ]
        )
    )


def written(pipeline: Pipeline, *statements: str) -> str:
    """Commit, and the token of it."""
    with psycopg.connect(pipeline.dsn, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)
        return str(conn.execute("select pg_current_wal_insert_lsn()").fetchall()[0][0])


def cached(pipeline: Pipeline, key: int | str, view: str = "order_search") -> dict[str, Any] | None:
    """A document as the cache has it."""
    with redis.Redis.from_url(pipeline.document["sinks"]["cache"]["url"]) as cache:
        row = cache.hget(f"{pipeline.document['name']}:view.{view}:{key}", "row")
    return orjson.loads(row) if isinstance(row, bytes) else None


def searched(pipeline: Pipeline, text: str) -> int:
    """How many documents a search by a customer's name finds."""
    import opensearchpy  # noqa: PLC0415 - beside its only use

    store = pipeline.document["sinks"]["search"]
    with closing(opensearchpy.OpenSearch([store["url"]])) as client:
        body = {"query": {"term": {"customer.name": text}}}
        found = client.search(index=f"{store['prefix']}-view.order_search", body=body, params={"size": 0})
    return int(found["hits"]["total"]["value"])


def named(pipeline: Pipeline) -> bool:
    """Whether the cache's watermark says that it does not speak for the view."""
    with redis.Redis.from_url(pipeline.document["sinks"]["cache"]["url"]) as cache:
        return b"view.order_search" in b"".join(cache.hgetall(f"{pipeline.document['name']}:_watermark").values())


def waited(pipeline: Pipeline, sink: str, token: str, *more: str) -> None:
    done = pipeline.cdc("wait", sink, token, *more, "--timeout", "60")
    assert done.returncode == Exit.OK, done.stderr


def verified(pipeline: Pipeline, *what: str) -> str:
    """What verify says of stores that are level. A view behind its limit is not compared, and it may be for a while."""

    def compared() -> subprocess.CompletedProcess[str]:
        said = pipeline.cdc("verify", *what, "--timeout", "300", timeout_s=300)
        assert "s behind: it does not show the view" not in said.stdout
        return said

    done = wait_until(compared, 120, "no view is behind its limit")
    assert done.returncode == Exit.OK, done.stderr + done.stdout
    return done.stdout


@pytest.mark.long
@pytest.mark.slow
def test_v1_v4_v23_views_in_stores_are_what_postgres_says(
    pipeline: Pipeline, fed: tuple[Spawned, Spawned], spawn: Spawn
) -> None:
    waited(pipeline, "cache", written(pipeline, "update customers set city = 'before' where id = 1"))
    refused = pipeline.cdc("wait", "cache", "0/1", "--table", "view.order_search", "--timeout", "1")
    assert_refused(refused, Exit.TOPIC, "not published yet")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    wait_until(lambda: cached(pipeline, 1), 90, lambda: runner.stderr[-2000:] + fed[1].stderr[-2000:])
    token = written(pipeline, "update customers set name = 'moved' where id = 3")
    for sink in pipeline.document["sinks"]:
        waited(pipeline, sink, token, "--table", "view.order_search")
    orders = [number for number in range(1, ORDERS + 1) if 1 + number % CUSTOMERS == 3]
    assert [(cached(pipeline, number) or {})["customer"]["name"] for number in orders] == ["moved"] * len(orders)
    assert searched(pipeline, "moved") == len(orders)
    for view in ("view.by_city", "view.total"):
        waited(pipeline, "cache", token, "--table", view)
    assert (cached(pipeline, "%null:2", "by_city") or {})["city"] is None
    assert (cached(pipeline, "all", "total") or {})["n"] == LINES
    assert orjson.loads(pipeline.good("view", "show", "total", "all"))["n"] == LINES
    chance = random.Random(7)
    with psycopg.connect(pipeline.dsn, autocommit=True) as conn:
        for _ in range(4):
            for _ in range(150):
                change(conn, chance)
            runner.kill()
            for _ in range(50):
                change(conn, chance)
            runner = spawn("cdc", "--config", pipeline.config, "view", "run")
            assert "view.order_search" in verified(pipeline)
    runner.kill()
    token = written(pipeline, "update customers set city = 'after' where id = 3")
    waited(pipeline, "cache", token)
    assert named(pipeline)
    late = pipeline.cdc("wait", "cache", token, "--table", "view.order_search", "--timeout", "1")
    assert_refused(late, Exit.DIFFERENCE, "view order_search")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    waited(pipeline, "cache", token, "--table", "view.order_search")
    assert "view.order_search" in verified(pipeline, "view.order_search")
    damaged_and_repaired(pipeline)
    assert '"customer"' in pipeline.good(
        "events", "view.order_search", "--json", "--from-beginning", "--until-caught-up"
    )


def damaged_and_repaired(pipeline: Pipeline) -> None:
    """H380: documents that stores lost or that somebody changed come back through the view's topic."""
    name = pipeline.document["name"]
    with redis.Redis.from_url(pipeline.document["sinks"]["cache"]["url"]) as cache:
        lost, changed = sorted(
            key for key in cache.scan_iter(f"{name}:view.order_search:*") if cache.hexists(key, "row")
        )[:2]
        cache.delete(lost)
        cache.hset(changed, "row", b'{"id":1,"customer":{"name":"somebody"}}')
    missing = pipeline.cdc("verify", "view.order_search", "--timeout", "300", timeout_s=300)
    assert missing.returncode == Exit.DIFFERENCE, missing.stderr
    assert f"missing in cache: view.order_search {lost.decode().rsplit(':', 1)[1]}" in missing.stdout
    repair = pipeline.cdc("verify", "cache", "--repair", "--timeout", "300", timeout_s=300)
    assert repair.returncode == Exit.OK, repair.stderr + repair.stdout
    assert "repaired cache: view.order_search: 2 published anew by its runner, 0 written, 0 deleted" in repair.stdout
    assert "view.order_search" in verified(pipeline, "cache", "view.order_search")
    rebuilt = pipeline.cdc("rebuild", "cache", timeout_s=300)
    assert rebuilt.returncode == Exit.OK, rebuilt.stderr
    assert "view.order_search" in verified(pipeline, "cache", "view.order_search")


@pytest.mark.long
def test_v1_views_are_kept_by_the_application_of_the_sinks(pipeline: Pipeline, spawn: Spawn) -> None:
    refused = pipeline.cdc("sink", "cache", "--views", "--until-caught-up")
    assert_refused(refused, Exit.USAGE, "ends before views have published", "cdc view run --until-caught-up")
    pipeline.good("init")
    pipeline.good("snapshot")
    spawn("cdc", "--config", pipeline.config, "run")
    for _ in range(2):
        feeding = spawn("cdc", "--config", pipeline.config, "sink", "cache", "--views")
        wait_until(lambda: cached(pipeline, 1), 120, lambda: feeding.stderr[-3000:])  # noqa: B023 - within its turn
        token = written(pipeline, "update customers set name = name || '.' where id = 3")
        wait_until(
            lambda: pipeline.cdc("wait", "cache", token, "--table", "view.order_search").returncode == Exit.OK,  # noqa: B023
            120,
            lambda: feeding.stderr[-3000:],  # noqa: B023
        )
        assert feeding.terminate(120) == Exit.OK, feeding.stderr[-3000:]
    feeding = spawn("cdc", "--config", pipeline.config, "sink", "cache", "--views")
    assert "view.order_search" in verified(pipeline, "cache")
    feeding.kill()
