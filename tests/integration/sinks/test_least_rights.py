"""The rights of ``compose/rights`` are enough, and they are no more than that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cdc.process.errors import Retry, SinkError
from cdc.read import Cache, Freshness, ReadRow, Token
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from cdc.record.topic_names import TableName
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.sink_spec import open_sink
from sinks.contract.store_names import cache_fill
from tests.contract.stores import live
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch
from tests.redis_rights import as_default, least_user

ROW = {"id": 1, "status": "open", "note": None}
WAREHOUSE = Path(__file__).parents[3] / "compose" / "rights" / "warehouse.sql"
ROLES, PASSWORD = ("shop_sink", "shop_reader"), "of-a-test"
SHAPES = Shapes(ORDERS)


def test_a_reader_of_the_cache_reads_on_and_writes_nothing(redis_url: str) -> None:
    with least_user(redis_url, "shop_sink") as writes, contextlib.ExitStack() as opened:
        spec = spec_for("redis", prefix="shop", options={"url": writes})
        for place, status in ((spec, "old"), (beside(spec, 2), "rebuilt")):
            store = opened.enter_context(contextlib.closing(open_sink(place)))
            store.sink.apply(batch(Topic().upsert({**ROW, "status": status}, at(1))), SHAPES)
            store.commit(Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 1}}))
        generations = opened.enter_context(contextlib.closing(open_generations(spec)))
        with least_user(redis_url, "shop_reader") as reads, Cache(reads, "shop") as cache:
            assert cache.get("public.orders", 1) == {**ROW, "status": "old"}
            generations.switch(2, [ORDERS])
            assert cache.get("public.orders", 1) == {**ROW, "status": "rebuilt"}
            assert cache.watermark() is not None


SHOWN = Watermark(epoch=1, lsn=9, lineage=SourceLineage("7", 1))


def test_a_reader_of_the_cache_may_wait_for_a_token(redis_url: str) -> None:
    with least_user(redis_url, "shop_sink") as writes:
        spec = spec_for("redis", prefix="shop", options={"url": writes})
        with contextlib.closing(open_sink(spec)) as store:
            store.commit(SHOWN)
    with least_user(redis_url, "shop_reader") as reads, Freshness("redis", "shop", url=reads) as freshness:
        assert freshness.wait(Token("7", 1, Lsn(9)), timeout_s=20).lsn == 9


def test_a_program_that_reads_through_keeps_its_rows(redis_url: str) -> None:
    """It keeps one, finds it again, and takes it away where the row is gone."""
    named = TableName("public", "orders")
    with least_user(redis_url, "shop_sink") as writes:
        with contextlib.closing(open_sink(spec_for("redis", prefix="shop", options={"url": writes}))) as store:
            store.commit(SHOWN)
        there = ReadRow(ROW, Token("7", 1, Lsn(10)))
        with (
            least_user(redis_url, "shop_filler") as fills,
            Cache(fills, "shop") as cache,
            redis.Redis.from_url(as_default(redis_url)) as admin,
        ):
            assert cache.read_through("public.orders", [1], lambda: there) == ROW
            assert admin.exists(cache_fill("shop", 1, named, "1"))
            assert cache.read_through("public.orders", [1], lambda: pytest.fail("it was kept")) == ROW
            admin.unlink(cache_fill("shop", 1, named, "1"))
            assert cache.read_through("public.orders", [1], lambda: there._replace(row=None)) is None
            assert not admin.exists(cache_fill("shop", 1, named, "1"))


FORBIDDEN = [
    ("shop_filler", ("HSET", "shop:public.orders:1", "row", "{}")),
    ("shop_filler", ("UNLINK", "shop@2:public.orders:1")),
    ("shop_filler", ("HSET", "other:_fill:1:public.orders:1", "row", "{}")),
    ("shop_reader", ("HSET", "shop:public.orders:1", "row", "{}")),
    ("shop_reader", ("EVAL", "return redis.call('HSET', KEYS[1], 'row', '{}')", "1", "shop:public.orders:1")),
    ("shop_reader", ("UNLINK", "shop:public.orders:1")),
    ("shop_reader", ("HGETALL", "other:public.orders:1")),
    ("shop_sink", ("HGETALL", "other:public.orders:1")),
    ("shop_sink", ("HSET", "shopping:public.orders:1", "row", "{}")),
    ("shop_sink", ("FLUSHDB",)),
    ("shop_sink", ("KEYS", "*")),
    ("shop_sink", ("CONFIG", "GET", "requirepass")),
    ("shop_sink", ("ACL", "LIST")),
]


@pytest.mark.parametrize(("user", "words"), FORBIDDEN, ids=[f"{user} {words[0]}" for user, words in FORBIDDEN])
def test_a_user_of_the_cache_may_do_no_more(redis_url: str, user: str, words: tuple[str, ...]) -> None:
    refusal = pytest.raises(redis.ResponseError, match=r"(?i)permission|can't")
    with least_user(redis_url, user, refused=True) as url, redis.Redis.from_url(url) as client, refusal:
        client.execute_command(*words)


@pytest.mark.parametrize("missing", ["-hget", "-hmget", "-hset"])
def test_h223_a_right_that_a_script_lacks_is_no_foreign_key(redis_url: str, missing: str) -> None:
    """Before, each row counted as a key of another type: all of them were dead letters, or deleted."""
    with least_user(redis_url, "shop_sink", refused=True) as url:
        with redis.Redis.from_url(redis_url) as admin:
            admin.execute_command("ACL", "SETUSER", urlsplit(url).username or "", missing)
        spec = spec_for("redis", prefix="shop", options={"url": url})
        with contextlib.closing(open_sink(spec)) as store:
            with pytest.raises(SinkError, match="refuses the login") as refused:
                store.sink.apply(batch(Topic().upsert(ROW, at(1))), SHAPES)
                store.reader.get(ORDERS, "1")
            assert refused.value.retry is Retry.NEVER


@pytest.fixture
def warehouse_users(database: str) -> Iterator[str]:
    """A database in which the file was run. Its roles are the server's, so they are removed."""
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(WAREHOUSE.read_bytes())
        for role in ROLES:
            admin.execute(sql.SQL("alter role {} password {}").format(sql.Identifier(role), sql.Literal(PASSWORD)))
        yield database
        for role in ROLES:
            admin.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(role)))
            admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


@pytest.mark.slow
def test_the_users_of_a_sql_store_are_enough(warehouse_users: str) -> None:
    parts = conninfo_to_dict(warehouse_users)
    url = f"postgresql+psycopg://shop_sink:{PASSWORD}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    spec = spec_for("sql", prefix="shop", options={"url": url})
    with contextlib.ExitStack() as opened:
        for place, status in ((spec, "old"), (beside(spec, 2), "rebuilt")):
            store = opened.enter_context(contextlib.closing(open_sink(place)))
            store.sink.apply(batch(Topic().upsert({**ROW, "status": status}, at(1))), SHAPES)
            store.commit(replace(SHOWN, offsets={ORDERS.topic: {0: 1}}))
        opened.enter_context(contextlib.closing(open_generations(spec))).switch(2, [ORDERS])
        shown = opened.enter_context(contextlib.closing(open_sink(spec)))
        assert [b"rebuilt" in row for row in live(shown, ORDERS).values()] == [True]
    with psycopg.connect(warehouse_users, user="shop_reader", password=PASSWORD, autocommit=True) as reader:
        assert reader.execute("select id, status from public_orders").fetchall() == [(1, "rebuilt")]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("delete from public_orders")
    where = url.replace(f"shop_sink:{PASSWORD}", "shop_reader")
    with Freshness("sql", "shop", url=where, password=PASSWORD) as freshness:
        assert freshness.wait(Token("7", 1, Lsn(9)), timeout_s=20).lsn == 9
    with psycopg.connect(warehouse_users, user="shop_sink", password=PASSWORD, autocommit=True) as writer:
        for words in ("create table public.strange (id int)", "create schema another", "create role another"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                writer.execute(words)


def test_h224_a_schema_that_exists_needs_no_right_to_make_one(warehouse_users: str) -> None:
    """``create schema if not exists`` asks for the right to make it before it looks whether it exists."""
    parts = conninfo_to_dict(warehouse_users)
    url = f"postgresql+psycopg://shop_sink:{PASSWORD}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    spec = spec_for("sql", prefix="shop", options={"url": url, "db_schema": "shop"})
    with contextlib.closing(open_sink(spec)) as store:
        store.sink.apply(batch(Topic().upsert(ROW, at(1))), SHAPES)
        store.commit(Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 1}}))
        assert len(live(store, ORDERS)) == 1


def test_a_right_that_a_sql_store_lacks_is_named(warehouse_users: str) -> None:
    parts = conninfo_to_dict(warehouse_users)
    url = f"postgresql+psycopg://shop_reader:{PASSWORD}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    store = open_sink(spec_for("sql", prefix="shop", options={"url": url}))
    with contextlib.closing(store), pytest.raises(SinkError) as refused:
        store.sink.apply(batch(Topic().upsert(ROW, at(1))), SHAPES)
    assert "permission denied for schema shop" in refused.value.hint
    assert "compose/rights/warehouse.sql" in refused.value.hint
