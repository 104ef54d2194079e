"""The walsender's line: through libpq, or past it where it is safe to read the socket itself.

libpq hands a frame over as a whole and copies it twice: a field of 200 MB takes 456 MB there before anybody can
refuse it. On a line without encryption the bytes in the socket are the protocol's own, so from START_REPLICATION on
they are read here, and a frame that no record can carry is abridged on its way in
(:mod:`connectors.postgres.protocol.oversized_fields`). Logging in, TLS and GSSAPI stay libpq's: over those it reads
the stream too, and its frames are abridged after it has them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Protocol, TypeVar

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen
from psycopg.pq.abc import PGresult
from psycopg.waiting import Wait

from cdc.process.clock import readable
from cdc.process.sql_files import load
from connectors.postgres.protocol.frames import COPY_BOTH, READY, Incoming, ServerNotice
from connectors.postgres.protocol.messages import XLOG_DATA
from connectors.postgres.protocol.oversized_fields import abridged
from connectors.postgres.server.connections import Connection

_READ_BYTES = 256 * 1024
_BATCH_BYTES = 1 << 20
_TLS_WAIT_S = 0.02

_NOT_BEGUN = ServerNotice("", "the stream did not begin")

Notice = Callable[[ServerNotice], None]
_Answer = TypeVar("_Answer")


class Broken(Exception):
    """The line is gone. Says why."""


class CopyStream(Protocol):
    """One COPY in both directions. Not for several threads at once."""

    def start(self, statement: bytes) -> ServerNotice | None:
        """Begin it. The server's refusal, None when it runs. Raises Broken, and what the connection's ``turn`` does."""

    def receive(self, most: int) -> list[bytes]:
        """Frames that can be had without waiting, about a megabyte of them. One that is no XLogData is the last of
        its list. Those too large are :class:`connectors.postgres.protocol.oversized_fields.Abridged`. Raises Broken."""

    @property
    def ended(self) -> bool:
        """Nothing more will come."""

    @property
    def error(self) -> ServerNotice | None:
        """Why the server ended it, where it gave a reason."""

    def wait(self, timeout_s: float) -> bool:
        """Whether something came in, after at most so long. Sooner where that can not be seen."""

    def send(self, frame: bytes) -> None:
        """Without waiting. Raises Broken."""

    def finish(self) -> None:
        """Report to the server that nothing more is sent. Raises Broken."""

    def close(self) -> None:
        """Release what is the link's own. The connection is not."""


def open_link(connection: Connection, limit: int, notice: Notice) -> CopyStream:
    """``limit``: a longer frame is abridged, to rows of about this size. ``notice`` is called for each."""
    plain = not connection.pgconn.ssl_in_use and not _gss_encrypted(connection)
    return SocketCopyStream(connection, limit, notice) if plain else LibpqLink(connection, limit, notice)


def _gss_encrypted(connection: Connection) -> bool:
    row = connection.execute(load(__package__, "stream.sql")["gss_encrypted"].encode()).fetchone()
    return row is not None and bool(row[0])


class SocketCopyStream:
    """:class:`CopyStream` on the socket of a session that rests. Its connection is good for nothing but being closed
    then."""

    def __init__(self, connection: Connection, limit: int, notice: Notice) -> None:
        self._connection = connection
        self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))
        self._socket.setblocking(False)
        self._incoming = Incoming(limit, notice)
        self._out = b""

    def start(self, statement: bytes) -> ServerNotice | None:
        incoming = self._incoming
        incoming.error, incoming.ended = None, False
        self._write(b"Q%b%b\0" % ((len(statement) + 5).to_bytes(4), statement))
        while True:
            _answered(self._connection, _arrival())
            incoming.feed(self._read())
            incoming.frames(1)
            kinds, incoming.kinds = incoming.kinds, []
            if COPY_BOTH in kinds:
                return None
            if READY in kinds:
                return _NOT_BEGUN if self.error is None else self.error

    def receive(self, most: int) -> list[bytes]:
        incoming = self._incoming
        found = incoming.frames(most)
        read_bytes = 0
        while len(found) < most and read_bytes < _BATCH_BYTES and not (found and found[-1][0] != XLOG_DATA):
            try:
                data = self._read() if not incoming.ended else b""
            except Broken:
                if found:
                    break  # raised at the next call: these came before it
                raise
            if not data:
                break
            incoming.feed(data)
            found += incoming.frames(most - len(found))
            read_bytes += len(data)
            if len(data) < _READ_BYTES:
                break
        return found

    @property
    def ended(self) -> bool:
        return self._incoming.ended

    @property
    def error(self) -> ServerNotice | None:
        return self._incoming.error

    def wait(self, timeout_s: float) -> bool:
        return readable(self._socket.fileno(), timeout_s)

    def send(self, frame: bytes) -> None:
        self._write(b"d%b%b" % ((len(frame) + 4).to_bytes(4), frame))

    def finish(self) -> None:
        self._write(b"c\0\0\0\x04")

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> bytes:
        """The bytes that are there. Nothing where nothing is."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise Broken(error.strerror or str(error)) from None
        if not data:
            raise Broken("the server closed the connection")
        return data

    def _write(self, data: bytes) -> None:
        self._out += data
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            pass  # the server reads nothing at the moment: it goes with the next
        except OSError as error:
            raise Broken(error.strerror or str(error)) from None


class LibpqLink:
    """:class:`CopyStream` through libpq: of an encrypted session."""

    def __init__(self, connection: Connection, limit: int, notice: Notice) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._limit = limit
        self._done = False
        self.ended = False
        self.error: ServerNotice | None = None

        def told(diagnostic: psycopg.errors.Diagnostic) -> None:
            notice(ServerNotice(diagnostic.sqlstate or "", diagnostic.message_primary or ""))

        connection.add_notice_handler(told)

    def start(self, statement: bytes) -> ServerNotice | None:
        try:
            self._pgconn.send_query(statement)
        except psycopg.Error as error:
            raise Broken(str(error)) from None
        result = _answered(self._connection, generators.execute(self._pgconn))[-1]
        if result.status != pq.ExecStatus.COPY_BOTH:
            return _said(result)
        self._pgconn.nonblocking = 1
        return None

    def receive(self, most: int) -> list[bytes]:
        if self.ended:
            return []
        try:
            found = self._frames(most)
            if not found and not self.ended:
                self._pgconn.consume_input()
                found = self._frames(most)
        except psycopg.Error as error:
            raise Broken(str(error)) from None
        return found

    def wait(self, timeout_s: float) -> bool:
        # Decrypted bytes may wait in the TLS layer, where poll does not see them: receive looks there.
        short_s = min(timeout_s, _TLS_WAIT_S) if self._pgconn.ssl_in_use else timeout_s
        return readable(self._pgconn.socket, short_s)

    def send(self, frame: bytes) -> None:
        try:
            self._pgconn.put_copy_data(frame)
            self._pgconn.flush()
        except psycopg.Error as error:
            raise Broken(str(error)) from None

    def finish(self) -> None:
        try:
            self._pgconn.put_copy_end()
            self._pgconn.flush()
        except psycopg.Error as error:
            raise Broken(str(error)) from None

    def close(self) -> None:
        pass

    def _frames(self, most: int) -> list[bytes]:
        get = self._pgconn.get_copy_data
        found: list[bytes] = []
        left = _BATCH_BYTES
        while not self._done and len(found) < most and left > 0:
            size, data = get(1)
            self._done = size < 0
            if size <= 0:
                break
            found.append(bytes(data) if size <= self._limit else abridged(data, self._limit))
            left -= size
            if found[-1][0] != XLOG_DATA:
                break
        # Messages behind the copy may be late, or never come. libpq would wait for them.
        if self._done and not self._pgconn.is_busy():
            self.ended = True
            result = self._pgconn.get_result()
            failed = result is not None and result.status == pq.ExecStatus.FATAL_ERROR
            self.error = _said(result) if result is not None and failed else None
        return found


def _arrival() -> PQGen[None]:
    """Ends when something came in."""
    while not (yield Wait.R):
        pass


def _answered(connection: Connection, answer: PQGen[_Answer]) -> _Answer:
    """It, waited for as the connection waits: a stop is heard, and silence has an end. Raises Broken."""
    try:
        return connection.wait(answer)
    except psycopg.Error as error:
        raise Broken(str(error)) from None


def _said(result: PGresult) -> ServerNotice:
    state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
    primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    return ServerNotice(state.decode(), primary.decode("utf-8", "replace").strip())
