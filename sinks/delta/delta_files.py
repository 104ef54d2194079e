"""The data files of a Delta table as its log knows them: which may hold some keys, and which are to be joined. Pure.

Format of ``stats``: Delta's protocol, "Per-file Statistics" (delta-io/delta, PROTOCOL.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson
import pyarrow as pa

from sinks.contract.batch import pc
from sinks.warehouse.warehouse_columns import KEY, POS

_FILES, _LEAST_BYTES, _LEAST_APART_BYTES, _MOST_BYTES = 2048, 128 * 1024, 1024**2, 32 * 1024**2
_INDEXED = 32
"""Readers look at the statistics of so many columns, the first ones, unless the table names others."""
STATISTICS = "delta.dataSkippingStatsColumns"
"""The property of a table that names them."""
_TRUE_DIGITS, _TRUE_SCALE = 15, 5
"""Of decimals: delta-rs writes bounds through a double, and one below 0.00001 so that it reads none there."""
_TEXT = 64
_LAST = "\U0010ffff"
_MILLISECOND = timedelta(milliseconds=1)


class DataFile(NamedTuple):
    """``low`` and ``high``: between these are its keys. None where the log does not say. ``part``: the value of the
    column that the table is partitioned by, as a text."""

    path: str
    size: int
    rows: int
    low: str | None
    high: str | None
    part: str | None = None


class KeysIn(NamedTuple):
    """A file, and from where to where the keys lie, of those asked for, that it may hold."""

    file: DataFile
    start: int
    end: int


def data_files(actions: pa.Table, key: str, by: str = "") -> list[DataFile]:
    """By what delta-rs's ``get_add_actions(flatten=True)`` says. ``key``: the column of the keys. ``by``: that of the
    partitions. Empty for none."""
    none: list[Any] = [None] * actions.num_rows

    def column(name: str) -> list[Any]:
        return actions[name].to_pylist() if name in actions.column_names else none

    rows = (count or 0 for count in column("num_records"))
    lows, highs = column(f"min.{key}"), column(f"max.{key}")
    parts = (None if value is None else str(value) for value in column(f"partition.{by}"))
    # The folders of partitions are escaped once more in the log than they are called.
    paths = [unquote(path) if by else path for path in column("path")]
    columns = paths, column("size_bytes"), rows, lows, highs, parts
    return [DataFile(*one) for one in zip(*columns, strict=True)]


def row_bytes(actions: pa.Table) -> float:
    """About how many bytes a row has on the disk. 0 where the log does not say. ``actions``: as for
    :func:`data_files`."""
    named: Any = actions
    rows = sum(count or 0 for count in named["num_records"].to_pylist()) if "num_records" in named.column_names else 0
    return sum(named["size_bytes"].to_pylist()) / rows if rows else 0.0


def may_hold(files: Iterable[DataFile], keys: Sequence[str]) -> Iterator[KeysIn]:
    """The files that may hold one of some keys, which are sorted.

    >>> small, large = DataFile("a", 1, 9, "b", "f"), DataFile("b", 1, 9, "g", None)
    >>> [(held.file.path, held.start, held.end) for held in may_hold([small, large], ["a", "c", "f"])]
    [('a', 1, 3)]
    """
    for file in files:
        start = bisect_left(keys, file.low) if file.low is not None else 0
        end = bisect_right(keys, file.high) if file.high is not None else len(keys)
        if start < end:
            yield KeysIn(file, start, end)


def file_bytes(files: Iterable[DataFile], *, near: bool) -> int:
    """How large a file of this table should be. ``near``: on this machine, where a file costs little to open.

    A changed key costs about one file, and a table about 2,000 files at most.
    """
    least = _LEAST_BYTES if near else _LEAST_APART_BYTES
    return min(max(sum(file.size for file in files) // _FILES, least), _MOST_BYTES)


def due_join(files: Sequence[DataFile], wanted: int) -> list[DataFile]:
    """The small files that are to be joined. None of them unless there are many of about one size.

    A row is joined about once for each four times by which its file grows, up to a quarter of ``wanted`` bytes.

    >>> few = [DataFile(str(n), 1_000, 9, None, None) for n in range(16)]
    >>> due_join(few, 131_072)
    []
    >>> len(due_join([*few, DataFile("one", 31_000, 9, None, None)], 131_072))
    0
    >>> len(due_join([*few, DataFile("one", 1_500, 9, None, None)], 131_072))
    17
    """
    limit = wanted // 4
    while limit > 256:
        size = [file for file in files if limit // 4 <= file.size < limit]
        if len(size) > MANY:
            return [file for file in files if file.size < limit]
        limit //= 4
    small = [file for file in files if file.size < limit]
    return small if len(small) > MANY else []


def stats_of(rows: pa.Table) -> str:
    """The log's statistics of a file with these columns: nulls of plain ones, and bounds of those that have any value.

    Readers of delta-rs take a column that lacks a bound, in a file that has bounds of others, for one of nulls alone,
    and skip the file: so each column has both, or the file has none.
    """
    found: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    types: Any = pa.types
    for field in rows.schema:
        if types.is_nested(field.type):
            continue
        column: Any = rows[field.name]
        found["nullCount"][field.name] = column.null_count
        if types.is_binary(field.type) or column.null_count == len(column):
            continue  # No reader has bounds of bytes.
        ends = pc.min_max(column)
        try:
            low, high = _low(ends["min"].as_py()), _high(ends["max"].as_py())
        except (OverflowError, ValueError):
            low = high = None  # Another writer's time, beyond the years that Python knows.
        if low is None or high is None or _unordered(column):
            return orjson.dumps({"numRecords": rows.num_rows}).decode()
        found["minValues"][field.name], found["maxValues"][field.name] = low, high
    return orjson.dumps(found).decode()


def indexed(names: Sequence[str], first: Sequence[str]) -> Sequence[str]:
    """The columns that a table keeps statistics of: all, or of a wide table ``first`` and some more with plain names.

    >>> indexed(["a", "_key"], ["_key"])
    ['a', '_key']
    >>> indexed([*(f"c{n}" for n in range(40)), "_key"], ["_key"])[:2]
    ['_key', 'c0']
    """
    if len(names) <= _INDEXED:
        return names
    plain = (name for name in names if name not in first and _is_plain(name))
    return [*first, *islice(plain, _INDEXED - len(first))]


def statistics_of(schema: pa.Schema, said: str | None = None) -> dict[str, str]:
    """:func:`skipping` of a captured table. Nothing for the notes."""
    return skipping(schema, (KEY, POS), said) if KEY in schema.names else {}


def skipping(schema: pa.Schema, first: Sequence[str], said: str | None) -> dict[str, str]:
    """The property of a table of which columns readers may believe statistics, where it needs another one than it has
    (``said``). ``first``: columns that are always among them.

    Wide tables have it. So do those with decimals whose bounds are not true: delta-rs writes some files, and of
    ``12345678901234567890`` its bound is 9223372036854775807. Bounds that are there are not looked at
    from then on.

    >>> skipping(pa.schema([("_key", pa.string()), ("n", pa.decimal128(20, 0))]), ["_key"], None)
    {'delta.dataSkippingStatsColumns': '_key'}
    >>> skipping(pa.schema([("_key", pa.string()), ("n", pa.decimal128(15, 2))]), ["_key"], None)
    {}
    """
    untrue = {field.name for field in schema if _untrue(field.type)}
    if said is not None:
        kept = [name for name in said.split(",") if name not in untrue]
        return {STATISTICS: ",".join(kept or first)} if untrue.intersection(said.split(",")) else {}
    if not untrue:
        some = indexed(schema.names, first)
        return {STATISTICS: ",".join(some)} if len(some) < len(schema) else {}
    left = [field.name for field in schema if _has_bounds(field.type) and field.name not in (*untrue, *first)]
    plain = (name for name in left if _is_plain(name))
    return {STATISTICS: ",".join([*first, *islice(plain, _INDEXED - len(first))])}


def _untrue(kind: Any) -> bool:
    return bool(pa.types.is_decimal(kind) and (kind.precision > _TRUE_DIGITS or kind.scale > _TRUE_SCALE))


def _has_bounds(kind: Any) -> bool:
    """Whether Spark takes a column of this type in that property."""
    types: Any = pa.types
    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_boolean(kind))


def _is_plain(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum()


def _unordered(column: Any) -> bool:
    """Whether a column has a value for which JSON has no number: an infinity, or NaN."""
    return bool(pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column.drop_null())).as_py())


def _low(value: Any) -> Any:
    """None for a value of a type that no warehouse has."""
    match value:
        case bool() | int() | float():
            return value
        case Decimal():
            return orjson.Fragment(format(value, "f"))
        case str():
            return value[:_TEXT]
        case datetime():
            return _moment(value)
        case date():
            return value.isoformat()
        case _:
            return None


def _high(value: Any) -> Any:
    if isinstance(value, str):
        # Above every text that begins so, unless that goes on with the last of all characters itself.
        return value if len(value) <= _TEXT or _LAST in value else value[:_TEXT] + _LAST
    # Milliseconds are all that other writers give: rounded up.
    if isinstance(value, datetime) and value.microsecond % 1000:
        try:
            return _moment(value + _MILLISECOND)
        except OverflowError:
            return _moment(value, "microseconds")
    return _low(value)


def _moment(value: datetime, timespec: str = "milliseconds") -> str:
    ending = "Z" if value.tzinfo is not None else ""
    return f"{value.replace(tzinfo=None).isoformat(timespec=timespec)}{ending}"


MANY = 16
TIERS = (128 * 1024, 2 * 1024**2, 32 * 1024**2)
"""Sizes in bytes, each sixteen times the one before. A file of the last one or more is joined no more."""


class Tier(NamedTuple):
    """``below``: files of fewer bytes are joined, to files of about twice that. ``partitions``: in these alone."""

    below: int
    partitions: tuple[Any, ...]


def due_tier(files: Iterable[tuple[Any, int]]) -> Tier | None:
    """The greatest tier of which a partition has more than sixteen files. None where no partition has so many.

    ``files``: partition and size in bytes of each. A file is written again about once a tier, so a row that is written
    once is joined three to five times, however large the table grows.

    >>> due_tier([(None, 5_000)] * 17)
    Tier(below=131072, partitions=(None,))
    >>> due_tier([(None, 5_000)] * 16 + [(None, 9_000_000)] * 16)
    """
    counted = Counter((bisect_right(TIERS, size), partition) for partition, size in files)
    many = [place for place, count in counted.items() if count > MANY and place[0] < len(TIERS)]
    if not many:
        return None
    greatest = max(number for number, _ in many)
    return Tier(TIERS[greatest], tuple(partition for number, partition in many if number == greatest))
