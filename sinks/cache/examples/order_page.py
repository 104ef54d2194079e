"""A web page of an order that is read from the cache and never shows its reader less than he has written.

``order_page.py "host=127.0.0.1 dbname=shop user=app" redis://127.0.0.1:6379/0 shop`` serves http://127.0.0.1:8000.

``GET /orders/42`` shows an order, ``POST /orders/42?status=paid`` changes it. The answer to a change sets a cookie with
the token of the commit. A browser that sends it gets the order from the cache if that shows the commit, else from
Postgres.

Each change sets a cookie of another name, and takes back those that its browser had sent: two windows may change orders
at once, and whichever answer comes last, both tokens are there. The latest one counts. Not covered are a reader with
two browsers, one who takes no cookies, a cache that is behind for longer than the cookie is kept, and an answer that
never came: he does not know whether he has written.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
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
COOKIE = "written-"
"""The names of the cookies begin so. Those of others in the same header may be of any form."""
_ONE_OF_OURS = re.compile(rf"{COOKIE}[0-9a-f]{{16}}")
_PLACE = re.compile(r"/orders/([0-9]{1,18})")
_LONGEST = 40
Headers = list[tuple[str, str]]
Respond = Callable[[str, Headers], object]


class UnclearError(Exception):
    """The browser has sent tokens of two servers. They have no order."""


class ReadsOrders(Protocol):
    """The orders, wherever they are read from."""

    place: str

    def get(self, key: int, since: Token | None) -> Mapping[str, Any] | None:
        """The order with this id, None where there is none. ``since``: the reader's last change, which it shows."""


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

    def get(self, key: int, since: Token | None) -> Mapping[str, Any] | None:
        # Between the wait and this the cache may have been switched to another generation. Such a one is not read.
        return self._cache.get(TABLE, key, since=since)


class SourceOrders:
    """The orders on a connection to Postgres. Implements :class:`ReadsOrders`."""

    place = "postgres"

    def __init__(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        self._connection = connection

    def get(self, key: int, since: Token | None) -> Mapping[str, Any] | None:
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
        place = _PLACE.fullmatch(environ["PATH_INFO"])
        headers: Headers
        match environ["REQUEST_METHOD"]:
            case _ if place is None:
                code, headers, body = "404 Not Found", [], b""
            case "GET" | "HEAD" as method:
                code, headers, body = self._show(int(place[1]), environ)
                body = body if method == "GET" else b""
            case "POST":
                code, headers, body = self._change(int(place[1]), environ)
            case _:
                code, headers, body = "405 Method Not Allowed", [("Allow", "GET, HEAD, POST")], b""
        respond(code, headers)
        return [body]

    def _show(self, key: int, environ: Mapping[str, Any]) -> tuple[str, Headers, bytes]:
        found, place = self._read(key, environ)
        code = "200 OK" if found is not None else "404 Not Found"
        return code, [("Content-Type", "application/json"), ("X-Read-From", place)], json.dumps(found).encode()

    def _read(self, key: int, environ: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
        try:
            since = last_written(environ)
            with self._freshness.reading(
                since, self._cached, self._shop.open, timeout_s=WAIT_S, tables=[TABLE]
            ) as orders:
                return orders.get(key, since), orders.place
        except (CdcError, UnclearError):
            # A cookie that is ours and no token, or the cache has gone away meanwhile.
            with self._shop.open() as orders:
                return orders.get(key, None), orders.place

    def _change(self, key: int, environ: Mapping[str, Any]) -> tuple[str, Headers, bytes]:
        asked = parse_qs(environ["QUERY_STRING"]).get("status", [])
        if len(asked) != 1 or len(asked[0]) > _LONGEST or not asked[0].isprintable():
            return "400 Bad Request", [], b"status is one short word"
        written = self._shop.change(key, asked[0])
        # The new token is behind all that came with the request.
        cookies = [f"{name}=; Path=/; Max-Age=0" for name in _ours(environ)]
        cookies.append(f"{COOKIE}{secrets.token_hex(8)}={written}; Path=/; Max-Age={KEPT_S}; HttpOnly; SameSite=Lax")
        # Nothing in an answer is made of the path: it may be another host's, or bring a header of its own.
        return "303 See Other", [("Location", f"/orders/{key}"), *(("Set-Cookie", text) for text in cookies)], b""


def last_written(environ: Mapping[str, Any]) -> Token | None:
    """The token of the reader's last change. None where the browser sends none. CdcError where it sends one that is no
    token, UnclearError for tokens of two servers: read from Postgres then."""
    tokens = [Token.parse(text) for text in _ours(environ).values()]
    if len({(one.system, one.timeline) for one in tokens}) > 1:
        raise UnclearError
    return max(tokens, key=lambda one: one.lsn, default=None)


def _ours(environ: Mapping[str, Any]) -> dict[str, str]:
    """Our cookies by name. A parser of whole headers would stop at the first one of others that it does not like."""
    parts = (part.strip().partition("=") for part in environ.get("HTTP_COOKIE", "").split(";"))
    return {name: text for name, _, text in parts if _ONE_OF_OURS.fullmatch(name)}


def main(dsn: str, url: str, name: str) -> None:
    """Serve the page until Ctrl-C."""
    with Cache(url, name) as cache, Freshness("redis", name, url=url) as freshness:
        page = OrderPage(PostgresShop(dsn), CachedOrders(cache), freshness)
        with make_server("127.0.0.1", 8000, page) as server:
            server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:4])
