"""Where a cluster's WAL begins, and what came behind that: how a slot of ``pg_upgrade`` is known.

``pg_upgrade`` takes a slot over when nothing is left that it has to send. It begins the new cluster's WAL with
``pg_resetwal`` in a segment behind the former WAL, and makes the slot there before anybody can write, and before the
server is stopped for the first time.
"""

from __future__ import annotations

import struct

_PAGE_BYTES, _ALIGNED = 8192, 8
_LONG_HEADER = struct.Struct("=HHIQI4xQII")
"""``XLogLongPageHeaderData``: magic, flags, timeline, address, remaining bytes, system identifier, two sizes."""
_RECORD = struct.Struct("=IIQBB2xI")
"""``XLogRecord``: length, transaction, address of the record before, kind, its manager, checksum."""
_OF_CHECKPOINT, _SHUTDOWN = (0, 0x00)
_KIND_BITS = 0xF0


def is_untouched(wal: bytes, begin: int, system: str) -> bool:
    """Whether a cluster's WAL begins with ``wal``, at ``begin``, and no transaction wrote in it and no stop is there.

    A segment begins at ``begin``, and ``wal`` is at most its first page. ``system``: the cluster's identifier. False
    too where the bytes cannot be understood.
    """
    if not _LONG_HEADER.size < len(wal) <= _PAGE_BYTES:
        return False
    _, _, _, address, remaining, identifier, _, _ = _LONG_HEADER.unpack_from(wal)
    if (address, remaining, str(identifier)) != (begin, 0, system):
        return False
    at, previous = _LONG_HEADER.size, 0
    while at + _RECORD.size <= len(wal):
        length, transaction, before, kind, manager, _ = _RECORD.unpack_from(wal, at)
        # A record that no other one comes before: pg_resetwal writes it, and initdb.
        stopped = (manager, kind & _KIND_BITS) == (_OF_CHECKPOINT, _SHUTDOWN)
        first = stopped and previous == before == 0
        # pg_upgrade stops the server after it has made the slots: one that was made behind that is somebody else's.
        next_one = not stopped and previous and before == begin + previous
        if length < _RECORD.size or transaction or not (first or next_one):
            return False
        previous, at = at, (at + length + _ALIGNED - 1) // _ALIGNED * _ALIGNED
    return previous > 0 and at >= len(wal)
