"""The answers of the small HTTP servers that show figures and health."""

from __future__ import annotations

import logging
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

log = logging.getLogger(__name__)


class Answering(BaseHTTPRequestHandler):
    """Requests are logged at DEBUG alone: a probe comes every few seconds."""

    def answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        """Send a whole answer. ``kind``: its media type."""
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def verdict(self, good: bool, why: str) -> None:
        """200 or 503, and a sentence."""
        code = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        self.answer(code, "text/plain; charset=utf-8", f"{why}\n".encode())

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("http_request", extra={"request": format % args})
