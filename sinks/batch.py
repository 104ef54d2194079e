"""Events as they come to a sink: one Arrow table of a fixed shape, nothing in it unique or ordered.

``key`` and ``value`` are the record's bytes as they are in the topic. ``pos``, ``op`` and ``ver`` come from its
headers. Any of them may be null or nonsense in a foreign record: the sink refuses such a record, it never raises.
A floor record (op ``t``) has the key ``{"__truncate":…}``, with its own ``pos`` as the floor, or ``{"__sweep":…}``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from cdc.wire.format import OP, POS, TRUNCATE_OP, VER
from sinks.arrow import schema_of

EVENT_SCHEMA = schema_of(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        (POS, pa.string()),
        (OP, pa.string()),
        (VER, pa.int32()),
    ]
)
"""topic, partition, offset | key, value (null = tombstone) | pos (32 hex digits), op (c u d r t), ver."""

FLOOR_OP = TRUNCATE_OP


class Event(NamedTuple):
    """One row of :data:`EVENT_SCHEMA`, for tests and small callers."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    pos: str | None
    op: str | None
    ver: int | None


def events_of(rows: Iterable[Event]) -> pa.Table:
    """A table of events from single ones."""
    columns = list(zip(*rows, strict=True)) or [()] * len(EVENT_SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, EVENT_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)


def conform(events: pa.Table | pa.RecordBatch) -> pa.Table:
    """The same events exactly as :data:`EVENT_SCHEMA`: columns picked by name, large strings and metadata gone.

    Raises KeyError when a column is missing and pyarrow.ArrowInvalid when one has another type.
    """
    table = pa.Table.from_batches([events]) if isinstance(events, pa.RecordBatch) else events
    if table.schema.equals(EVENT_SCHEMA):
        return table
    return table.select(EVENT_SCHEMA.names).cast(EVENT_SCHEMA)
