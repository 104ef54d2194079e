"""The columns of an Iceberg table: own ones under names that Iceberg itself does not have, and types that may change.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cdc.record.schema import TableSchema
from sinks.contract.store_names import column_names
from sinks.warehouse.warehouse_columns import (
    DELETED,
    DELETED_AT,
    EXACT,
    KEY,
    OWN,
    POS,
    TIMESTAMPTZ,
    WarehouseColumn,
    arrow_type,
)
from sinks.warehouse.warehouse_rows import EXACT_TYPE

CDC_KEY, CDC_POS, CDC_DELETED, CDC_DELETED_AT, CDC_EXACT = (
    *("cdc_key", "cdc_pos", "cdc_deleted", "cdc_deleted_at", "cdc_exact"),
)
"""Our own columns. ``_pos`` and ``_deleted``, as other warehouses call them, are Iceberg's own metadata columns."""
_OUTWARD = {
    KEY: CDC_KEY,
    POS: CDC_POS,
    DELETED: CDC_DELETED,
    DELETED_AT: CDC_DELETED_AT,
    EXACT: CDC_EXACT,
}
_INWARD = {name: own for own, name in _OUTWARD.items()}
_METADATA = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_commit_snapshot_id", "_change_type", "_change_ordinal", "file_path", "pos"),
)
"""Names that Iceberg keeps for itself. ``file_path`` and ``pos`` are columns of its files of deletes."""
OWN_FIELDS: list[tuple[str, pa.DataType]] = [
    (CDC_KEY, pa.string()),
    (CDC_POS, pa.string()),
    (CDC_DELETED, pa.bool_()),
    (CDC_DELETED_AT, TIMESTAMPTZ),
    (CDC_EXACT, EXACT_TYPE),
]
_TAKEN = (*OWN, *_INWARD, *_METADATA)


def iceberg_columns(schema: TableSchema) -> list[WarehouseColumn]:
    """The columns of a table, less our own."""
    names = column_names((c.name for c in schema.columns), _TAKEN)
    return [WarehouseColumn(source=c, name=names[c.name], type=kept_type(arrow_type(c))) for c in schema.columns]


def kept_type(kind: pa.DataType) -> pa.DataType:
    """A type as Iceberg has it: no integer has fewer than 32 bits there."""
    if pa.types.is_list(kind):
        inner: Any = kind
        return pa.list_(kept_type(inner.value_type))
    return pa.int32() if pa.types.is_int16(kind) else kind


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type in the form that the other warehouses have: pyiceberg has texts, bytes and lists of 64-bit lengths.

    >>> plain_type(pa.large_list(pa.large_string()))
    ListType(list<item: string>)
    """
    inner: Any = kind
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(plain_type(inner.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(inner.key_type), plain_type(inner.item_type))
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def plain_rows(rows: pa.Table) -> pa.Table:
    """Rows in types of that form."""
    return rows.cast(pa.schema([(field.name, plain_type(field.type)) for field in rows.schema]))


def outward(rows: pa.Table) -> pa.Table:
    """Rows with our own columns as a table has them."""
    return rows.rename_columns([_OUTWARD.get(name, name) for name in rows.schema.names])


def inward(rows: pa.Table) -> pa.Table:
    """The opposite."""
    return rows.rename_columns([_INWARD.get(name, name) for name in rows.schema.names])


def lost_column(existing: Collection[str], wanted: Sequence[WarehouseColumn], kept: Collection[str]) -> str:
    """Why a table that lost a column cannot be gone on with. Empty where it lost none. As
    :func:`sinks.warehouse.warehouse_columns.removed`."""
    own = [name for name, _ in OWN_FIELDS if name not in existing]
    lost = own or [column.name for column in wanted if column.source.name in kept and column.name not in existing]
    return f"column {lost[0]} was removed from the table in the store, with what it held" if lost else ""


def promotes(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether Iceberg takes the wider type for files that have the narrower one.

    >>> promotes(pa.int32(), pa.int64()), promotes(pa.int32(), pa.string())
    (True, False)
    """
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        one: Any = before
        other: Any = after
        return bool(one.scale == other.scale and one.precision <= other.precision)
    return (before, after) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def whole_rows(rows: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """All columns of a table in its order, null where the rows' shape lacks one."""
    present = set(rows.schema.names)
    nulls: Any = pa.nulls
    arrays: list[Any] = [rows[n] if n in present else nulls(rows.num_rows, kind) for n, kind in types.items()]
    return pa.Table.from_arrays(arrays, schema=pa.schema(list(types.items())))
