"""Ends of a line that a real server seldom makes: silence behind the copy, and a connection closed behind frames."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import psycopg
import pytest

from connectors.postgres.server.transport import Broken, CopyStream, LibpqLink, SocketCopyStream
from tests.waiting import wait_until

both_ways = pytest.mark.parametrize("made", [SocketCopyStream, LibpqLink])

_READY = b"Z\0\0\0\x05I"


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


@contextmanager
def walsender(frames: Sequence[bytes] = ()) -> Iterator[str]:
    """How to reach one that begins any stream and sends these frames. With some it closes the connection behind them;
    without it says that the copy is done when it is asked to, and stands still then."""

    def serve() -> None:
        client, _ = listening.accept()
        with client, client.makefile("rb") as asked:
            client.settimeout(20)
            asked.read(int.from_bytes(asked.read(4)) - 4)
            settings = b"".join(
                _message(b"S", name + b"\0" + value + b"\0")
                for name, value in ((b"server_version", b"18.0"), (b"client_encoding", b"UTF8"))
            )
            client.sendall(_message(b"R", bytes(4)) + settings + _READY)
            while kind := asked.read(1):
                asked.read(int.from_bytes(asked.read(4)) - 4)
                if kind == b"Q":
                    client.sendall(_message(b"W", bytes(3)) + b"".join(_message(b"d", frame) for frame in frames))
                    if frames:
                        return
                elif kind == b"c":
                    client.sendall(_message(b"c", b""))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"host=127.0.0.1 port={listening.getsockname()[1]} user=u sslmode=disable gssencmode=disable"
    thread.join(20)


@contextmanager
def streaming(made: type[SocketCopyStream] | type[LibpqLink], dsn: str) -> Iterator[CopyStream]:
    with closing(psycopg.connect(dsn, autocommit=True)) as session, closing(made(session, 1 << 20, print)) as link:
        assert link.start(b"START_REPLICATION") is None
        yield link


@both_ways
def test_what_follows_the_copy_is_not_waited_for(made: type[SocketCopyStream] | type[LibpqLink]) -> None:
    with walsender() as dsn, streaming(made, dsn) as link:
        link.finish()
        wait_until(lambda: link.wait(0.1), 10, "the copy is done")
        reading = threading.Thread(target=link.receive, args=(10,), daemon=True)
        reading.start()
        reading.join(5)
        assert not reading.is_alive()
        assert link.receive(10) == []
        assert link.error is None


@both_ways
@pytest.mark.parametrize("size_bytes", [40, 200_000], ids=["small", "large"])
def test_frames_that_came_before_the_line_broke_are_given_first(
    made: type[SocketCopyStream] | type[LibpqLink], size_bytes: int
) -> None:
    frames = [b"w" + bytes([number]) * size_bytes for number in range(9)]
    found: list[bytes] = []
    with walsender(frames) as dsn, streaming(made, dsn) as link:

        def broken() -> bool:
            try:
                while (more := link.receive(10)) or link.wait(0.1):
                    found.extend(more)
            except Broken:
                return True
            return False

        wait_until(broken, 10)
    assert found == frames
