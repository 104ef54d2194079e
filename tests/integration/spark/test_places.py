"""A table's place in a real store is removed by hand while the sink runs; its other tables flow (H100, H186)."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests

from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import RunningSinks, Sinks
from tests.integration.spark.handmade import HandMadeLog, orders_schema

Opened = Callable[[Settings, str], OpenSink]
STORES = ("search", "warehouse", "reports")
TABLES = ("orders", "customers")


class Shop:
    """Two tables in three stores, and a user who can reach these."""

    def __init__(self, pipeline: HandMadeLog, search: tuple[str, str], folder: Path) -> None:
        self.pipeline = pipeline
        self._search, self._prefix = search
        self._folder = folder
        self._database = folder / "reports.db"
        shape = orders_schema(pipeline.name, "customers")
        pipeline.admin.create([pipeline.spec(shape.topic)])
        pipeline.add_shape(shape)
        pipeline.note_topics()
        self.settings = pipeline.settings(
            {
                "search": {"kind": "opensearch", "url": self._search, "prefix": self._prefix},
                "warehouse": {"kind": "delta", "path": str(folder / "warehouse")},
                "reports": {"kind": "sql", "url": f"sqlite:///{self._database}"},
            }
        )

    def put(self, first: int, last: int) -> None:
        """Rows of both tables."""
        for table in TABLES:
            self.pipeline.put(({"id": n, "status": "new", "total": "1.00"} for n in range(first, last)), table=table)

    def shows(self, store: OpenSink, table: str) -> bool:
        return self.pipeline.shown(store, table) == self.pipeline.rows[table]

    def remove(self, store: str) -> None:
        """The place of ``public.orders``, with all its rows."""
        match store:
            case "search":
                index = f"{self._search}/{self._prefix}-public.orders-1"
                requests.delete(index, timeout=30).raise_for_status()
            case "warehouse":
                shutil.rmtree(self._folder / "warehouse" / "public" / "orders")
            case _:
                self.sql("drop view public_orders_live", "drop table public_orders")

    def sql(self, *statements: str) -> None:
        with closing(sqlite3.connect(self._database, timeout=30)) as session:
            for statement in statements:
                session.execute(statement)
            session.commit()


@pytest.fixture
def shop(pipeline: HandMadeLog, opensearch: str, index_prefix: str, tmp_path: Path) -> Shop:
    return Shop(pipeline, (opensearch, index_prefix), tmp_path)


@pytest.fixture
def running(shop: Shop, sinks: Sinks) -> Iterator[RunningSinks]:
    shop.put(0, 30)
    with sinks.running(shop.settings) as made:
        yield made


def until_equal(running: RunningSinks, shop: Shop, stores: dict[str, OpenSink]) -> None:
    for store in stores.values():
        for table in TABLES:
            running.until(lambda store=store, table=table: shop.shows(store, table), 120)  # type: ignore[misc]


@pytest.mark.slow
def test_h100_h186_a_place_removed_under_a_sink_is_filled(shop: Shop, running: RunningSinks, opened: Opened) -> None:
    """An index, a folder and a table go at once. Each store is filled anew, and none ends or repeats one call."""
    stores = {name: opened(shop.settings, name) for name in STORES}
    until_equal(running, shop, stores)
    for number, name in enumerate(STORES):
        shop.remove(name)
        shop.put(30 + number, 31 + number)
    until_equal(running, shop, {name: opened(shop.settings, name) for name in STORES})
    assert not running.ended
