"""The small HTTP servers that show figures and health: their pages, ``/livez`` and ``/readyz``."""

from __future__ import annotations

import json
import logging
import select
import socket
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

log = logging.getLogger(__name__)

Page = Callable[[], tuple[str, bytes]]
"""A page's media type and body at this moment."""
Verdict = Callable[[], tuple[bool, str]]
"""Whether all is well, and a sentence."""


class Reply(NamedTuple):
    """The answer to a question: an HTTP status and a document, sent as JSON."""

    status: HTTPStatus
    document: Mapping[str, Any]


Question = Callable[[Mapping[str, str], Callable[[], bool]], Reply]
"""Answers the parameters of a request, each of which came once. It may take its time: each request has a thread. The
second argument says whether the client has left meanwhile."""


class Answering(BaseHTTPRequestHandler):
    """Requests are logged at DEBUG alone: a probe comes every few seconds."""

    pages: Mapping[str, Page]
    verdicts: Mapping[str, Verdict]
    questions: Mapping[str, Question]

    def do_GET(self) -> None:
        """Answer a page, a verdict, a question, or 404 with the paths that exist."""
        path, _, query = self.path.partition("?")
        if path in self.questions:
            status, document = self._asked(self.questions[path], query)
            self._answer(status, "application/json", json.dumps(document).encode() + b"\n")
        elif path in self.pages:
            self._answer(HTTPStatus.OK, *self.pages[path]())
        elif path in self.verdicts:
            good, why = self.verdicts[path]()
            code = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(code, "text/plain; charset=utf-8", f"{why}\n".encode())
        else:
            paths = (*self.pages, *self.questions)
            first = [path for path in paths if path == "/metrics"]
            *others, last = *first, *self.verdicts, *(path for path in paths if path not in first)
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", f"try {', '.join(others)} or {last}\n".encode())

    def version_string(self) -> str:
        """The header ``Server``: nobody needs to know which Python answers."""
        return "cdc"

    def _asked(self, question: Question, query: str) -> Reply:
        pairs = parse_qsl(query, keep_blank_values=True)
        asked = dict(pairs)
        if len(asked) < len(pairs):
            why = {"shown": False, "reason": "a parameter came twice", "hint": "write each parameter once"}
            return Reply(HTTPStatus.BAD_REQUEST, why)
        return question(asked, self._gone)

    def _gone(self) -> bool:
        """Whether the client has closed its end. One that closed its sending side alone counts as well: none does."""
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def _answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request. ``format`` and ``args`` are those of the standard library's method."""
        log.debug("http_request", extra={"request": format % args})


def answering(
    pages: Mapping[str, Page], alive: Verdict, ready: Verdict, questions: Mapping[str, Question] | None = None
) -> type[Answering]:
    """The request handler of a server with these pages and questions by path, and ``/livez`` and ``/readyz``."""
    served = {"pages": pages, "verdicts": {"/livez": alive, "/readyz": ready}, "questions": questions or {}}
    return type("PagesAndHealth", (Answering,), served)


class ThreadEach(ThreadingHTTPServer):
    """A thread a request. A reader who leaves before the end of his answer is no fault."""

    daemon_threads = True
    request_queue_size = 128
    """Readers who come at once are not refused: the library's own is 5."""

    def __init__(self, address: tuple[str, int], handler: type[Answering]) -> None:
        if ":" in address[0]:
            self.address_family = AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a bug's traceback, as the standard library does. A broken connection has none."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class PagesServer:
    """The thread that answers. ``name``: the thread's. OSError and OverflowError where the address cannot be had."""

    def __init__(
        self, address: tuple[str, int], handler: type[Answering], name: str, server: type[ThreadEach] = ThreadEach
    ) -> None:
        self._server = server(address, handler)
        self._thread = Thread(target=self._server.serve_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it answers on, also where any was asked for."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Answer no more requests, and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def exposition(registry: CollectorRegistry) -> tuple[str, bytes]:
    """The page ``/metrics``: all figures of the registry in Prometheus' text form."""
    return CONTENT_TYPE_LATEST, generate_latest(registry)
