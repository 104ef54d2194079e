"""Records of one table as the frame's typed columns, or as they stand in their topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import orjson
import pyarrow as pa

from cdc.process.errors import ConfigError, PoisonError
from cdc.record.schema import TableSchema
from cdc.wire.envelope import committed_ms, missing
from cdc.wire.format import (
    AFTER,
    BEFORE,
    HEADERS,
    ROW_OPS,
    SOURCE,
    SWEEP,
    TRUNCATE_OP,
    UNAVAILABLE,
    member,
)
from cdc.wire.plain import PlainTable
from cdc.wire.records import RecordColumns
from sinks.contract.missing_values import patterns
from sinks.warehouse.warehouse_columns import exact_text, typed
from spark.frames.frame_columns import EXACT_TYPE, Convert, FrameColumns, newer_version, raw_schema
from spark.frames.options import Retyped

_OPS = frozenset(op.encode() for op in (*ROW_OPS, TRUNCATE_OP))
_POS, _OP, _VER = HEADERS
_MICROS = 1000


@dataclass(slots=True)
class _Version:
    """How the records of one version become rows of the frame."""

    schema: TableSchema
    sources: list[tuple[str | None, Convert | None]]
    plain: PlainTable = field(init=False)
    placeholders: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.plain = PlainTable(self.schema, nested=False)
        self.placeholders = patterns(self.schema)


class TypedRows:
    """Makes the batches of a typed frame. ``versions``: all of the table's shapes up to the frame's own."""

    def __init__(self, frame: FrameColumns, versions: Iterable[TableSchema], retyped: Retyped) -> None:
        self._frame = frame
        self._retyped = retyped
        self._schema = frame.arrow
        self._versions = {shape.version: _Version(shape, frame.sources(shape)) for shape in versions}

    def batches(self, lot: RecordColumns) -> Iterator[pa.RecordBatch]:
        """The rows of a lot in their order.

        ConfigError before the first row of a version that was born after the frame. PoisonError for a record that
        somebody else wrote, and ConfigError for a value that the column does not hold, where such are not to be cast.
        """
        numbers = groupby(range(len(lot.offsets)), key=lambda number: lot.ver[number])
        for ver, run in numbers:
            places = list(run)
            part = lot.part(places[0], places[-1] + 1)
            yield self._batch(part, self._version(part, ver))

    def _version(self, lot: RecordColumns, ver: bytes | None) -> _Version:
        if ver is None or not ver.isdigit() or len(ver) > 9:
            raise _foreign(lot, 0, "its header ver is missing or not a number")
        number = int(ver)
        if number > self._frame.newest.version:
            raise newer_version(self._frame.newest, number)
        if number not in self._versions:
            raise _foreign(lot, 0, f"the schema topic has no version {number} of {self._frame.newest.table}")
        return self._versions[number]

    def _batch(self, lot: RecordColumns, version: _Version) -> pa.RecordBatch:
        rows, keys, floors, commits = [], [], [], []
        exact: dict[int, dict[str, str]] = {}
        for number, (key, value, pos, op) in enumerate(zip(lot.keys, lot.values, lot.pos, lot.op, strict=True)):
            if key is None or pos is None or op not in _OPS or len(pos) != 32:
                raise _foreign(lot, number, "it lacks a key, or its headers pos and op are missing or malformed")
            try:
                document = orjson.loads(value) if value is not None else None
                if op == b"t":
                    row, text, floor = _NO_ROW, None, member(member(document, SWEEP), "floor") or pos.decode()
                else:
                    row, text, floor = self._row(version, key, value, document), version.plain.key(key), None
            except ValueError as error:
                raise _foreign(lot, number, str(error)) from None
            if _LACKING in row:
                lacking = row[_LACKING]
                exact[number] = {column.name: UNAVAILABLE for column in self._frame.columns if column.name in lacking}
            rows.append(row)
            keys.append(text)
            floors.append(floor)
            commits.append(_commit_us(document))
        arrays = self._columns(lot, version, rows, exact)
        count = len(rows)
        array: Any = pa.array
        arrays += [
            array(keys, pa.string()),
            array([pos.decode() for pos in lot.pos if pos is not None], pa.string()),
            array([op.decode() for op in lot.op if op is not None], pa.string()),
            pa.repeat(pa.scalar(version.schema.version, pa.int32()), count),
            pa.repeat(pa.scalar(lot.partition, pa.int32()), count),
            array(lot.offsets, pa.int64()),
            array(commits, pa.timestamp("us", "UTC")),
            array(floors, pa.string()),
            array([list(exact.get(number, {}).items()) for number in range(count)], EXACT_TYPE),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _row(self, version: _Version, key: bytes, value: bytes | None, document: Any) -> dict[str, Any]:
        """Plain values by the frame's own column names. ValueError for what is no record of the table."""
        wire = orjson.loads(key) if document is None else member(document, AFTER) or member(document, BEFORE)
        if not isinstance(wire, dict):
            raise ValueError("it holds no row")
        lacking: list[str] = []
        if value is not None and any(pattern in value for pattern in version.placeholders):
            lacking = missing(wire, version.schema)
            wire = {**wire, **dict.fromkeys(lacking)}
        plain = version.plain.values(wire)
        names = zip(self._frame.columns, version.sources, strict=True)
        row = {column.name: plain.get(name) for column, (name, _) in names if name is not None}
        if lacking:
            row[_LACKING] = {
                column.name
                for column, (name, _) in zip(self._frame.columns, version.sources, strict=True)
                if name in lacking
            }
        return row

    def _columns(
        self, lot: RecordColumns, version: _Version, rows: Sequence[Mapping[str, Any]], exact: dict[int, dict[str, str]]
    ) -> list[Any]:
        arrays = []
        for column, (_, convert) in zip(self._frame.columns, version.sources, strict=True):
            values = [row.get(column.name) for row in rows]
            outside: dict[int, Any] = {}
            if convert is not None:
                values, outside = _cast(values, convert)
            array, unheld = typed(values, column.type)
            outside |= unheld
            if convert is not None and outside and self._retyped == "fail":
                offset = lot.offsets[min(outside)]
                raise ConfigError(
                    f"the column {column.name} of {version.schema.table} has another type since version "
                    f"{version.schema.version}, and does not hold the value at {_place(lot, offset)}",
                    hint='.option("retyped", "cast") leaves it null, with its text in _exact',
                )
            for number, value in outside.items():
                exact.setdefault(number, {})[column.name] = exact_text(value)
            arrays.append(array)
        return arrays


_NO_ROW: dict[str, Any] = {}
_LACKING = "\0lacking"
"""No column of Postgres has this name."""


def _cast(values: list[Any], convert: Convert) -> tuple[list[Any], dict[int, Any]]:
    found: list[Any] = []
    outside: dict[int, Any] = {}
    for number, value in enumerate(values):
        try:
            found.append(None if value is None else convert(value))
        except (ValueError, TypeError, OverflowError):
            found.append(None)
            outside[number] = value
    return found, outside


def _commit_us(document: Any) -> int | None:
    source = member(document, SOURCE)
    micros, millis = member(source, "ts_us"), member(source, "ts_ms")
    return micros if isinstance(micros, int) else millis * _MICROS if isinstance(millis, int) else None


def _place(lot: RecordColumns, offset: int) -> str:
    return f"{lot.topic}, partition {lot.partition}, offset {offset}"


def _foreign(lot: RecordColumns, number: int, reason: str) -> PoisonError:
    return PoisonError(
        f"the record at {_place(lot, lot.offsets[number])} cannot be read as a change: {reason}",
        hint='something else wrote it, as Debezium does; .option("raw", "true") reads records as they are',
    )


_SCHEMA = raw_schema()
_UTC_MS = pa.timestamp("ms", "UTC")


def raw_batch(lot: RecordColumns) -> pa.RecordBatch:
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
