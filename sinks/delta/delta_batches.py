"""Batches of a Delta table's rows, brought to the order and the types of its schema."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from sinks.warehouse.warehouse_rows import recast


def filled_up(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """All columns of a schema, null where the rows lack one. None where the schema lacks one of theirs, or has it in a
    type that does not take their values."""
    present = set(rows.schema.names)
    if not present <= set(schema.names):
        return None
    arrays = [rows[f.name] if f.name in present else pa.nulls(rows.num_rows, f.type) for f in schema]
    try:
        return pa.Table.from_arrays(arrays, schema=schema)
    except pa.ArrowException:
        return None


def ordered(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """In the order of a schema: a query has the columns of partitions last, wherever they stand in the table."""
    return found.select(schema.names).cast(schema)


def recut(found: pa.RecordBatchReader, schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    """The same of a stream, in batches of so many rows."""
    # A writer that asks for the next batch is inside delta-rs, which does not begin to read there.
    with ThreadPoolExecutor(1) as thread:
        while (batch := thread.submit(next, found, None).result()) is not None:
            yield from ordered(pa.Table.from_batches([batch]), schema).to_batches(max_chunksize=most)


def widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With columns of wider types."""
    arrays: list[Any] = [recast(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
