"""TLS in front of servers that have none: the local stack's are built or set up without it."""

from __future__ import annotations

import select
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_SSL_REQUEST = bytes.fromhex("0000000804d2162f")
_GSS_REQUEST = bytes.fromhex("0000000804d21630")
_CHUNK_BYTES = 64 * 1024


class Certificate(NamedTuple):
    """Files of a certificate and of its key."""

    made: Path
    key: Path


def self_signed(folder: Path, name: str = "server") -> Certificate:
    """A certificate for 127.0.0.1 that only itself vouches for. Skips the test where nothing can make one."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine to make a certificate with")
    files = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    subject = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(
        ["openssl", *request, *subject, "-out", files.made, "-keyout", files.key], check=True, capture_output=True
    )
    return files


@contextmanager
def encrypted(dsn: str, certificate: Certificate) -> Iterator[str]:
    """How to reach the server of ``dsn`` over TLS while the body runs, its certificate and address verified.

    What answers takes TLS off as a server with ``ssl = on`` does, and refuses plain text. Source: "SSL Session
    Encryption" in PostgreSQL's "Message Flow".
    """
    to = conninfo_to_dict(dsn)
    with _front((str(to["host"]), int(str(to["port"]))), certificate, asked_for=True) as port:
        yield make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="verify-full", sslrootcert=str(certificate.made))


@contextmanager
def in_front_of(port: int, certificate: Certificate) -> Iterator[int]:
    """The port where the server that listens on ``port`` is reached over TLS alone, while the body runs."""
    with _front(("127.0.0.1", port), certificate, asked_for=False) as front:
        yield front


@contextmanager
def _front(server: tuple[str, int], certificate: Certificate, *, asked_for: bool) -> Iterator[int]:
    """``asked_for``: TLS begins when the client has asked for it in Postgres' words."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as lines:
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                client, _ = listening.accept()
                made = (client, server, context, ended, asked_for)
                line = threading.Thread(target=_line, args=made, name="tls line")
                line.start()
                lines.callback(line.join, 10)

        thread = threading.Thread(target=serve, name="tls front")
        thread.start()
        port = int(listening.getsockname()[1])
        try:
            yield port
        finally:
            ended.set()
            socket.create_connection(("127.0.0.1", port)).close()  # accept() waits for somebody
            thread.join(10)


def _line(
    client: socket.socket,
    server: tuple[str, int],
    context: ssl.SSLContext,
    ended: threading.Event,
    asked_for: bool,
) -> None:
    with client:
        try:
            client.settimeout(10)
            if asked_for and not _is_asked(client):
                return
            with context.wrap_socket(client, server_side=True) as secret, socket.create_connection(server) as plain:
                _hand_over(secret, plain, ended)
        except OSError:
            pass  # what either side says of a line that broke is not looked at


def _is_asked(client: socket.socket) -> bool:
    asked = client.recv(len(_SSL_REQUEST), socket.MSG_WAITALL)
    if asked == _GSS_REQUEST:
        client.sendall(b"N")
        asked = client.recv(len(_SSL_REQUEST), socket.MSG_WAITALL)
    if asked != _SSL_REQUEST:
        return False
    client.sendall(b"S")
    return True


def _hand_over(secret: ssl.SSLSocket, plain: socket.socket, ended: threading.Event) -> None:
    """Both ways in one thread: a TLS session is not for two."""
    waiting = {secret: b"", plain: b""}  # what is to be written there
    other = {secret: plain, plain: secret}
    for line in waiting:
        line.setblocking(False)
    while not ended.is_set():
        # One that is behind is not read for: what waits stays small.
        readable = [line for line in waiting if not waiting[other[line]]]
        came = [line for line in readable if line is secret and secret.pending()]
        writable = [line for line in waiting if waiting[line]]
        ready, _, _ = select.select(readable, writable, [], 0 if came else 0.1)
        for line in {*came, *ready}:
            try:
                data = line.recv(_CHUNK_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                continue
            if not data:
                return
            waiting[other[line]] = data
        for line, data in waiting.items():
            try:
                waiting[line] = data[line.send(data) :] if data else b""
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                continue
