"""Records as they stand in their topics, for ``raw = true``: pure. A record that is not ours has nulls there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cdc.wire.commit_time import committed_ms
from cdc.wire.records import Lot
from spark.frames.frame_columns import raw_schema

_SCHEMA = raw_schema()
_UTC_MS = pa.timestamp("ms", "UTC")


def raw_batch(lot: Lot) -> pa.RecordBatch:
    """The records of a lot in their order. Raises nothing, for any bytes."""
    count = len(lot.offsets)
    array: Any = pa.array
    times = [array(some, _UTC_MS).cast(pa.timestamp("us", "UTC")) for some in (map(_commit, lot.values), lot.times_ms)]
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(lot.topic), count),
            array(lot.keys, pa.binary()),
            array(lot.values, pa.binary()),
            array([_text(pos) for pos in lot.pos], pa.string()),
            array([_text(op) for op in lot.op], pa.string()),
            array([_number(ver) for ver in lot.ver], pa.int32()),
            pa.repeat(pa.scalar(lot.partition, pa.int32()), count),
            array(lot.offsets, pa.int64()),
            *times,
        ],
        schema=_SCHEMA,
    )


_LONGEST_MS = 9_000_000_000_000_000 // 1000


def _commit(value: bytes | None) -> int | None:
    found = committed_ms(value)
    return found if found is not None and found < _LONGEST_MS else None


def _text(header: bytes | None) -> str | None:
    return header.decode() if header is not None and header.isascii() else None


def _number(header: bytes | None) -> int | None:
    return int(header) if header is not None and header.isdigit() and len(header) <= 9 else None
