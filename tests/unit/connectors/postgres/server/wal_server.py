"""A Postgres of a few answers: who it is, when it was started, and its WAL by physical replication."""

from __future__ import annotations

import socketserver
import threading

from cdc.record.position import Lsn
from cdc.settings.model import SourceSettings

STARTED = "2026-01-01 00:00:00+00"
SYSTEM = "7"
_OIDS = {int: 23, str: 25}


class Enough(Exception):
    """The wait is given up."""


def given_up() -> None:
    """A stop, at the first moment of a wait. Raises Enough."""
    raise Enough


def message(kind: bytes, body: bytes) -> bytes:
    """A message of the server's."""
    return kind + (len(body) + 4).to_bytes(4) + body


READY = message(b"Z", b"I")
COPY_BOTH = message(b"W", bytes(3))


def refusal(sqlstate: str) -> bytes:
    """An error, and readiness for what is asked next."""
    return message(b"E", b"SERROR\0C%b\0Mno\0\0" % sqlstate.encode()) + READY


def row(*values: int | str) -> bytes:
    """The answer to a query that has one row."""
    columns = b"".join(
        b"c\0" + bytes(6) + _OIDS[type(one)].to_bytes(4) + (65535).to_bytes(2) + bytes(4) + bytes(2) for one in values
    )
    texts = [str(one).encode() for one in values]
    fields = b"".join(len(text).to_bytes(4) + text for text in texts)
    count = len(values).to_bytes(2)
    return message(b"T", count + columns) + message(b"D", count + fields) + message(b"C", b"SELECT 1\0") + READY


class WalServer:
    """``wal``: what it has written, from LSN 0 on. ``begins``: what it says instead where its WAL is asked for.
    ``silent``: it answers nothing that begins so. ``closes``: it closes the session there."""

    def __init__(self, wal: bytes = b"", *, begins: bytes = b"", silent: bytes = b"\0", closes: bytes = b"\0") -> None:
        self.wal = wal
        self.inserted = len(wal)
        """How far it has written, its disk aside."""
        self.started = STARTED
        self.asked: list[bytes] = []
        self._begins = begins
        self._silent = silent
        self._closes = closes
        double = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.rfile.read(int.from_bytes(self.rfile.read(4)) - 4)
                said = ((b"server_version", b"18.0"), (b"client_encoding", b"UTF8"))
                settings = b"".join(message(b"S", name + b"\0" + value + b"\0") for name, value in said)
                self.wfile.write(message(b"R", bytes(4)) + settings + READY)
                while (kind := self.rfile.read(1)) and kind != b"X":
                    asked = self.rfile.read(int.from_bytes(self.rfile.read(4)) - 4).rstrip(b"\0")
                    if kind == b"Q" and asked.startswith(double._closes):
                        return
                    if kind == b"Q" and not asked.startswith(double._silent):
                        self.wfile.write(double.answer(asked))

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Session)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        dsn = f"host=127.0.0.1 port={self._server.server_address[1]} user=u dbname=d sslmode=disable gssencmode=disable"
        self.source = SourceSettings(dsn=dsn, tables=["public.*"])

    def __enter__(self) -> WalServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, statement: bytes) -> bytes:
        """What it says to a statement. A new session has what it asked for."""
        if b"pg_backend_pid" in statement:
            return row("DateStyle", "ISO", 0)
        self.asked.append(statement)
        rows: dict[bytes, tuple[int | str, ...]] = {
            b"IDENTIFY_SYSTEM": (SYSTEM, 1, str(Lsn(len(self.wal))), "d"),
            b"pg_postmaster_start_time": (self.started,),
            b"wal_segment_size": (1 << 24,),
            b"pg_current_wal_insert_lsn": (self.inserted,),
            b"pg_current_wal_flush_lsn": (len(self.wal),),
        }
        for name, values in rows.items():
            if name in statement:
                return row(*values)
        if statement.startswith(b"START_REPLICATION PHYSICAL"):
            at = int(Lsn.parse(statement.split()[2].decode()))
            return self._begins or COPY_BOTH + _frames(self.wal[at:])
        return message(b"C", b"SET\0") + READY


def _frames(wal: bytes) -> bytes:
    """In parts, as a server may send it, with a keepalive before the first."""
    parts = [wal[at : at + 30] for at in range(0, len(wal), 30)]
    return message(b"d", b"k" + bytes(17)) + b"".join(message(b"d", b"w" + bytes(24) + part) for part in parts)
