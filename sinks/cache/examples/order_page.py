"""A web page of an order that is read from the cache and never shows its reader less than he has written.

``order_page.py "host=127.0.0.1 dbname=shop user=app" redis://127.0.0.1:6379/0 shop`` serves http://127.0.0.1:8000.

``GET /orders/42`` shows an order, ``POST /orders/42?status=paid`` changes it. The answer to a change sets a cookie with
the token of the commit. A browser that sends it gets the order from the cache if that shows the commit, else from
Postgres.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.cookies import CookieError, SimpleCookie
from typing import Any, Protocol
from urllib.parse import parse_qs
from wsgiref.simple_server import make_server

import psycopg
from psycopg.rows import dict_row

from cdc.read import Cache, CdcError, Freshness, Token, token

TABLE = "public.orders"
WAIT_S = 0.2
KEPT_S = 600
"""So long, in seconds, a browser sends the token. Let it be longer than a store is ever behind."""
COOKIE = "written"
Respond = Callable[[str, list[tuple[str, str]]], object]


class ReadsOrders(Protocol):
    """The orders, wherever they are read from."""

    place: str

    def get(self, key: int) -> Mapping[str, Any] | None:
        """The order with this id, None where there is none."""


class Shop(Protocol):
    """The orders in the source."""

    def open(self) -> AbstractContextManager[ReadsOrders]:
        """A context of :class:`ReadsOrders` as Postgres has them."""

    def change(self, key: int, status: str) -> Token:
        """Change an order and commit. The token of the commit."""


class CachedOrders:
    """The orders in the cache. Implements :class:`ReadsOrders`."""

    place = "cache"

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def get(self, key: int) -> Mapping[str, Any] | None:
        return self._cache.get(TABLE, key)


class SourceOrders:
    """The orders on a connection to Postgres. Implements :class:`ReadsOrders`."""

    place = "postgres"

    def __init__(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        self._connection = connection

    def get(self, key: int) -> Mapping[str, Any] | None:
        return self._connection.execute("select id, status from orders where id = %s", [key]).fetchone()


class PostgresShop:
    """Implements :class:`Shop`."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @contextmanager
    def open(self) -> Iterator[SourceOrders]:
        with psycopg.connect(self._dsn, row_factory=dict_row) as connection:
            yield SourceOrders(connection)

    def change(self, key: int, status: str) -> Token:
        with psycopg.connect(self._dsn) as connection:
            connection.execute("update orders set status = %s where id = %s", [status, key])
            connection.commit()
            return token(connection)


class OrderPage:
    """The page as a WSGI application. Threads share it."""

    def __init__(self, shop: Shop, cached: ReadsOrders, freshness: Freshness) -> None:
        self._shop = shop
        self._cached = cached
        self._freshness = freshness

    def __call__(self, environ: Mapping[str, Any], respond: Respond) -> Iterable[bytes]:
        _, _, key = environ["PATH_INFO"].rpartition("/")
        if not key.isdecimal():
            respond("404 Not Found", [])
            return [b""]
        if environ["REQUEST_METHOD"] == "POST":
            [status] = parse_qs(environ["QUERY_STRING"]).get("status", ["paid"])
            written = self._shop.change(int(key), status)
            cookie = f"{COOKIE}={written}; Path=/; Max-Age={KEPT_S}; HttpOnly; SameSite=Lax"
            respond("303 See Other", [("Location", environ["PATH_INFO"]), ("Set-Cookie", cookie)])
            return [b""]
        with self._freshness.reading(
            written_by(environ), self._cached, self._shop.open, timeout_s=WAIT_S, tables=[TABLE]
        ) as orders:
            found = orders.get(int(key))
        code = "200 OK" if found is not None else "404 Not Found"
        respond(code, [("Content-Type", "application/json"), ("X-Read-From", orders.place)])
        return [json.dumps(found).encode()]


def written_by(environ: Mapping[str, Any]) -> Token | None:
    """The token of the reader's last change. None where the browser sends none, or one that somebody has made up."""
    try:
        found = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(COOKIE)
        return Token.parse(found.value) if found is not None else None
    except (CdcError, CookieError):
        return None


def main(dsn: str, url: str, name: str) -> None:
    """Serve the page until Ctrl-C."""
    with Cache(url, name) as cache, Freshness("redis", name, url=url) as freshness:
        page = OrderPage(PostgresShop(dsn), CachedOrders(cache), freshness)
        with make_server("127.0.0.1", 8000, page) as server:
            server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:4])
