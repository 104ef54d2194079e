"""COPY ... TO STDOUT below psycopg's own, which costs more per line than Postgres needs to send it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg import pq

from cdc.readable import readable
from snapshot.edges import Session

BLOCK_LINES = 1000
BLOCK_BYTES = 1024**2


def copy_out(session: Session, statement: bytes) -> Iterator[list[bytes]]:
    """Run a COPY ... TO STDOUT. Its lines in blocks, as they come. psycopg's error when it fails.

    It waits outside libpq, so that other threads run meanwhile.
    """
    pgconn = session.pgconn
    pgconn.send_query(statement)
    _wait(pgconn)
    _expect(pgconn, pq.ExecStatus.COPY_OUT)
    take = pgconn.get_copy_data
    lines: list[bytes] = []
    size_bytes = 0
    while True:
        length, data = take(1)
        if length > 0:
            lines.append(bytes(data))
            size_bytes += length
            if size_bytes >= BLOCK_BYTES or len(lines) == BLOCK_LINES:
                yield lines
                lines, size_bytes = [], 0
        elif length == 0:
            _wait(pgconn, consume=True)
        else:
            break
    if lines:
        yield lines
    _expect(pgconn, pq.ExecStatus.COMMAND_OK)
    while pgconn.get_result():
        pass


def _wait(pgconn: pq.abc.PGconn, *, consume: bool = False) -> None:
    """Until a result is there. With ``consume`` until something came."""
    while consume or pgconn.is_busy():
        readable(pgconn.socket, None)
        pgconn.consume_input()
        if consume:
            return


def _expect(pgconn: pq.abc.PGconn, status: pq.ExecStatus) -> None:
    """The next result has that status. Else its error, the session ready for the next command."""
    result = pgconn.get_result()
    if result is None:
        raise psycopg.OperationalError("the session ended")
    if result.status != status:
        while pgconn.get_result():
            pass
        raise psycopg.errors.error_from_result(result)
