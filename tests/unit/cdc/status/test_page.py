"""The page: whole in itself, escaped, and served to any number of readers without asking any part."""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from http.client import HTTPConnection, HTTPException
from socket import create_connection, socket
from time import monotonic
from urllib.parse import urlsplit
from urllib.request import urlopen

import orjson
import pytest
from rich.console import Console

from cdc.cli.status import Watching, served, watched
from cdc.process.clock import ManualClock
from cdc.process.errors import ConfigError, SinkError
from cdc.record.ports import Unknown
from cdc.status.board import board_of, document_of
from cdc.status.facts import SinkFacts
from cdc.status.html import Html, element
from cdc.status.pace import Curve, LiveLooks
from cdc.status.page_server import MOST, READER_S, StatusPages, headers, page
from cdc.status.view_lines import age
from tests.unit.cdc.status.test_board import BUSY, ODD, looked
from tests.unit.cdc.status.test_live_looks import AT_MS, AWAY, FILLING, seen
from tests.unit.cdc.status.test_rules import FACTS
from tests.waiting import wait_until

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
    return page(board_of(document_of(looked(BUSY, FACTS))), [Curve(EVIL, "seconds", (1.0, None, 2.0), 2.0)], 2.0)


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
        pages.tell(seen(facts, looks, clock.monotonic() - AT_MS / 1000))
        clock.advance(2)
    document = orjson.loads(read(pages.url + "status"))
    assert document["sinks"]["warehouse-of-reports"]["fill"]["share"] == 0.414
    text = read(pages.url)
    assert "the log is behind" in text
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
    ("method", "path", "code"),
    [("GET", "", 200), ("GET", "status", 200), ("GET", "x", 404), ("HEAD", "", 200), ("POST", "", 501)],
)
def test_every_answer_has_the_policy(pages: StatusPages, method: str, path: str, code: int) -> None:
    """No method but GET and HEAD has an answer."""
    with closing(HTTPConnection(urlsplit(pages.url).netloc, timeout=10)) as connection:
        connection.request(method, f"/{path}")
        answer = connection.getresponse()
        assert answer.status == code
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "no-referrer")
        assert answer.headers["Server"] == "cdc"
        assert method != "HEAD" or (int(answer.headers["Content-Length"]) > 1000 and not answer.read())
        assert code != 404 or answer.read() == b"try / or /status\n"


@pytest.mark.parametrize(
    "address",
    [
        "9467",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:99999",
        "no.invalid:1",
        "127.0.0.1:\u00b2",
        "127.0.0.1:-1",
        "::1:80",
        "127.0.0.1:\uff19\uff14\uff16\uff17",
        "127.0.0.1:" + "9" * 5000,
        "a" * 300 + ":80",
    ],
)
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


def asked(pages: StatusPages, path: str, host: str) -> tuple[int, str]:
    with closing(HTTPConnection(urlsplit(pages.url).netloc, timeout=10)) as connection:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.parametrize("path", ["/", "/status", "/x"])
@pytest.mark.parametrize(
    "host", ["rebind.evil.example", "localhost.evil.example:9467", "127.0.0.1.evil.example", "", "[", ":"]
)
def test_h273_a_name_of_another_site_gets_no_figure(pages: StatusPages, host: str, path: str) -> None:
    """A page of any site may give its name the address of loopback, and read what answers there."""
    pages.tell(seen(FACTS, LiveLooks(), 0))
    status, text = asked(pages, path, host)
    assert status == 421
    assert "shop" not in text
    assert "127.0.0.1" in text


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9467", "127.0.0.1", "127.0.0.1:1", "[::1]:9467", "192.168.1.7:9"]
)
def test_the_page_is_asked_by_its_own_names(pages: StatusPages, host: str) -> None:
    """And by an address, which no name of a site is."""
    assert asked(pages, "/status", host) == (200, "null")


def test_the_page_is_asked_by_the_host_that_it_was_given() -> None:
    with StatusPages("localhost:0", "shop", 2.0) as opened:
        assert asked(opened, "/status", "localhost:80")[0] == 200


def test_loopback_of_ipv6_is_listened_on() -> None:
    with StatusPages("[::1]:0", "shop", 2.0) as opened:
        assert opened.url.startswith("http://[::1]:")
        assert "looking for the first time" in read(opened.url)


def test_a_name_with_half_a_character_gives_a_page(pages: StatusPages) -> None:
    away = Unknown(SinkError("no \udcff file"))
    pages.tell(seen(replace(FACTS, sinks=[SinkFacts(name="cache", kind="redis", watermark=away)]), LiveLooks(), 0))
    assert "no \N{REPLACEMENT CHARACTER} file" in read(pages.url)
    assert "no \N{REPLACEMENT CHARACTER} file" in orjson.loads(read(pages.url + "status"))["passed"][0]


def test_readers_get_the_same_bytes_until_the_next_look(pages: StatusPages) -> None:
    """A page is drawn once for each look, however many read it."""
    pages.tell(seen(FACTS, LiveLooks(), 0))
    assert pages.shown()[1] is pages.shown()[1]


@pytest.mark.parametrize(("every_s", "shown_s", "gone_s"), [(2.0, 29, 31), (60.0, 84, 86), (0.2, 29, 31)])
def test_h110_figures_are_shown_no_longer_than_a_look_may_take(every_s: float, shown_s: int, gone_s: int) -> None:
    """From its beginning on: its first answers are as old as that, however late it ended."""
    clock = ManualClock()
    with StatusPages("127.0.0.1:0", "shop", every_s, clock) as opened:
        look = seen(FACTS, LiveLooks(), 0)
        clock.advance(25)
        opened.tell(look)
        clock.advance(shown_s - 25)
        assert "127.0.0.1:5432/shop" in read(opened.url)
        clock.advance(gone_s - shown_s)
        assert "127.0.0.1:5432/shop" not in read(opened.url)
        assert f"began {age(gone_s)} ago" in read(opened.url)
        asked_s = f"{min(5, max(1, every_s)):g}"
        assert f'http-equiv="refresh" content="{asked_s}"' in read(opened.url)
        assert f'data-every="{asked_s}"' in read(opened.url)


def test_no_other_page_may_frame_it() -> None:
    assert "frame-ancestors 'none'" in headers()["Content-Security-Policy"]


@pytest.mark.slow
def test_h274_a_slow_reader_is_left_and_others_are_answered() -> None:
    """A byte now and then is no silence. More than so many at once are not taken."""
    with StatusPages("127.0.0.1:0", "shop", 2.0) as opened, ExitStack() as lines:
        address = ("127.0.0.1", urlsplit(opened.url).port or 0)
        slow = [lines.enter_context(closing(create_connection(address, timeout=60))) for _ in range(MOST)]
        for line in slow:
            line.sendall(b"G")
        wait_until(lambda: not answered(address), 20)
        for line in slow[1:]:
            line.close()
        wait_until(lambda: answered(address), 20)
        begun = monotonic()
        wait_until(lambda: is_left(slow[0]), 40)
        assert monotonic() - begun < 3 * READER_S


def test_the_end_waits_for_no_reader() -> None:
    with StatusPages("127.0.0.1:0", "shop", 2.0) as opened:
        line = create_connection(("127.0.0.1", urlsplit(opened.url).port or 0), timeout=60)
        line.sendall(b"G")
        assert read(opened.url + "status") == "null"
        begun = monotonic()
    assert monotonic() - begun < READER_S / 2
    line.close()


def answered(address: tuple[str, int]) -> bool:
    try:
        with closing(HTTPConnection(*address, timeout=20)) as connection:
            connection.request("GET", "/status")
            return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False


def is_left(line: socket) -> bool:
    """Whether the server has ended the connection, to which one byte more is sent."""
    try:
        line.sendall(b"E")
        line.settimeout(1)
        return line.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_burst_of_readers_is_answered(pages: StatusPages) -> None:
    with ThreadPoolExecutor(MOST // 2) as pool:
        assert all(pool.map(lambda _: read(pages.url + "status") == "null", range(200)))
