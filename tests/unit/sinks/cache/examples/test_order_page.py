"""The order page never shows a reader less than he has written, whatever the store is at."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cdc.process.errors import SinkError
from cdc.read import Freshness, Token
from cdc.record.position import Lsn
from cdc.record.progress import Hold, Watermark
from cdc.record.source_lineage import SourceLineage
from sinks.cache.examples.order_page import OrderPage
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import open_sink
from tests.unit.sinks.cache.examples.order_pages import Browser, browse, places, sinking

OURS = "written-0123456789abcdef"
TOPICS = {"shop.public.orders": "id"}


@dataclass
class Rows:
    """Orders by id. Implements :class:`sinks.cache.examples.order_page.ReadsOrders`."""

    place: str
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    away: bool = False

    def get(self, key: int, since: Token | None) -> Mapping[str, Any] | None:
        if self.away:
            raise SinkError("the cache does not answer")
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
        self.commit(lsn)

    def commit(self, lsn: int, epoch: int = 1, held: str = "") -> None:
        holds = {f"shop.{held}": Hold(table=held, reason=f"{held}: no column takes it")} if held else {}
        lineage = SourceLineage(self.shop.system, 1)
        self.store.commit(Watermark(epoch=epoch, lsn=lsn, lineage=lineage, topic_ids=TOPICS, held=holds))

    def close(self) -> None:
        self.freshness.close()
        self.store.close()


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with contextlib.closing(Setting(tmp_path)) as made:
        yield made


@pytest.mark.parametrize(("seed", "longest_s"), [(1, 0.02), (2, 0.5)])
def test_no_look_is_stale_while_the_sink_runs(setting: Setting, seed: int, longest_s: float) -> None:
    with sinking(setting.sink, seed, longest_s):
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
    setting.commit(10**6, epoch=2)
    assert reader.status() == "paid"
    assert reader.read_from[-1] == "postgres"


@pytest.mark.parametrize("text", ["nonsense", "", "7/1", "7/0:0/1", "7/1:0/1 x", '"7/1:0/1"'])
def test_a_cookie_of_ours_that_is_no_token_reads_from_postgres(setting: Setting, text: str) -> None:
    setting.shop.change(1, "open")
    setting.sink()
    setting.shop.change(1, "paid")
    reader = Browser(setting.page, 1, {OURS: text})
    assert (reader.status(), reader.read_from) == ("paid", ["postgres"])
    reader.change("sent")
    assert OURS not in reader.cookies, "a change takes it back"


@pytest.mark.parametrize("name", ["written", "written-x", "Written-0123456789abcdef", "\x00"])
def test_a_cookie_of_others_is_none_of_ours(setting: Setting, name: str) -> None:
    setting.shop.change(1, "open")
    setting.sink()
    reader = Browser(setting.page, 1, {name: "7/1:0/FF"})
    assert (reader.status(), reader.read_from) == ("open", ["cache"])


@pytest.mark.parametrize(
    ("name", "text"), [("prefs", '{"theme":"dark"}'), ("a", "b c"), ("flag", ""), ("a[0]", "1"), ("name", "Müller")]
)
def test_the_cookies_of_others_hide_no_token(setting: Setting, name: str, text: str) -> None:
    reader = Browser(setting.page, 1, {name: text})
    setting.shop.change(1, "open")
    setting.sink()
    reader.change("paid")
    assert next(iter(reader.cookies)) == name
    assert reader.status() == "paid"


def test_answers_that_come_in_another_order_hide_no_change(setting: Setting) -> None:
    """Two windows of one browser change the order, and the first answer arrives last."""
    browser = Browser(setting.page, 1)
    answers = [browser.answer("POST", "/orders/1", f"status={status}") for status in ("first", "second")]
    setting.commit(1)
    setting.cached.rows = {1: {"id": 1, "status": "first"}}
    for _, headers, _ in reversed(answers):
        browser.take(headers)
    assert browser.status() == "second"
    browser.change("third")
    assert len(browser.cookies) == 1, "they do not heap up"


def test_tokens_of_two_servers_read_from_postgres(setting: Setting) -> None:
    reader = Browser(setting.page, 1, {OURS: "8/1:0/1"})
    setting.shop.change(1, "open")
    setting.sink()
    reader.cookies[OURS[:-1] + "0"] = "7/1:0/1"
    assert (reader.status(), reader.read_from) == ("open", ["postgres"])


def test_the_cookie_is_kept_longer_than_a_store_is_behind(setting: Setting) -> None:
    _, headers, _ = Browser(setting.page, 1).answer("POST", "/orders/1", "status=paid")
    (cookie,) = (value for name, value in headers if name == "Set-Cookie")
    age = re.search(r"Max-Age=(\d+)", cookie)
    assert age is not None and int(age[1]) >= 600
    assert "HttpOnly" in cookie


def test_the_hold_of_another_table_keeps_no_order_back(setting: Setting) -> None:
    reader = Browser(setting.page, 1)
    reader.change("paid")
    setting.sink()
    setting.commit(setting.shop.lsn, held="public.parcels")
    assert (reader.status(), reader.read_from) == ("paid", ["cache"])
    setting.commit(setting.shop.lsn, held="public.orders")
    assert (reader.status(), reader.read_from[-1]) == ("paid", "postgres")


def test_a_cache_that_is_away_hides_no_order(setting: Setting) -> None:
    setting.shop.change(1, "open")
    setting.cached.away = True
    reader = Browser(setting.page, 1)
    assert (reader.status(), reader.read_from) == ("open", ["postgres"])


@pytest.mark.parametrize(
    "path",
    [
        "/orders/x\r\nSet-Cookie: admin=1\r\nX:/42",
        "//evil.example/orders/42",
        "/orders/" + "9" * 5000,
        "/orders/٤٢",
        "/42",
    ],
)
def test_no_answer_is_made_of_the_path(setting: Setting, path: str) -> None:
    status, headers, _ = Browser(setting.page, 42).answer("POST", path, "status=paid")
    assert (status, headers) == ("404 Not Found", [])
    assert setting.shop.lsn == 0


@pytest.mark.parametrize(
    "query", ["", "status=", "status=a&status=b", "status=%00", "status=a%0d", "status=" + "a" * 41]
)
def test_a_status_that_is_none_changes_nothing(setting: Setting, query: str) -> None:
    assert Browser(setting.page, 1).ask("POST", query)[0] == "400 Bad Request"
    assert setting.shop.lsn == 0


def test_another_method_is_no_look(setting: Setting) -> None:
    setting.shop.change(1, "open")
    setting.sink()
    reader = Browser(setting.page, 1)
    status, headers, _ = reader.answer("DELETE", "/orders/1")
    assert (status, headers) == ("405 Method Not Allowed", [("Allow", "GET, HEAD, POST")])
    assert reader.answer("HEAD", "/orders/1")[::2] == ("200 OK", b"")
