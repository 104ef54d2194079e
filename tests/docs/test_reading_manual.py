"""The manual's programs that read a cache run as they stand there, as often as a program calls them."""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg

from cdc.read import Cache, Token
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import open_sink
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch

MANUAL = (Path(__file__).parents[2] / "cdc" / "README.md").read_text(encoding="utf-8")
SCHEMA = """
create table orders (id bigint primary key, status text, price numeric(10, 2));
insert into orders values (42, 'open', 1.5);
"""
PAID = {"id": 42, "status": "paid"}


def example(name: str) -> str:
    found = re.search(rf"<!-- example {name} -->\n```python\n(.*?)```\n<!-- /example", MANUAL, re.DOTALL)
    assert found is not None, name
    return found[1]


def run(name: str, names: dict[str, Any]) -> None:
    exec(compile(example(name), name, "exec"), names)


def test_a_program_writes_and_reads_its_own_write(database: str, redis_url: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(SCHEMA)
    names: dict[str, Any] = {"dsn": database}
    run("token", names)
    assert isinstance(names["written"], Token)
    text = example("read_through").replace("redis://127.0.0.1:6379/0", redis_url)
    assert text != example("read_through")
    exec(compile(text, "read_through", "exec"), names)
    with contextlib.closing(names["cache"]._client):
        assert names["order"] == PAID
        for _ in range(2):  # the page is asked for again
            assert names["cache"].read_through("public.orders", [42], names["read"]) == PAID
            assert names["cache"].read_through("public.orders", [42], names["read"], since=names["written"]) == PAID
        assert names["read"]().row == PAID


def test_a_decimal_key_has_the_decimals_of_its_column(redis_url: str) -> None:
    store = open_sink(spec_for("redis", prefix="shop", options={"url": redis_url}))
    with contextlib.closing(store), Cache(redis_url, "shop") as cache:
        store.sink.apply(batch(Topic().upsert({"id": 1, "status": "open", "note": None}, at(1))), Shapes(ORDERS))
        assert cache.get("public.orders", Decimal(1)) is not None
        assert cache.get("public.orders", Decimal("1.0")) is None
