"""The one schema of a frame, and what becomes of values that were written under another one: pure.

A frame has the columns of the newest version at its start. A column is followed by its number in the catalog, so a
renamed one keeps its values, and one that was dropped and made again does not inherit those of its namesake.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from cdc.process.errors import ConfigError, UsageError
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName, starred
from sinks.contract.batch import schema_of
from sinks.contract.store_names import column_names
from sinks.warehouse.warehouse_columns import TIMESTAMPTZ, WarehouseColumn, arrow_type, exact_text

KEY, POS, OP, VER, PARTITION, OFFSET = "_key", "_pos", "_op", "_ver", "_partition", "_offset"
COMMIT_TS, FLOOR, EXACT = "_commit_ts", "_floor", "_exact"
EXACT_TYPE = pa.map_(pa.string(), pa.string())
OWN: tuple[tuple[str, pa.DataType], ...] = (
    (KEY, pa.string()),
    (POS, pa.string()),
    (OP, pa.string()),
    (VER, pa.int32()),
    (PARTITION, pa.int32()),
    (OFFSET, pa.int64()),
    (COMMIT_TS, TIMESTAMPTZ),
    (FLOOR, pa.string()),
    (EXACT, EXACT_TYPE),
)
"""Our columns behind the table's own. ``_floor``: on a truncate or sweep record, the position below which rows are
gone. ``_exact``: the text of each value that its typed column does not hold, by column."""
RAW: tuple[tuple[str, pa.DataType], ...] = (
    ("topic", pa.string()),
    ("key", pa.binary()),
    ("value", pa.binary()),
    (POS, pa.string()),
    (OP, pa.string()),
    (VER, pa.int32()),
    (PARTITION, pa.int32()),
    (OFFSET, pa.int64()),
    (COMMIT_TS, TIMESTAMPTZ),
    ("_record_ts", TIMESTAMPTZ),
)
"""The columns of ``raw = true``: the record as it stands in its topic. Null in a record that somebody else wrote."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_WORDS = {"true": True, "t": True, "false": False, "f": False}
_MIDNIGHT = re.compile(r"T00:00(:00(\.0+)?)?Z?$")
Convert = Callable[[Any], Any]


def chosen(known: Iterable[TableName], patterns: Sequence[str], pipeline: str) -> list[TableName]:
    """The tables that were asked for. UsageError for one that the pipeline does not have."""
    tables = sorted(known)
    found: dict[TableName, None] = {}
    for pattern in patterns:
        matching = [table for table in tables if starred(pattern).fullmatch(str(table))]
        if not matching:
            names = [str(table) for table in tables]
            near = difflib.get_close_matches(pattern, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(names[:10]) or 'no table yet'}"
            raise UsageError(f"the pipeline {pipeline} has no table {pattern}", hint=hint)
        found |= dict.fromkeys(matching)
    return list(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameColumns:
    """The table's columns of a frame: those of ``newest``, and what each version has in their place."""

    newest: TableSchema
    columns: tuple[WarehouseColumn, ...]

    @classmethod
    def of(cls, newest: TableSchema) -> FrameColumns:
        """The columns of a version. Names that Spark reads as one get an ending, as in the warehouses."""
        names = column_names((c.name for c in newest.columns), [name for name, _ in OWN])
        columns = tuple(
            WarehouseColumn(source=column, name=names[column.name], type=arrow_type(column))
            for column in newest.columns
        )
        return cls(newest=newest, columns=columns)

    @property
    def arrow(self) -> pa.Schema:
        """The whole schema of the frame."""
        fields = [(column.name, column.type) for column in self.columns]
        return schema_of([*fields, *OWN])

    def sources(self, version: TableSchema) -> list[tuple[str | None, Convert | None]]:
        """For each column, its name in a version (None: the version lacks it) and how its values are cast (None: their
        type is the same)."""
        found: list[tuple[str | None, Convert | None]] = []
        same_table = version.oid == self.newest.oid
        for column in self.columns:
            own = next(
                (
                    c
                    for c in version.columns
                    if (c.attnum == column.source.attnum if same_table else c.name == column.source.name)
                ),
                None,
            )
            if own is None:
                found.append((None, None))
            else:
                given = arrow_type(own)
                found.append((own.name, None if given.equals(column.type) else caster(given, column.type)))
        return found


def raw_schema() -> pa.Schema:
    """The schema of ``raw = true``."""
    return schema_of(RAW)


def newer_version(newest: TableSchema, version: int) -> ConfigError:
    """The error that ends a read at a record of a version that was born after its start."""
    return ConfigError(
        f"{newest.table} got the schema version {version} while it was being read as version {newest.version}",
        hint="start the query again, on the same checkpoint: it goes on at this record, with the new columns",
    )


def caster(given: pa.DataType, wanted: pa.DataType) -> Convert:
    """How a plain value of one type becomes one of another. The result raises ValueError where the value does not fit.

    >>> caster(pa.string(), pa.int32())("42"), caster(pa.int32(), pa.string())(42)
    (42, '42')
    """
    if pa.types.is_list(given) and pa.types.is_list(wanted):
        element = caster(cast("Any", given).value_type, cast("Any", wanted).value_type)
        return lambda values: [None if v is None else element(v) for v in _listed(values)]
    for fits, convert in _CASTS:
        if fits(wanted):
            return convert
    return _no_fit


def _listed(values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise ValueError("not an array")
    return values


def _no_fit(value: Any) -> Any:
    raise ValueError("no value of one type is one of the other")


def _integer(value: Any) -> int:
    if isinstance(value, bool | list | dict):
        raise ValueError("no number")
    text = str(value).strip()
    whole, point, fraction = text.partition(".")
    if _INTEGER.fullmatch(text) or (point and _INTEGER.fullmatch(whole) and not fraction.strip("0")):
        return int(whole)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ValueError("no whole number")


def _float(value: Any) -> Any:
    if isinstance(value, bool | list | dict):
        raise ValueError("no number")
    if value in ("NaN", "Infinity", "-Infinity"):
        return value
    number = float(value)
    if number in (float("inf"), float("-inf")):
        raise ValueError("beyond a double")
    return number


def _decimal(value: Any) -> str:
    if isinstance(value, bool | list | dict):
        raise ValueError("no number")
    return repr(value) if isinstance(value, float) else str(value).strip()


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in _WORDS:
        raise ValueError("no truth value")
    return _WORDS[str(value).lower()]


def _date(value: Any) -> str:
    text, midnight = str(value), _MIDNIGHT.search(str(value))
    return f"{text[: midnight.start()]}Z" if midnight else text


def _moment(value: Any) -> str:
    text = str(value)
    return text if "T" in text else f"{text.removesuffix('Z')}T00:00:00Z"


_CASTS: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
    (pa.types.is_string, exact_text),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_boolean, _bool),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _moment),
)
