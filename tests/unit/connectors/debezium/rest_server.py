"""A REST server on loopback that answers as it is told, for answers that a real Kafka Connect gives too seldom."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson


@dataclass
class Script:
    """What to answer: ``(status, document)`` in order, the last one for ever; and what was asked, with the login."""

    answers: list[tuple[int, Any]]
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)

    def next(self) -> tuple[int, Any]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def rest_server(script: Script, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    """The server's URL while the body runs; https with ``certificate`` (file of it, file of its key)."""

    class Answer(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            script.asked.append((self.command, self.path, self.headers.get("Authorization")))
            status, document = script.next()
            body = document if isinstance(document, bytes) else orjson.dumps(document)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
