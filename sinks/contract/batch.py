"""Events as they come to a sink: one Arrow table of a fixed shape, and Arrow's functions without their stubs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from cdc.wire.format import OP, POS, TRUNCATE_OP, VER

pc: Any = pyarrow.compute

Column = Any
"""A chunked array, or an array: what a table's column is."""
Mask = Any
"""A boolean column without nulls."""


def joined(column: Column) -> Any:
    """One contiguous array of a column's chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def schema_of(fields: Sequence[tuple[str, pa.DataType]]) -> pa.Schema:
    """An Arrow schema of (name, type) pairs."""
    untyped: Any = pa.schema
    made: pa.Schema = untyped(fields)
    return made


def mask_of(flags: npt.NDArray[np.bool_]) -> Mask:
    """An Arrow array of booleans, for :func:`where`."""
    array: Any = pa.array
    return array(flags, pa.bool_())


def all_true(mask: Mask) -> bool:
    """True also for an empty mask."""
    return bool(pc.all(mask, min_count=0).as_py())


def where(table: pa.Table, mask: Mask) -> pa.Table:
    """The rows for which the mask is true. The table itself where it is true for all: a filter copies what it keeps."""
    return table if all_true(mask) else table.filter(mask)


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
