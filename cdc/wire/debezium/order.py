"""Where a record of Debezium's stands in the one order, from its ``source`` block. One rule per connector.

A position holds 56 bits of log position whose low three are kept free (see
:meth:`cdc.position.Position.document_version`), an epoch above them and 32 bits below. Each connector's own
order is packed into that without changing how two positions compare:

=============  =============================================  ==============================================
connector      commit_lsn                                     tx_seq
=============  =============================================  ==============================================
postgresql     ``sequence[0] - 1``                            0. The later offset wins
mysql          number of the binlog file, position in it      fffffffe. The later offset wins
mariadb        the same                                       the same
oracle         commit SCN                                     1. The later offset wins
sqlserver      log file and block of the commit LSN           slot of the commit LSN. The later offset wins
=============  =============================================  ==============================================

Within one log position the order is the partition's, by offset, which is the connector's own. A record's number inside
its transaction orders nothing: SQL Server's ``event_serial_no`` begins again with each ``change_lsn``, and MySQL's
``row`` with each event of a compressed transaction, which all share one position.

MongoDB's records say no longer where they stand: since Debezium 3.4 ``source.ts_ms`` is the wall clock of the
server that took the change (``SourceInfo.timestamp``), beside the increment of a cluster time whose seconds are
left out. The two together order nothing: at the turn of a second, and where another server takes over whose clock
is behind, a later change comes out lower, and changes of one transaction are equal. So MongoDB's order is that of
the partition, by offset, in which the connector writes a document's changes by their cluster time.

Rows of a snapshot stand at the position the snapshot was read at, tx_seq 0: below every change after it. So do rows
of a later snapshot (incremental, while streaming), unless the reader knows a higher position of their partition: see
:class:`cdc.wire.debezium.reading.PartitionReader`. Never higher, because a transaction that follows may share their LSN
or SCN. Postgres' have a place between two commits, with tx_seq ffffffff.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from cdc.position import CHUNK_SEQ, SNAPSHOT_SEQ, Position

FIRST, LAST, INCREMENTAL = "first", "last", "incremental"
FIRST_OF_TABLE = "first_in_data_collection"
_LSN_LIMIT = 1 << 56
_CHANGE_SEQ = CHUNK_SEQ - 1
"""Of every change at a binlog position: not below the row numbers that records had as tx_seq before 0.2."""
_LAST_SERIAL = (1 << 16) - 2
"""Of every change at a slot of SQL Server's log: not below the serial numbers that stood there before 0.2."""

Source = Mapping[str, Any]
_Place = tuple[int, int]


class Unordered(ValueError):
    """The record does not say where it stands."""


def position_of(source: Source, epoch: int) -> Position:
    """The position of a record by its ``source``. Raises :class:`Unordered` where it holds none.

    >>> position_of({"connector": "postgresql", "sequence": '["4096","4120"]', "snapshot": "false"}, 1)
    Position(epoch=1, commit_lsn=4095, tx_seq=0)
    """
    connector = source.get("connector")
    place = _PLACES.get(str(connector))
    if place is None:
        raise Unordered(f"no order is known for the connector {connector}")
    try:
        lsn, seq = place(source)
    except Unordered:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise Unordered(f"its source block names no position of {connector}") from None
    if not 0 <= lsn < _LSN_LIMIT:
        raise Unordered(f"its {connector} position is beyond what a position can hold")
    return Position(epoch, lsn, seq)


def snapshot_marker(source: Source) -> str:
    """``source.snapshot`` as one word. ``false`` where it is left out, as without default values."""
    marker = source.get("snapshot")
    if marker is None or marker is False:
        return "false"
    return "true" if marker is True else str(marker)


def _row_seq(source: Source, streamed_seq: int) -> int:
    """tx_seq: of a row of a snapshot, or of a streamed change."""
    return streamed_seq if snapshot_marker(source) == "false" else SNAPSHOT_SEQ


def _postgres(source: Source) -> _Place:
    """``sequence[0]`` is where the last commit before the record ended, and the record's own commit may begin there.

    So a record stands one below it: above that last commit, whose record is longer than eight bytes, and not above
    its own, by which the native capture goes on after a handover in the middle of a transaction. A row of a later
    snapshot stands between the two.

    Before the first commit it is null, in the rows of the first snapshot too: these are the lowest of all. A
    snapshot row that has it was read while streaming was paused there.
    """
    last_commit = orjson.loads(source["sequence"])[0]
    streamed = snapshot_marker(source) == "false"
    if last_commit is None:
        return (1, 0) if streamed else (0, SNAPSHOT_SEQ)
    end = int(last_commit)
    return (end - 1, 0) if streamed else (end - 8, CHUNK_SEQ)


def _binlog(source: Source) -> _Place:
    number = int(source["file"].rpartition(".")[2])
    offset = int(source["pos"])
    if number >> 21 or offset >> 32:
        raise Unordered("its binlog position is beyond what a position can hold")
    return (number << 32 | offset) << 3, _row_seq(source, _CHANGE_SEQ)


def _oracle(source: Source) -> _Place:
    """The commit SCN. A RAC writes one per redo thread, ``1234:1:1-1:2``, of which the first part is the number."""
    scn = source.get("commit_scn") or source["scn"]
    return int(str(scn).partition(":")[0].partition(",")[0]) << 3, _row_seq(source, 1)


def _sqlserver(source: Source) -> _Place:
    """``file:block:slot`` in hex: 24, 29 and 16 bits of it are used."""
    text = source.get("commit_lsn") or source["change_lsn"]
    file, block, slot = (int(part, 16) for part in text.split(":"))
    if file >> 24 or block >> 29 or slot >> 16:
        raise Unordered("its log sequence number is beyond what a position can hold")
    return (file << 29 | block) << 3, _row_seq(source, slot << 16 | _LAST_SERIAL)


_PLACES: Mapping[str, Callable[[Source], _Place]] = {
    "postgresql": _postgres,
    "mysql": _binlog,
    "mariadb": _binlog,
    "oracle": _oracle,
    "sqlserver": _sqlserver,
}
