"""The records of both snapshots: rows as ``r`` at one position, read by COPY, and the mark that ends a reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import psycopg
from psycopg import pq

from cdc.process.clock import readable
from cdc.record.position import Position
from cdc.wire.envelope import read_at
from cdc.wire.format import READ_OP, TRUNCATE_OP
from cdc.wire.records import sweep_key, sweep_value
from connectors.postgres.encoding.encoder import SnapshotEnvelope, TableEncoder, record_headers
from snapshot.source.edges import Session


class SweepMark(NamedTuple):
    """A record that goes to every partition of the table's topic."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def envelope(
    encoder: TableEncoder,
    position: Position,
    *,
    marker: str,
    now_ns: int,
    source_us: int | None = None,
    tx_id: int | None = None,
    op: str = READ_OP,
) -> SnapshotEnvelope:
    """The parts of a record around every row of a chunk.

    ``marker``: ``source.snapshot``. ``source_us``: when the rows were seen, in microseconds since 1970. Now unless
    given. ``tx_id``: ``source.txId``.
    """
    return encoder.snapshot_envelope(
        marker=marker,
        lsn=position.commit_lsn,
        tx_id=tx_id,
        epoch=position.epoch,
        commit_lsn=position.commit_lsn,
        tx_seq=position.tx_seq,
        source_ts_us=now_ns // 1000 if source_us is None else source_us,
        now_ns=now_ns,
        op=op,
    )


def newer(around: SnapshotEnvelope, seen_lsn: int) -> SnapshotEnvelope:
    """The parts around rows that may be newer than their position. ``seen_lsn``: of the server, behind them."""
    return replace(around, suffix=read_at(around.suffix, seen_lsn))


def sweep_mark(
    encoder: TableEncoder,
    position: Position,
    floor: str,
    partitions: int,
    *,
    marker: str,
    now_ns: int,
    seen_lsn: int | None = None,
) -> SweepMark:
    """The mark that ends a whole reading: what lies below ``floor`` was not there.

    ``partitions``: how many partitions have the mark. A store sweeps when it has seen all of them. ``seen_lsn``: of the
    server, behind the last row that was read. None where all was read at the position itself.
    """
    around = envelope(encoder, position, marker=marker, now_ns=now_ns, op=TRUNCATE_OP)
    around = around if seen_lsn is None else newer(around, seen_lsn)
    value = sweep_value(around.prefix + b"null" + around.suffix, floor, partitions)
    headers = record_headers(position, TRUNCATE_OP, encoder.schema.version)
    return SweepMark(sweep_key(str(encoder.schema.table)), value, headers)


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
