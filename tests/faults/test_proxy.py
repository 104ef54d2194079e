"""The proxy breaks what it is told to break, and nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.faults.proxy import LOOPBACK, Fault, Proxy
from tests.waiting import wait_until


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    @staticmethod
    def _answer(connection: socket.socket) -> None:
        with connection:
            try:
                while block := connection.recv(4096):
                    connection.sendall(block)
            except OSError:
                return


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    echo = Echo()
    with Proxy(echo.port) as made:
        yield made
    echo.close()


def connected(proxy: Proxy) -> socket.socket:
    link = socket.create_connection((LOOPBACK, proxy.port), timeout=10)
    link.sendall(b"hello")
    assert received(link, 5) == b"hello"
    return link


def received(link: socket.socket, size: int) -> bytes:
    """So many bytes, however they come."""
    got = b""
    while len(got) < size:
        got += link.recv(65536)
    return got


def test_bytes_pass_unchanged_also_in_crumbs(proxy: Proxy) -> None:
    proxy.set(Fault(block=3))
    with connected(proxy) as link:
        text = bytes(range(256)) * 40
        link.sendall(text)
        assert received(link, len(text)) == text
    assert proxy.connections == 1
    wait_until(lambda: proxy.open_connections == 0)


def test_a_cut_is_a_reset_and_a_closed_link_an_end(proxy: Proxy) -> None:
    with connected(proxy) as link:
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            link.recv(1)
    with connected(proxy) as link:
        assert proxy.cut(reset=False) == 1
        assert link.recv(1) == b""


def test_a_refused_connection_is_reset(proxy: Proxy) -> None:
    proxy.set(Fault(refuse=True))
    with (
        pytest.raises(ConnectionResetError),
        socket.create_connection((LOOPBACK, proxy.port), timeout=10) as link,
    ):
        link.recv(1)
    proxy.heal()
    connected(proxy).close()


def test_a_stall_holds_bytes_back_until_it_is_healed(proxy: Proxy) -> None:
    with connected(proxy) as link:
        proxy.set(Fault(stall=True, one_way="down"))
        link.sendall(b"late")
        link.settimeout(0.3)
        with pytest.raises(TimeoutError):
            link.recv(10)
        proxy.heal()
        link.settimeout(10)
        assert link.recv(10) == b"late"


def test_what_stands_behind_a_held_message_is_held_and_counted(proxy: Proxy) -> None:
    with connected(proxy) as link:
        proxy.set(Fault(stall=True, one_way="up"))
        link.sendall(b"first ")
        wait_until(lambda: proxy.held_bytes == 6)
        link.sendall(b"second")
        wait_until(lambda: proxy.held_bytes == 12)
        proxy.heal()
        link.settimeout(10)
        found = b""
        while len(found) < 12:
            found += link.recv(12)
        assert found == b"first second"
    wait_until(lambda: proxy.held_bytes == 0)


def test_h13_a_half_open_link_is_silent(proxy: Proxy) -> None:
    with connected(proxy) as link:
        assert proxy.half_open() == 1
        link.sendall(b"anybody?")
        link.settimeout(0.3)
        with pytest.raises(TimeoutError):
            link.recv(10)


def test_a_link_is_cut_in_the_middle_of_a_message(proxy: Proxy) -> None:
    proxy.set(Fault(cut_after=3))
    with socket.create_connection((LOOPBACK, proxy.port), timeout=10) as link:
        link.sendall(b"hello")
        with pytest.raises(ConnectionResetError):
            while link.recv(10):
                pass


def test_the_port_is_free_afterwards() -> None:
    with Proxy(1) as made:
        port = made.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port), timeout=2)


@pytest.mark.integration
def test_kafka_sends_its_clients_to_the_proxy(kafka: str) -> None:
    with Proxy(int(kafka.rsplit(":", 1)[1]), kafka=True) as made:
        metadata = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{made.port}"}).list_topics(timeout=20)
        assert [(str(broker.host), broker.port) for broker in metadata.brokers.values()] == [(LOOPBACK, made.port)]
