"""The page: whole in itself, escaped, and served to any number of readers without asking any part."""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from http.client import HTTPConnection
from urllib.parse import urlsplit
from urllib.request import urlopen

import orjson
import pytest
from rich.console import Console

from cdc.cli.status import Watching, served, watched
from cdc.clock import ManualClock
from cdc.errors import ConfigError
from cdc.status.board import board_of, document_of
from cdc.status.hour import Curve
from cdc.status.html import Html, element
from cdc.status.live_looks import LiveLooks
from cdc.status.page import headers, page
from cdc.status.page_server import StatusPages
from tests.unit.cdc.status.test_board import BUSY, ODD, looked
from tests.unit.cdc.status.test_live_looks import AWAY, FILLING, seen
from tests.unit.cdc.status.test_rules import FACTS

EVIL = '"><img src=x onerror=alert(1)>'


class Tags(HTMLParser):
    """The tags with their attributes, and the figures that name a place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pages(clock: ManualClock) -> Iterator[StatusPages]:
    with StatusPages("127.0.0.1:0", "shop", 2.0, clock) as opened:
        yield opened


def drawn() -> str:
    return page(board_of(document_of(looked(BUSY, FACTS))), [Curve(EVIL, "seconds", (1.0, None, 2.0))], 2.0)


def read(url: str) -> str:
    with urlopen(url) as answer:
        text: str = answer.read().decode()
        return text


def test_the_page_asks_nobody_else_for_anything() -> None:
    """No address, no style or script in an attribute, and nothing that a browser would fetch but the empty icon."""
    text = drawn()
    assert re.findall(r"\b\w+://", text) == []
    tags = Tags(text).tags
    fetching = [(tag, given) for tag, given in tags if {"src", "href", "srcset", "action"} & given.keys()]
    assert fetching == [("link", {"rel": "icon", "href": "data:,"})]
    assert [name for _, given in tags for name in given if name == "style" or name.startswith("on")] == []
    assert {tag for tag, _ in tags} & {"form", "iframe", "img", "object", "a", "input"} == set()
    meta = [given for tag, given in tags if tag == "meta"]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in meta


def test_the_policy_allows_the_two_inline_parts_alone() -> None:
    policy = dict(one.split(" ", 1) for one in headers()["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        [inline] = re.findall(f"<{tag}>(.*?)</{tag}>", drawn(), re.DOTALL)
        assert policy[name] == f"'sha256-{b64encode(sha256(inline.encode()).digest()).decode()}'"


def test_names_are_text_and_no_html() -> None:
    text = drawn()
    assert "<script>" in ODD
    assert text.count("<script>") == 1
    assert EVIL not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "a/b~c&lt;script&gt;" in text
    assert 'data-at="/sinks/a~1b~0c&lt;script&gt;/lsn"' in text


def test_an_element_escapes_what_is_no_html() -> None:
    assert element("b", "<", Html("<i></i>"), title='"', hidden=False) == '<b title="&quot;">&lt;<i></i></b>'


def test_readers_get_the_newest_look(pages: StatusPages, clock: ManualClock) -> None:
    assert "looking for the first time" in read(pages.url)
    assert read(pages.url + "status") == "null"
    looks = LiveLooks()
    for facts in (FACTS, FILLING):
        pages.tell(seen(facts, looks, clock.monotonic()))
        clock.advance(2)
    document = orjson.loads(read(pages.url + "status"))
    assert document["sinks"]["warehouse-of-reports"]["fill"]["share"] == 0.414
    text = read(pages.url)
    assert "warehouse-of-reports is behind" in text
    assert "filling 41%" in text
    assert 'data-every="2"' in text


def test_h110_a_look_that_does_not_end_takes_the_figures_away(pages: StatusPages, clock: ManualClock) -> None:
    pages.tell(seen(FACTS, LiveLooks(), 0))
    clock.advance(29)
    assert "127.0.0.1:5432/shop" in read(pages.url)
    clock.advance(2)
    assert "127.0.0.1:5432/shop" not in read(pages.url)
    assert "not known since" in read(pages.url)
    assert "<svg" not in read(pages.url)
    assert read(pages.url + "status") == "null"


@pytest.mark.parametrize(
    ("method", "path", "code"), [("GET", "", 200), ("GET", "status", 200), ("GET", "x", 404), ("POST", "", 501)]
)
def test_every_answer_has_the_policy(pages: StatusPages, method: str, path: str, code: int) -> None:
    """No method but GET has an answer."""
    with closing(HTTPConnection(urlsplit(pages.url).netloc, timeout=10)) as connection:
        connection.request(method, f"/{path}")
        answer = connection.getresponse()
        assert answer.status == code
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "no-referrer")
        assert code != 404 or answer.read() == b"try / or /status\n"


@pytest.mark.parametrize("address", ["9467", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", "no.invalid:1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        StatusPages(address, "shop", 2.0)
    assert "--http" in refused.value.message
    assert "127.0.0.1:9467" in (refused.value.hint or "")


def test_an_address_that_is_taken_is_refused(pages: StatusPages) -> None:
    with pytest.raises(ConfigError, match="cannot be listened on: Address already in use"):
        StatusPages(urlsplit(pages.url).netloc, "shop", 2.0)


def test_a_host_that_is_left_out_is_loopback() -> None:
    with StatusPages(":0", "shop", 2.0) as opened:
        assert opened.url.startswith("http://127.0.0.1:")


def test_a_service_that_serves_prints_no_pages(pages: StatusPages, clock: ManualClock) -> None:
    """Their text would fill its log."""
    shown = seen(FACTS, LiveLooks(), 0).shown
    out = io.StringIO()
    with redirect_stdout(out):
        watched(lambda: shown, Watching(2.0, 2, as_json=False, tell=pages.tell), clock)
    assert not out.getvalue()
    assert "all is well" in read(pages.url)


def test_the_address_is_told_and_nothing_is_served_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    with served("", "shop", 2.0, Console(stderr=True)) as tell:
        assert tell is None
    with served("127.0.0.1:0", "shop", 2.0, Console(stderr=True)) as tell:
        assert tell is not None
        [url] = re.findall(r"the page is at (http://127\.0\.0\.1:\d+/)\n", capsys.readouterr().err)
        tell(seen(replace(AWAY, name="other"), LiveLooks(), 0))
        assert "<h1>other</h1>" in read(url)
    with pytest.raises(OSError, match=r"refused"):
        urlopen(url)
