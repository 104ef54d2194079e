"""The partitions of a Delta table, where the user says so: by a column, or by the hash of the key.

Both are a column of ours that is made of the row, and never the column itself: Delta makes NULL of an empty text in a
column that it partitions by. Files of a partition have one value of that column, so that their statistics let a reader
skip them all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import orjson
import pyarrow as pa

from cdc.record.documents import reading
from cdc.record.schema import TableSchema
from sinks.contract.port import CannotCarry
from sinks.contract.table_places import PLACE
from sinks.warehouse.warehouse_columns import KEY, WarehouseColumn

_BUCKET, _PART = "_bucket_", "_part_"
_BUCKETED = re.compile(r"_bucket_(\d{1,5})")
_LENGTH = 64
"""So many characters of a value name a partition, at most."""
_FOLDER_BYTES = 240
"""A partition is a folder, too: ``column=value``, in which a byte may be written as three."""
_BARE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


class Partition(NamedTuple):
    """``column``: of the table, ours. It says all: by which column of the source, or into how many buckets."""

    column: str
    type: pa.DataType


def partition_of(said: str, schema: TableSchema, columns: Sequence[WarehouseColumn]) -> Partition | None:
    """How a table is to be partitioned. None where the settings do not say. CannotCarry for a column that the table has
    not, or that has no plain text.

    ``said``: the sink's option ``partition_by``, a JSON text of columns and numbers by table. Empty for none.
    """
    wanted = _by_table(said).get(str(schema.table))
    if wanted is None:
        return None
    if isinstance(wanted, int):
        made = Partition(f"{_BUCKET}{wanted}", pa.int32())
    else:
        found = [column for column in columns if column.source.name == wanted]
        if not found:
            raise _refused(schema, f"the settings partition it by {wanted}, and it has no such column")
        if not _plain(found[0].type):
            raise _refused(schema, f"the settings partition it by {wanted}, and no partition is of that type")
        made = Partition(f"{_PART}{found[0].name}", pa.string())
        if _written_bytes(made.column) > _FOLDER_BYTES // 2:
            raise _refused(schema, f"the settings partition it by {wanted}, and no folder has so long a name")
    if made.column in {column.name for column in columns}:
        raise _refused(schema, f"it has a column {made.column}, which is the name of the sink's own")
    return made


def require_same(schema: TableSchema, wanted: Partition | None, existing: Sequence[str]) -> None:
    """CannotCarry for a table that is partitioned in another way than the settings say."""
    by = [wanted.column] if wanted else []
    if list(existing) != by:
        raise _refused(schema, f"it is partitioned by {_named(existing)}, and the settings say {_named(by)}")


def partitioned(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Rows with the partitions' columns of ours among some columns of the table.

    >>> rows = pa.table({"_key": ["1", "2"], "at": ["north", None]})
    >>> partitioned(rows, ["_part_at"])["_part_at"].to_pylist()
    ['north', None]
    >>> partitioned(rows, ["_bucket_16"])["_bucket_16"].to_pylist()
    [7, 13]
    """
    for name in by:
        if name in rows.column_names:
            continue
        buckets = buckets_in(name)
        if buckets:
            made: Any = pa.array([bucket_of(str(key), buckets) for key in rows[KEY].to_pylist()], pa.int32())
        elif name.startswith(_PART) and name.removeprefix(_PART) in rows.column_names:
            text: Any = rows[name.removeprefix(_PART)].cast(pa.string())
            room = _FOLDER_BYTES - _written_bytes(name)
            made = pa.array([_cut(one, room) for one in text.to_pylist()], pa.string())
        else:
            continue
        rows = rows.append_column(name, made)
    return rows


def _written_bytes(text: str) -> int:
    return sum(1 if byte in _BARE else 3 for byte in text.encode())


def _cut(text: str | None, room: int) -> str | None:
    """The beginning of a value, in so many bytes of a folder's name.

    >>> _cut("a/b", 4), _cut("a/b", 5), _cut(None, 5)
    ('a/', 'a/b', None)
    """
    if text is None or (3 * 4 * len(text) <= room and len(text) <= _LENGTH):
        return text
    kept = ""
    for character in text[:_LENGTH]:
        room -= _written_bytes(character)
        if room < 0:
            break
        kept += character
    return kept


def bucket_of(key: str, buckets: int) -> int:
    """The bucket of a key. It never changes, since rows lie by it. The table's place has one of its own."""
    return -1 if key == PLACE else crc32(key.encode()) % buckets


def buckets_in(column: str) -> int:
    """Into how many buckets a partition's column divides keys. 0 for another column."""
    found = _BUCKETED.fullmatch(column)
    return int(found[1]) if found else 0


def _by_table(said: str) -> Mapping[str, str | int]:
    with reading("the sink's partition_by"):
        return dict(orjson.loads(said or "{}"))


def _plain(kind: pa.DataType) -> bool:
    types: Any = pa.types
    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_floating(kind))


def _named(columns: Sequence[str]) -> str:
    if not columns:
        return "nothing"
    buckets = buckets_in(columns[0])
    return f"the key's hash into {buckets}" if buckets else columns[0].removeprefix(_PART)


def _refused(schema: TableSchema, why: str) -> CannotCarry:
    hint = "cdc rebuild makes the table anew as partition_by says, or set that as it was"
    return CannotCarry(f"{schema.table}: {why}", hint=hint, table=schema.table)
