"""A Kafka broker of two answers: which requests it knows, and what the cluster is."""

from __future__ import annotations

import socketserver
import struct
import threading

CLUSTER = "a-cluster"
_API_VERSIONS, _METADATA = 18, 3
_NODE = 1


class OneBroker:
    """A cluster of one broker without topics. ``fenced``: so many answers will name no broker, as for a moment after a
    long silence."""

    def __init__(self) -> None:
        self.fenced = 0
        self.asked = 0
        """How many questions about the cluster were answered."""
        double = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while len(head := self.rfile.read(4)) == 4:
                    request = self.rfile.read(int.from_bytes(head))
                    kind, version, number = struct.unpack_from(">hhi", request)
                    body = double.answer(kind, version)
                    self.wfile.write(struct.pack(">ii", len(body) + 4, number) + body)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Connection)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> OneBroker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, kind: int, version: int) -> bytes:
        """The body of an answer, of ApiVersions up to version 3 and of Metadata version 4."""
        known = ((_API_VERSIONS, 0, 3), (_METADATA, 0, 4))
        if kind == _API_VERSIONS and version >= 3:
            rows = b"".join(struct.pack(">hhhB", *one, 0) for one in known)
            return struct.pack(">hB", 0, len(known) + 1) + rows + struct.pack(">iB", 0, 0)
        if kind == _API_VERSIONS:
            return struct.pack(">hi", 0, len(known)) + b"".join(struct.pack(">hhh", *one) for one in known)
        assert (kind, version) == (_METADATA, 4)
        self.asked += 1
        fenced, self.fenced = self.fenced > 0, max(0, self.fenced - 1)
        own = struct.pack(">i", _NODE) + _text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        brokers = struct.pack(">i", 0) if fenced else struct.pack(">i", 1) + own
        controller = struct.pack(">i", -1 if fenced else _NODE)
        return struct.pack(">i", 0) + brokers + _text(CLUSTER) + controller + struct.pack(">i", 0)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
