"""An ordinary week of a shop, on real servers: each day ends green by itself, or with one sentence and its cure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis as redis_client
from psycopg import sql

from cdc.process.errors import Exit
from cdc.stack.local import free_ports
from tests.conftest import Stack
from tests.e2e.week import ORDER_PAGE, READY_S, SCHEMA, Application, Shop
from tests.fresh import fresh_name
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

TABLE = (
    "create table {name} (id int primary key, v text); insert into {name} select g, 'v' from generate_series(1, 50) g"
)


@pytest.fixture
def role(postgres: str) -> Iterator[str]:
    """A name for the role that the rights make. Ask for it before the database that it gets rights in."""
    name = fresh_name()
    yield name
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


@pytest.fixture
def places(kafka: str, redis_url: str, opensearch: str, tmp_path: Path) -> tuple[str, ...]:
    """Where the log and three stores are, as ``cdc config new`` takes them."""
    stores = (f"redis={redis_url}", f"opensearch={opensearch}", f"delta={tmp_path / 'warehouse'}")
    return ("--kafka", kafka, *(word for store in stores for word in ("--sink", store)))


@pytest.fixture
def commands(run_cdc: RunCdc, spawn: Spawn) -> tuple[RunCdc, Spawn]:
    """Commands to their end, and beside the test."""
    return run_cdc, spawn


@pytest.fixture
def shop(
    role: str, database: str, topic_prefix: str, index_prefix: str, places: tuple[str, ...], tmp_path: Path,
    commands: tuple[RunCdc, Spawn],
) -> Iterator[Shop]:  # fmt: skip
    """Nine tables, three stores and a view, proposed by ``cdc config new``; everything runs."""
    made = Shop(tmp_path, database, topic_prefix, role, *commands)
    made.sql(*SCHEMA.strip().split(";\n"))
    made.propose("--name", topic_prefix, *places)
    ports = free_ports()
    (tmp_path / "order_page.sql").write_text(ORDER_PAGE, encoding="utf-8")
    made.document["capture"] = {"http_address": f"127.0.0.1:{ports['kafka']}"}
    made.document["spark"] = {
        "http_address": f"127.0.0.1:{ports['redis']}", "checkpoint": str(tmp_path / "checkpoints"), "view_limit": "15s",
    }  # fmt: skip
    made.document["views"] = {"order_page": {"sql": str(tmp_path / "order_page.sql"), "state": str(tmp_path / "state")}}
    for store in made.document["sinks"].values():
        store["tables"] = ["public.*", "view.order_page"]
        if store["kind"] == "opensearch":
            store["prefix"] = index_prefix
    made.good("check")
    made.good("init")
    made.good("snapshot")
    for command in ("run", "view run", "sink"):
        made.start(command)
    yield made
    for process in made.processes.values():
        process.kill()
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))


@pytest.mark.long
@pytest.mark.slow
def test_y1_y2_y3_y5_y6_y7_y8_y9_y10_y11_y12_y16_ordinary_week(shop: Shop, stack: Stack) -> None:
    with Application(shop.owner) as application:
        wait_until(lambda: shop.processes["sink"].stderr.count("sink_started") >= 3, READY_S, shop._shown)
        shop.green()
        shop.equal()
        a_cache_that_restarts(shop, stack)
        odd_values(shop)
        a_new_month(shop)
        a_new_table(shop)
        brokers_that_restart(shop, stack)
        many_who_look(shop)
        a_row_too_large(shop)
        a_view_for_no_store(shop)
        a_table_without_a_key(shop)
        a_table_that_goes(shop)
        a_sink_that_stopped(shop)
        shop.green()
        assert application.transactions > 100
    assert application.fault is None
    shop.green()
    shop.equal()


def a_cache_that_restarts(shop: Shop, stack: Stack) -> None:
    """Y1: it comes back as it was saved, and needs a while to load."""
    url = next(store["url"] for store in shop.document["sinks"].values() if store["kind"] == "redis")
    with redis_client.Redis.from_url(url) as cache:
        cache.save()
        shop.sql(
            "create table if not exists elsewhere (n int)", "insert into elsewhere select generate_series(1, 9999)"
        )
        stack.stop_part("redis", kill=True)
        stack.start_part("redis")
        wait_until(lambda: answers(cache), READY_S)
    shop.green()
    shop.equal()


def answers(cache: redis_client.Redis) -> bool:
    """Whether it has loaded its file."""
    try:
        return bool(cache.ping())
    except redis_client.ConnectionError:
        return False


def odd_values(shop: Shop) -> None:
    """Y2, Y3: a value 1,200 levels deep in a table, in a view, in all stores."""
    deep = "[" * 1200 + "]" * 1200
    shop.sql(f"update orders set note = '{deep}' where id = 7")
    shop.green()
    shop.equal()
    shop.sql("update orders set note = '{}' where id = 7")


def a_new_month(shop: Shop) -> None:
    """Y5: the partition's rights come with the rights file; where they do not, the cure clears the state."""
    shop.sql(
        "create table visits_2026_12 partition of visits for values from ('2026-12-01') to ('2027-01-01')",
        "insert into visits select g, '2026-12-01'::date + g % 30, g from generate_series(1, 100) g",
    )
    shop.green()
    shop.equal()
    role = shop.role
    shop.sql(
        "begin; create table visits_2027_01 (like visits including all);"
        f"revoke select on visits_2027_01 from {role};"
        "insert into visits_2027_01 select g, '2027-01-01', g from generate_series(1, 100) g;"
        "alter table visits attach partition visits_2027_01 for values from ('2027-01-01') to ('2027-02-01'); commit"
    )
    shop.says(("status",), "visits_2027_01", "grant select")
    shop.sql(f"grant select on visits_2027_01 to {role}")
    shop.good("snapshot", "public.visits")
    shop.green()
    shop.equal()


def a_new_table(shop: Shop) -> None:
    """Y6, in the order of the manual: settings, rights, init, and capture again."""
    shop.sql(*TABLE.format(name="coupons").split("; "), f"grant select on coupons to {shop.role}")
    shop.document["source"]["tables"].append("public.coupons")
    owner = shop.cdc("init")
    if owner.returncode != Exit.OK:
        assert "alter publication" in owner.stderr.lower(), owner.stderr
        shop.sql(f'alter publication "cdc_{shop.name}" add table coupons')
        shop.good("init")
    for command in ("run", "sink"):
        shop.restart(command)
    shop.green()
    shop.equal()


def brokers_that_restart(shop: Shop, stack: Stack) -> None:
    """Y7: three times, under all that read topics."""
    for _ in range(3):
        stack.stop_part("kafka", kill=True)
        stack.start_part("kafka")
        shop.green()
    shop.equal()


def many_who_look(shop: Shop) -> None:
    """Y8: a watched status, and a comparison of everything beside it, within the role's connections."""
    config = shop.folder / "cdc.toml"
    watching = shop.spawn("cdc", "--config", config, "status", "--watch", "--json", env=dict(shop.environment))
    wait_until(lambda: "\n" in watching.stdout, READY_S, lambda: watching.stderr)
    for table in ("public.orders", "public.order_lines"):
        shop.good("snapshot", table)
    shop.equal()
    watching.terminate()
    shop.alive()


def a_row_too_large(shop: Shop) -> None:
    """Y9: it goes to the dead letters by its key, all others flow, and dropping the letter clears the state."""
    shop.sql(
        "update leaflets set body = (select string_agg(md5(g::text), '') from generate_series(1, 90000) g) where id = 3"
    )
    shop.says(("status",), "1 row is larger than the topic takes")
    shop.says(("dead", "list"), "public.leaflets", '{"id":3}')
    shop.sql("update orders set note = '{\"after\": 1}' where id = 8")
    shop.alive()
    shop.sql("update leaflets set body = 'short' where id = 3")
    shop.equal()
    shop.good("dead", "drop", "--sink", "(capture)")
    shop.green()


def a_view_for_no_store(shop: Shop) -> None:
    """Y12: said in check and status, until a store takes it."""
    (shop.folder / "city.sql").write_text("select city, count(*) as n from customers group by 1", encoding="utf-8")
    shop.document["views"]["city"] = {"sql": str(shop.folder / "city.sql"), "state": str(shop.folder / "state")}
    shop.says(("check",), "view.city", "no store")
    shop.restart("view run")
    for store in shop.document["sinks"].values():
        store["tables"].append("view.city")
    shop.restart("sink")
    shop.green()
    shop.equal()


def a_table_without_a_key(shop: Shop) -> None:
    """Y16: what would do is named, with the statement."""
    shop.sql("create table tills (code text not null, v int)", "create unique index tills_code on tills (code)")
    shop.document["source"]["tables"].append("public.tills")
    refused = shop.cdc("check")
    assert refused.returncode == Exit.CONFIG
    assert "replica identity using index" in (refused.stdout + refused.stderr).lower()
    shop.document["source"]["tables"].remove("public.tills")


def a_table_that_goes(shop: Shop) -> None:
    """Y10: said, with what to do, until the settings follow."""
    shop.sql("drop table leaflets")
    shop.says(("status",), "public.leaflets")
    shop.says(("check",), "public.leaflets")
    shop.document["source"]["tables"] = [one for one in shop.document["source"]["tables"] if "leaflets" not in one]
    for command in ("run", "sink"):
        shop.restart(command)
    shop.green()


def a_sink_that_stopped(shop: Shop) -> None:
    """Y11: its own word is what status and check show; without one, that it does not answer."""
    shop.processes["sink"].kill()
    address = shop.document["spark"]["http_address"]
    for command in (("status",), ("check",)):
        shop.says(command, f"cdc sink does not answer at {address}")
    shop.start("sink")
    shop.green()
