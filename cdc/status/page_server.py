"""The status page on an HTTP address: the newest look, for any number of readers. GET alone, and nothing changes."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from cdc.answering import Answering, PagesServer
from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import ConfigError
from cdc.json_bytes import dumped
from cdc.status.board import board_of, document_of, first_board, old_board
from cdc.status.hour import Curve, Hour
from cdc.status.live_looks import LiveLook
from cdc.status.page import headers, page

_READER_S = 10.0
"""A reader who takes longer with a request is left."""
_OLD_S = 30.0
_OLD_LOOKS = 5


class _Newest(NamedTuple):
    look: LiveLook
    at_s: float
    curves: tuple[Curve, ...]


class StatusAnswering(Answering):
    """Answers with the headers of :func:`cdc.status.page.headers`."""

    timeout = _READER_S

    def end_headers(self) -> None:
        """Add them to every answer."""
        for name, value in headers().items():
            self.send_header(name, value)
        super().end_headers()


class StatusPages:
    """The page at ``/``, and its document at ``/status``. Readers ask no part of the pipeline: they get the newest look
    that :meth:`tell` heard of, and none of its figures once it is old. A context."""

    def __init__(self, address: str, pipeline: str, every_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """Listen at ``address``, host:port, on loopback where the host is left out. ``every_s``: between two looks.
        ConfigError for an address that is none or is taken."""
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit():
            raise ConfigError(f"--http {address!r} is not host:port", hint="write it as 127.0.0.1:9467")
        self._pipeline, self._every_s, self._clock = pipeline, every_s, clock
        self._hour = Hour()
        self._newest: _Newest | None = None
        pages = {"/": self._page, "/status": self._document}
        handler = type("StatusPagesAnswering", (StatusAnswering,), {"pages": pages, "verdicts": {}, "questions": {}})
        host = host.strip("[]") or "127.0.0.1"
        try:
            self._server = PagesServer((host, int(port)), handler, "status-http")
        except (OSError, OverflowError) as error:
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
        """A look that has just ended. One thread calls this."""
        at_s = self._clock.monotonic()
        self._hour.note(look, at_s)
        # One assignment: a reader sees this look or the one before.
        self._newest = _Newest(look, at_s, self._hour.curves())

    def _is_old(self, newest: _Newest) -> bool:
        return self._clock.monotonic() - newest.at_s > max(_OLD_S, _OLD_LOOKS * self._every_s)

    def _page(self) -> tuple[str, bytes]:
        draw, newest = partial(page, every_s=max(1.0, self._every_s)), self._newest
        if newest is None:
            text = draw(first_board(self._pipeline), ())
        elif self._is_old(newest):
            text = draw(old_board(document_of(newest.look), self._clock.now_ns() // 1_000_000), ())
        else:
            text = draw(board_of(document_of(newest.look)), newest.curves)
        return "text/html; charset=utf-8", text.encode()

    def _document(self) -> tuple[str, bytes]:
        newest = self._newest
        document = document_of(newest.look) if newest is not None and not self._is_old(newest) else None
        return "application/json", dumped(document)
