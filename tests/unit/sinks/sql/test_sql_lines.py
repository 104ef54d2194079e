"""The line to a SQL server whose driver has no option for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from sinks.contract.attempt_limits import looking
from sinks.sql.sql_client import keep_alive


@pytest.fixture
def line() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as made:
        yield made


def test_a_silent_server_is_asked_whether_it_is_there(line: socket.socket) -> None:
    keep_alive(line)
    assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
    assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0, "a batch may wait for a lock"
    with looking():
        keep_alive(line)
    assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
