"""The order page never shows a reader less than he has written, whatever the store is at."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cdc.lsn import Lsn
from cdc.progress import Watermark
from cdc.read import Freshness, Token
from cdc.source_lineage import SourceLineage
from sinks.cache.examples.order_page import OrderPage
from sinks.kinds import spec_for
from sinks.registry import open_sink
from tests.unit.sinks.cache.examples.order_pages import Browser, browse, places


@dataclass
class Rows:
    """Orders by id. Implements :class:`sinks.cache.examples.order_page.ReadsOrders`."""

    place: str
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def get(self, key: int) -> Mapping[str, Any] | None:
        return self.rows.get(key)


class MemoryShop:
    """A source in memory: every change takes the next LSN of its server."""

    def __init__(self, system: str = "7") -> None:
        self.system = system
        self.orders = Rows("postgres")
        self.lsn = 0
        self.lock = threading.Lock()

    @contextmanager
    def open(self) -> Iterator[Rows]:
        yield self.orders

    def change(self, key: int, status: str) -> Token:
        with self.lock:
            self.lsn += 1
            self.orders.rows[key] = {"id": key, "status": status}
            return Token(self.system, 1, Lsn(self.lsn))


class Setting:
    """A page over a source in memory, and over a SQLite store whose rows are in memory as well."""

    def __init__(self, folder: Path) -> None:
        url = f"sqlite:///{folder}/store.db"
        self.shop, self.cached = MemoryShop(), Rows("cache")
        self.store = open_sink(spec_for("sql", prefix="shop", options={"url": url}))
        self.freshness = Freshness("sql", "shop", url=url)
        self.page = OrderPage(self.shop, self.cached, self.freshness)

    def sink(self) -> None:
        """Bring the store to where the source is: first the rows, then the watermark."""
        with self.shop.lock:
            lsn, rows = self.shop.lsn, dict(self.shop.orders.rows)
        self.cached.rows = rows
        self.store.commit(Watermark(epoch=1, lsn=lsn, lineage=SourceLineage(self.shop.system, 1)))

    @contextmanager
    def sinking(self, seed: int, longest_s: float) -> Iterator[None]:
        """A sink that runs meanwhile, now and then further behind than the page waits."""
        chance, over = random.Random(seed), threading.Event()

        def run() -> None:
            while not over.wait(chance.uniform(0, longest_s)):
                self.sink()

        # The store's connection is of this thread.
        runs = threading.Thread(target=run)
        runs.start()
        try:
            yield
        finally:
            over.set()
            runs.join()

    def close(self) -> None:
        self.freshness.close()
        self.store.close()


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with contextlib.closing(Setting(tmp_path)) as made:
        yield made


@pytest.mark.parametrize(("seed", "longest_s"), [(1, 0.02), (2, 0.5)])
def test_no_look_is_stale_while_the_sink_runs(setting: Setting, seed: int, longest_s: float) -> None:
    with setting.sinking(seed, longest_s):
        browsers = browse(setting.page, readers=6, changes=6, seed=seed)
    assert places(browsers)["cache"] > 0


def test_without_a_sink_every_look_is_at_the_source(setting: Setting) -> None:
    browsers = browse(setting.page, readers=2, changes=1, seed=3)
    assert set(places(browsers)) == {"postgres"}


def test_a_reader_who_wrote_nothing_is_served_from_the_cache(setting: Setting) -> None:
    setting.shop.change(1, "open")
    setting.sink()
    setting.shop.change(1, "paid")
    reader = Browser(setting.page, 1)
    assert (reader.status(), reader.read_from) == ("open", ["cache"])
    assert Browser(setting.page, 2).ask("GET")[0] == "404 Not Found"


def test_after_a_move_to_another_server_no_old_token_is_shown(setting: Setting) -> None:
    """The new server's LSNs are far higher, and it lacks the reader's change."""
    reader = Browser(setting.page, 1)
    reader.change("paid")
    setting.sink()
    assert (reader.status(), reader.read_from) == ("paid", ["cache"])
    setting.shop.system, setting.shop.lsn = "8", 10**6
    setting.cached.rows = {}
    setting.store.commit(Watermark(epoch=2, lsn=10**6, lineage=SourceLineage("8", 1)))
    assert reader.status() == "paid"
    assert reader.read_from[-1] == "postgres"


@pytest.mark.parametrize(
    "cookie", ["written=nonsense", "written=", "other=1", "written=7/1", "\x00;=;", "written=7/0:0/1"]
)
def test_a_cookie_that_is_no_token_counts_for_none(setting: Setting, cookie: str) -> None:
    setting.shop.change(1, "open")
    setting.sink()
    reader = Browser(setting.page, 1, cookie)
    assert (reader.status(), reader.read_from) == ("open", ["cache"])
