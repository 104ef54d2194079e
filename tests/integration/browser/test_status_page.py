"""The status page in a real browser: its figures, its two colour schemes, a phone, and what it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.figures.process_status import FillShare
from cdc.process.clock import ManualClock
from cdc.record.position import Lsn
from cdc.record.progress import Mark, Watermark
from cdc.status.facts import SinkFacts, StatusFacts
from cdc.status.pace import LiveLooks
from cdc.status.page_server import StatusPages
from tests.browser import OpenPage, opened_browser
from tests.unit.cdc.checks.test_postgres import SERVER, SLOT
from tests.unit.cdc.status.test_board import BUSY
from tests.unit.cdc.status.test_live_looks import AT_MS, AWAY, seen
from tests.unit.cdc.status.test_rules import HEAD, SOURCE
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
EVERY_S = 1.0
PHONE = (360, 740)
LONG = "a_table_whose_name_is_as_long_as_postgres_lets_any_name_get_here"
"""63 characters without a place to break at."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenPage]:
    with opened_browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


class Pipeline:
    """Looks at a pipeline whose source writes 2 MB a second, served as a page."""

    def __init__(self, pages: StatusPages, clock: ManualClock) -> None:
        self._pages = pages
        self._clock = clock
        self._looks = LiveLooks()
        self._count = 0
        self.url = pages.url

    def facts(self) -> StatusFacts:
        """The pipeline grows with each look, and a store of it is filled."""
        self._count += 1
        wave = abs(self._count % 40 - 20)
        wal = HEAD + self._count * 20 * 1024**2
        log = wal - wave * 1024**2
        slot = replace(SLOT, active_pid=7, retained_bytes=(30 + wave) * 1024**2, safe_wal_bytes=2**30)
        filling, odd = BUSY.sinks
        cache = SinkFacts(name="cache", kind="redis", watermark=Watermark(epoch=1, lsn=log - wave**2 * 1000))
        now_ms = AT_MS + self._count * 10_000
        return replace(
            BUSY,
            now_ms=now_ms,
            source=replace(SOURCE, server=replace(SERVER, wal_lsn=wal), slot=slot),
            marks=[Mark(1, log - wave**2 * 1000, now_ms - wave * 500 - 300), Mark(1, log, now_ms - wave * 100)],
            sinks=[cache, filling, odd],
            asides={LONG: BUSY.asides["public.a"]},
            fresh=replace(
                BUSY.fresh, fills={filling.name: FillShare(min(1.0, self._count / 200), float(200 - self._count))}
            ),
        )

    def look(self, facts: StatusFacts | None = None) -> None:
        """One more, ten seconds later."""
        self._clock.advance(10)
        self._pages.tell(seen(facts or self.facts(), self._looks, self._count * 10.0))


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    clock = ManualClock()
    with StatusPages("127.0.0.1:0", "shop", EVERY_S, clock) as pages:
        looked = Pipeline(pages, clock)
        for _ in range(90):
            looked.look()
        yield looked


def figures(browser: OpenPage) -> dict[str, str]:
    """Each figure of the page by its place in the document, as it stands there."""
    found = browser.run("[...document.querySelectorAll('data')].map(d => [d.dataset.at, d.value, d.innerText])")
    assert all(text.strip() for _, _, text in found)
    return {at: value for at, value, _ in found}


def document(browser: OpenPage) -> Any:
    return json.loads(browser.run("fetch('/status').then(answer => answer.text())"))


def pointed(found: Any, pointer: str) -> Any:
    for word in pointer.split("/")[1:]:
        step = word.replace("~1", "/").replace("~0", "~")
        found = found[int(step)] if isinstance(found, list) else found[step]
    return found


def overflow(browser: OpenPage) -> list[str]:
    """The elements that stand out to the right, and the page where it can be scrolled that way."""
    script = """(() => {
      const wide = document.documentElement;
      const out = [...document.querySelectorAll('body *')].filter(
        one => one.getBoundingClientRect().right > wide.clientWidth + 0.5 && getComputedStyle(one).display !== 'none');
      const names = out.map(one => one.tagName + ' ' + one.textContent.slice(0, 40));
      return wide.scrollWidth > wide.clientWidth ? ['page ' + wide.scrollWidth, ...names] : names;
    })()"""
    found: list[str] = browser.run(script)
    return found


def test_the_page_shows_the_document_and_asks_nobody_else(browser: OpenPage, pipeline: Pipeline) -> None:
    browser.resize(1280, 900)
    browser.open(pipeline.url)
    shown, found = figures(browser), document(browser)
    assert len(shown) > 40
    for at, value in shown.items():
        expected = pointed(found, at)
        assert value == expected if isinstance(expected, str) else float(value) == expected, at
    assert browser.run("document.querySelectorAll('figure svg path.line').length") == 7
    assert browser.run("document.querySelectorAll('script').length") == 1, "a table's name is text"
    assert [url for url in browser.requests if not url.startswith((pipeline.url, "data:"))] == []
    assert browser.complaints == []


def test_the_page_follows_each_look_by_itself(browser: OpenPage, pipeline: Pipeline) -> None:
    browser.open(pipeline.url)
    before = figures(browser)["/source/wal_lsn"]
    pipeline.look()
    wait_until(lambda: figures(browser)["/source/wal_lsn"] != before, 20)
    assert figures(browser)["/source/wal_lsn"] == str(Lsn(HEAD + 91 * 20 * 1024**2))
    assert browser.complaints == []


def test_h110_a_page_whose_server_is_gone_shows_no_figure(browser: OpenPage) -> None:
    with StatusPages("127.0.0.1:0", "shop", EVERY_S, ManualClock()) as pages:
        pages.tell(seen(BUSY, LiveLooks(), 0))
        browser.open(pages.url)
        assert browser.run("document.querySelector('main').checkVisibility()")
    wait_until(lambda: not browser.run("document.querySelector('main').checkVisibility()"), 20)
    said = browser.run("document.getElementById('gone').innerText")
    assert said.startswith("Not known since ")
    assert said.endswith("does not answer.")
    assert browser.run("getComputedStyle(document.getElementById('gone')).display") != "none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (768, 1024), PHONE])
@pytest.mark.parametrize("state", ["busy", "away"])
def test_it_is_readable_in_both_schemes_at_each_width(
    browser: OpenPage, pipeline: Pipeline, tmp_path: Path, scheme: str, width: int, height: int, state: str
) -> None:
    """Nothing stands out to the right, and text differs from its ground as accessibility asks for."""
    if state == "away":
        pipeline.look(AWAY)
    browser.prefer(scheme)
    browser.resize(width, height)
    browser.open(pipeline.url)
    browser.picture(tmp_path / f"{state}-{scheme}-{width}.png")
    assert overflow(browser) == []
    ground, faint = browser.run(CONTRAST)
    assert (ground < 0.2) == (scheme == "dark")
    assert faint == [], "contrast below 4.5"


CONTRAST = """(() => {
  const light = color => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = one => {
    for (let at = one; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(color)) return light(color);
    }
    return 1;
  };
  const texts = [...document.querySelectorAll('main *')].filter(
    one => one.checkVisibility() && [...one.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  const faint = texts.filter(one => {
    const [low, high] = [light(getComputedStyle(one).color), ground(one)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05) < 4.5;
  });
  return [ground(document.body), faint.map(one => one.tagName + ' ' + one.textContent.slice(0, 40))];
})()"""
"""How light the page's ground is, and the texts that hardly differ from theirs, as WCAG reckons it."""


def test_selected_text_stays_while_it_is_selected(browser: OpenPage, pipeline: Pipeline) -> None:
    browser.open(pipeline.url)
    before = figures(browser)["/source/wal_lsn"]
    browser.run("getSelection().selectAllChildren(document.querySelector('h1'))")
    pipeline.look()
    browser.requests.clear()
    wait_until(lambda: browser.requests.count(pipeline.url) >= 3, 20)
    assert browser.run("getSelection().toString()") == "shop, epoch 1"
    assert figures(browser)["/source/wal_lsn"] == before
    browser.run("getSelection().removeAllRanges()")
    wait_until(lambda: figures(browser)["/source/wal_lsn"] != before, 20)


@pytest.mark.parametrize(("slept_s", "gone"), [(2, False), (4, True)])
def test_h110_a_browser_that_slept_shows_no_old_figure(
    browser: OpenPage, pipeline: Pipeline, slept_s: int, gone: bool
) -> None:
    """Nobody answers it yet when it is looked at again."""
    browser.open(pipeline.url)
    browser.run("fetch = () => new Promise(() => {}); 0")
    browser.run(f"(now => {{ Date.now = () => now() + {slept_s * 1000}; }})(Date.now.bind(Date)); 0")
    browser.run("document.dispatchEvent(new Event('visibilitychange')); 0")
    assert browser.run("document.body.classList.contains('gone')") == gone


def test_a_name_written_from_right_to_left_turns_nothing_around(browser: OpenPage, pipeline: Pipeline) -> None:
    browser.open(pipeline.url)
    names = "[...document.querySelectorAll('tbody th > *, li, dd > *')]"
    kinds = browser.run(f"{names}.map(one => getComputedStyle(one).unicodeBidi)")
    assert set(kinds) == {"isolate"}


@pytest.mark.parametrize("width", [1280, 768, 360])
def test_no_figure_is_broken_within(browser: OpenPage, pipeline: Pipeline, width: int) -> None:
    """An LSN, a time and a state stand on one line each."""
    browser.resize(width, 900)
    browser.open(pipeline.url)
    script = """(() => {
      const low = one => one.getBoundingClientRect().height < 1.9 * parseFloat(getComputedStyle(one).lineHeight);
      const figures = [...document.querySelectorAll('dd > *, td > data, .at')];
      return figures.map(one => [low(one), one.textContent]);
    })()"""
    broken = [text for low, text in browser.run(script) if not low and re.fullmatch(r"[\w/.: -]{1,24}", text)]
    assert broken == []
