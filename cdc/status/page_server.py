"""The status page: one HTML document that asks nobody else for anything, and its server for any number of readers."""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import orjson

from cdc.figures.http_server import PagesServer, RequestHandler, ThreadEach
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import ConfigError
from cdc.record.documents import dumped
from cdc.status.board import Board, Grid, Shown, Tile, board_of, document_of, first_board, old_board
from cdc.status.html import Html, element, plots, together
from cdc.status.pace import Curve, Hour, LiveLook

_OLD_S = 30.0
_ASKED_S = 5.0
_LATE_S = 25.0
"""So long may a look take beside the time between two of them."""
_HTML, _JSON = "text/html; charset=utf-8", "application/json"
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class _Newest(NamedTuple):
    """The newest look as readers get it. ``begun_s``: of the look."""

    begun_s: float
    look: LiveLook
    page: bytes
    document: bytes


class StatusAnswering(RequestHandler):
    """Answers with the headers of :func:`cdc.status.page_server.headers`. ``names``: the hosts that it is asked by."""

    names: AbstractSet[str] = frozenset()

    def do_GET(self) -> None:
        """Answer a page, and say no to a browser that was led here by a name of another site."""
        host = self.headers.get("Host")
        if host is None or host_of(host) in self.names or _is_number(host_of(host)):
            super().do_GET()
            return
        known = ", ".join(sorted(self.names))
        words = f"this is the status page of {known}: --http names another host\n"
        self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain; charset=utf-8", words.encode())

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def end_headers(self) -> None:
        """Add them to every answer."""
        for name, value in headers().items():
            self.send_header(name, value)
        super().end_headers()


def host_of(header: str) -> str:
    """The host that a request's header names, without its port.

    >>> host_of("Example:80"), host_of("[::1]:9467"), host_of("localhost")
    ('example', '::1', 'localhost')
    """
    host, colon, port = header.strip().lower().rpartition(":")
    return (host if colon and "]" not in port else header.strip().lower()).strip("[]")


def _is_number(host: str) -> bool:
    """An address that no name leads to: its reader typed it."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def parse_address(address: str) -> tuple[str, int]:
    """The host and port of ``--http``. ConfigError for another text.

    >>> parse_address(":9467"), parse_address("[::1]:0")
    (('127.0.0.1', 9467), ('::1', 0))
    """
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not (port.isascii() and port.isdigit() and len(port) <= 5) or (":" in bare and bare == host):
        raise ConfigError(f"--http {address!r} is not host:port", hint="write it as 127.0.0.1:9467 or [::1]:9467")
    return bare or "127.0.0.1", int(port)


class StatusPages:
    """The page at ``/``, and its document at ``/status``. Readers ask no part of the pipeline, and draw nothing: they
    get the bytes of the newest look that :meth:`tell` heard of, and none of its figures once it is old. A context."""

    def __init__(self, address: str, pipeline: str, every_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """Listen at ``address``, host:port, on loopback where the host is left out. ``every_s``: between two looks.
        ConfigError for an address that is none or is taken."""
        host, port = parse_address(address)
        self._every_s, self._clock = every_s, clock
        self._hour = Hour(every_s)
        self._newest: _Newest | None = None
        # Asked for often enough that a page without a server is noticed soon.
        self._draw = partial(page, every_s=min(_ASKED_S, max(1.0, every_s)))
        self._first = self._draw(first_board(pipeline), ()).encode()
        served = {
            "pages": {"/": self.shown, "/status": self._document},
            "verdicts": {},
            "questions": {},
            "names": _LOOPBACK | {host.lower()},
        }
        handler = type("StatusPagesAnswering", (StatusAnswering,), served)
        try:
            self._server = PagesServer((host, port), handler, "status-http", BoundedServer)
        except (OSError, OverflowError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"--http {address} cannot be listened on: {why}", hint="name a free one, as 127.0.0.1:9467"
            ) from None
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._server.port}/"

    def __enter__(self) -> StatusPages:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def tell(self, look: LiveLook) -> None:
        """A look that has just ended. One thread at a time calls this."""
        self._hour.note(look)
        document = document_of(look)
        drawn = self._draw(board_of(document), self._hour.curves()).encode()
        # One assignment: a reader sees this look or the one before.
        self._newest = _Newest(look.begun_s, look, drawn, dumped(document))

    def _is_old(self, newest: _Newest) -> bool:
        """Its first answers are as old as its beginning."""
        return self._clock.monotonic() - newest.begun_s > max(_OLD_S, self._every_s + _LATE_S)

    def shown(self) -> tuple[str, bytes]:
        """The page's media type, and the page."""
        newest = self._newest
        if newest is None:
            return _HTML, self._first
        if not self._is_old(newest):
            return _HTML, newest.page
        age_s, now_ms = self._clock.monotonic() - newest.begun_s, self._clock.now_ns() // 1_000_000
        return _HTML, self._draw(old_board(document_of(newest.look), age_s, now_ms), ()).encode()

    def _document(self) -> tuple[str, bytes]:
        newest = self._newest
        return _JSON, newest.document if newest is not None and not self._is_old(newest) else b"null"


MOST = 64
"""Connections at once. One more is closed without an answer: a browser asks again."""
READER_S = 10.0
"""A reader who takes longer for his request and its answer is left."""


class BoundedServer(ThreadEach):
    """Looks after its connections about twice a second, as :meth:`serve_forever` calls it."""

    def __init__(self, address: tuple[str, int], handler: type[RequestHandler]) -> None:
        self._open: dict[socket.socket, float] = {}
        self._lock = Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, where there is room for it."""
        with self._lock:
            full = len(self._open) >= MOST
            if not full:
                self._open[request] = SYSTEM_CLOCK.monotonic() + READER_S
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections of those who are slow: one byte each few seconds is no silence."""
        now_s = SYSTEM_CLOCK.monotonic()
        with self._lock:
            slow = [request for request, until_s in self._open.items() if until_s < now_s]
        for request in slow:
            # Its thread is in the middle of a read or a write, and ends by it.
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


_ICON = "data:,"
"""Without an icon of its own a browser asks for one."""
_FIRST = ("Stores", "Views")
"""Above the plots."""
_NUMBERS = frozenset((
    "behind", "age", "takes up", "caught up in", "p50", "p99", "parked keys", "waiting", "late", "on disk", "done",
    "rows",
))  # fmt: skip
"""The columns whose figures stand below each other."""


@cache
def _inline(name: str) -> Html:
    return Html((Path(__file__).with_name(name)).read_text(encoding="utf-8"))


@cache
def headers() -> Mapping[str, str]:
    """The headers of the page: a browser may fetch the page itself again, and run and apply the two inline parts."""
    policy = {
        "default-src": "'none'",
        "script-src": _hash(_inline("page.js")),
        "style-src": _hash(_inline("page.css")),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def page(board: Board, curves: Sequence[Curve], every_s: float) -> str:
    """The whole document. ``every_s``: after how many seconds it is to be fetched again."""
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<link rel="icon" href="{_ICON}">'),
        element("title", f"{board.title}: {board.verdict.text}"),
        element("style", _inline("page.css")),
        element("noscript", Html(f'<meta http-equiv="refresh" content="{max(1, round(every_s))}">')),
    )
    gone = element("p", id="gone", class_="bad", role="alert", hidden=True)
    body = element("body", gone, _main(board, curves), element("script", _inline("page.js")), data_every=f"{every_s:g}")
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _main(board: Board, curves: Sequence[Curve]) -> Html:
    title = element(
        "header",
        element("h1", board.title),
        element("span", board.verdict.text, class_=f"verdict {board.verdict.tone}"),
        element("span", "looked at ", _figure(board.at), class_="at"),
    )
    faults = element("ul", *(element("li", words) for words in board.faults), class_="faults")
    return element(
        "main",
        title,
        faults if board.faults else Html(""),
        element("div", *map(_tile, board.tiles), class_="tiles") if board.tiles else Html(""),
        *(_grid(grid) for grid in board.grids if grid.title in _FIRST),
        plots(curves),
        *(_grid(grid) for grid in board.grids if grid.title not in _FIRST),
    )


def _tile(tile: Tile) -> Html:
    lines = (
        element("div", element("dt", label), element("dd", _figure(shown)), class_="line-of")
        for label, shown in tile.lines
    )
    return element("section", element("h2", tile.title), _notes(tile.notes), element("dl", *lines), class_="tile")


def _notes(notes: Sequence[str]) -> Html:
    return together(*(element("p", words, class_="note unknown") for words in notes))


def _grid(grid: Grid) -> Html:
    head = element("thead", element("tr", *(_column(title) for title in grid.columns)))
    rows = (element("tr", *_cells(row, grid.columns)) for row in grid.rows)
    table = element("div", element("table", head, element("tbody", *rows)), class_="grid") if grid.rows else Html("")
    return together(element("h2", grid.title), _notes(grid.notes), table)


def _column(title: str) -> Html:
    return element("th", title, scope="col", **_aligned(title))


def _aligned(title: str) -> dict[str, str]:
    return {"class_": "number"} if title in _NUMBERS else {}


def _cells(row: Sequence[Shown], columns: Sequence[str]) -> list[Html]:
    first, *rest = row
    return [
        element("th", _figure(first), scope="row"),
        *(
            element("td", _figure(shown), data_label=title, **_aligned(title))
            for shown, title in zip(rest, columns[1:], strict=True)
        ),
    ]


def _figure(shown: Shown) -> Html:
    """A figure with its place in the document and its value there, for programs that read the page."""
    tone = {"class": shown.tone} if shown.tone else {}
    if not shown.at:
        text = element("span", shown.text, **tone)
    else:
        text = element("data", shown.text, value=_plain(shown.value), data_at=shown.at, **tone)
    if shown.share is None:
        return text
    bar = element("progress", max="1", value=f"{shown.share:.3f}", aria_label=shown.text)
    return element("span", text, bar)


def _plain(value: Any) -> str:
    """As JSON has it, a string without its quotes."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
