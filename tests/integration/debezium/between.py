"""A server between us and Kafka Connect: it notes what is asked, and refuses what it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import requests


class Seen(NamedTuple):
    """A request. ``at_ms``: since 1970, by this machine's clock."""

    at_ms: int
    method: str
    path: str


@dataclass
class Between:
    """``refused``: the endings of paths whose PUT is answered with 400, and not passed on."""

    url: str
    refused: set[str] = field(default_factory=set)
    seen: list[Seen] = field(default_factory=list)

    def first(self, ending: str) -> int:
        """When the first change by such a path was asked."""
        return next(one.at_ms for one in self.seen if one.method in ("PUT", "PATCH") and one.path.endswith(ending))


@contextmanager
def between(connect: str) -> Iterator[Between]:
    """The server while the body runs."""

    class Passing(BaseHTTPRequestHandler):
        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            here.seen.append(Seen(time.time_ns() // 1_000_000, self.command, self.path))
            if self.command == "PUT" and self.path.endswith(tuple(here.refused)):
                status, answer = 400, b'{"error_code": 400, "message": "refused by a test"}'
            else:
                headers = {"Content-Type": "application/json"}
                done = requests.request(self.command, connect + self.path, data=body, headers=headers, timeout=60)
                status, answer = done.status_code, done.content
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = _pass

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    here = Between(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
