"""Browsers of the order page, and what they must never see."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any

from sinks.cache.examples.order_page import OrderPage


@dataclass
class Browser:
    """One reader of one order. It keeps its cookie as a browser does."""

    page: OrderPage
    key: int
    cookies: dict[str, str] = field(default_factory=dict)
    read_from: list[str] = field(default_factory=list)

    def ask(self, method: str, query: str = "") -> tuple[str, Any]:
        """The status and the document of the answer."""
        status, headers, body = self.answer(method, f"/orders/{self.key}", query)
        self.take(headers)
        self.read_from += [value for name, value in headers if name == "X-Read-From"]
        return status, json.loads(body) if body.startswith((b"{", b"null")) else None

    def answer(self, method: str, path: str, query: str = "") -> tuple[str, list[tuple[str, str]], bytes]:
        """Status, headers and body of an answer that has not arrived yet: its cookies are not kept."""
        said: list[Any] = []
        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query,
            "HTTP_COOKIE": "; ".join("=".join(filter(None, pair)) for pair in self.cookies.items()),
        }  # fmt: skip
        body = b"".join(self.page(environ, lambda *answer: said.extend(answer)))
        return said[0], said[1], body

    def take(self, headers: list[tuple[str, str]]) -> None:
        """An answer has arrived: keep its cookies, and throw away those that it takes back."""
        for text in [value for name, value in headers if name == "Set-Cookie"]:
            for morsel in SimpleCookie(text).values():
                self.cookies[morsel.key] = morsel.value
                if morsel["max-age"] == "0":
                    del self.cookies[morsel.key]

    def change(self, status: str) -> None:
        """Change the order."""
        assert self.ask("POST", f"status={status}")[0] == "303 See Other"

    def status(self) -> str:
        """What the page shows of the order."""
        status, document = self.ask("GET")
        assert status == "200 OK"
        return str(document["status"])


def browse(page: OrderPage, readers: int, changes: int, seed: int) -> list[Browser]:
    """Readers who change their orders and look, all at once. Each look has to show the reader's last change."""
    browsers = [Browser(page, key) for key in range(1, readers + 1)]

    def one(browser: Browser) -> None:
        chance = random.Random(seed * 1000 + browser.key)
        for number in range(changes):
            browser.change(f"s{number}")
            for _ in range(chance.randint(1, 3)):
                assert browser.status() == f"s{number}"

    with ThreadPoolExecutor(readers) as threads:
        for done in [threads.submit(one, browser) for browser in browsers]:
            done.result(300)
    return browsers


def places(browsers: list[Browser]) -> dict[str, int]:
    """How many answers came from which place."""
    every = [place for browser in browsers for place in browser.read_from]
    return {place: every.count(place) for place in sorted(set(every))}


@contextmanager
def sinking(bring: Callable[[], object], seed: int, longest_s: float) -> Iterator[None]:
    """A sink that runs meanwhile, now and then further behind than the page waits. ``bring``: what it does."""
    chance, over = random.Random(seed), threading.Event()

    def run() -> None:
        while not over.wait(chance.uniform(0, longest_s)):
            bring()

    # The store's connection is of this thread.
    runs = threading.Thread(target=run)
    runs.start()
    try:
        yield
    finally:
        over.set()
        runs.join()
