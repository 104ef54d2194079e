"""The status page on an HTTP address: the newest look, for any number of readers. GET and HEAD, and nothing changes."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple

from cdc.answering import Answering, PagesServer
from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import ConfigError
from cdc.json_bytes import dumped
from cdc.status.board import board_of, document_of, first_board, old_board
from cdc.status.bounded_server import BoundedServer
from cdc.status.hour import Hour
from cdc.status.live_looks import LiveLook
from cdc.status.page import headers, page

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


class StatusAnswering(Answering):
    """Answers with the headers of :func:`cdc.status.page.headers`. ``names``: the hosts that it is asked by."""

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
