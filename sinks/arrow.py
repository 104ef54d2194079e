"""Arrow's compute functions without their stubs, which refuse most of the legal calls, and two short cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

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
