"""Servers that are not what an address was taken for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

Answer = Callable[[bytes], bytes | None]


def web(_request: bytes) -> bytes:
    """As a web server answers to what is no HTTP."""
    return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


def lines(request: bytes) -> bytes | None:
    """As Redis: an error for each line that has words, silence until one has."""
    words = [line for line in request.split(b"\n")[:-1] if line.strip(b"\0\r") and not line.startswith(b"\0")]
    return b"-ERR unknown command\r\n" * len(words) or None


def closed(_request: bytes) -> bytes:
    """The connection is closed without a word."""
    return b""


def silence(_request: bytes) -> None:
    """Nothing is ever answered."""


@contextmanager
def stranger(answer: Answer) -> Iterator[int]:
    """The port of a server of this machine that answers each connection's bytes by ``answer``: None for not yet."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, answer), name="stranger")
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listening: socket.socket, answer: Answer) -> None:
    while True:
        try:
            line, _ = listening.accept()
        except OSError:
            return
        with closing(line), suppress(OSError):
            request = b""
            while part := line.recv(4096):
                request += part
                said = answer(request)
                if said is not None:
                    line.sendall(said)
                    break
