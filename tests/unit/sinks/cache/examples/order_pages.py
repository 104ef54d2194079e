"""Browsers of the order page, and what they must never see."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any

from sinks.cache.examples.order_page import OrderPage


@dataclass
class Browser:
    """One reader of one order. It keeps its cookie as a browser does."""

    page: OrderPage
    key: int
    cookie: str = ""
    read_from: list[str] = field(default_factory=list)

    def ask(self, method: str, query: str = "") -> tuple[str, Any]:
        """The status and the document of the answer."""
        said: dict[str, Any] = {}

        def respond(status: str, headers: list[tuple[str, str]]) -> None:
            said.update(headers, status=status)

        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": f"/orders/{self.key}", "QUERY_STRING": query,
            "HTTP_COOKIE": self.cookie,
        }  # fmt: skip
        body = b"".join(self.page(environ, respond))
        for morsel in SimpleCookie(said.get("Set-Cookie", "")).values():
            self.cookie = f"{morsel.key}={morsel.value}"
        if "X-Read-From" in said:
            self.read_from.append(said["X-Read-From"])
        return said["status"], json.loads(body) if body else None

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
