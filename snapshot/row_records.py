"""The records of both snapshots: rows as ``r`` at one position, and the mark that ends a reading of a whole table:
pure."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from cdc.position import Position
from cdc.wire.envelope import read_at
from cdc.wire.floors import sweep_key, sweep_value
from cdc.wire.format import READ_OP, TRUNCATE_OP
from connectors.postgres.encoder import SnapshotEnvelope, TableEncoder, record_headers


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
