"""Rows into a warehouse's columns, in lots and with what came of them, and back to plain values: pure."""

from __future__ import annotations

import base64
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

import orjson
import pyarrow as pa

from cdc.process.clock import Clock
from cdc.record.schema import Column, TableSchema
from cdc.wire.plain import PlainTable
from cdc.wire.types import INTEGERS, NESTED_KINDS, OBJECTS, Plain, kinds
from sinks.contract.batch import joined, pc
from sinks.contract.batch_plan import TableBatch
from sinks.contract.missing_values import dumps_exact
from sinks.contract.port import STRANGE_ROW, Applied, Refused, StoredRow, stored_columns
from sinks.contract.table_places import NEWEST, PLACE
from sinks.warehouse.warehouse_columns import (
    DELETED,
    EXACT,
    KEY,
    OWN,
    POS,
    TIMESTAMP,
    TIMESTAMPTZ,
    WarehouseColumn,
    exact_text,
    fits_of,
    set_apart,
    typed,
)

_CHUNK_ROWS = 16_384
EXACT_TYPE = pa.map_(pa.string(), pa.string())
_NUMBERS = kinds(Plain.BOOLEAN, Plain.INTEGER, Plain.FLOAT, Plain.VECTOR)
_TEXTUAL = frozenset(
    (
        *("numeric", "money", "date", "time", "timetz", "timestamp", "timestamptz", "bytea"),
        *("uuid", "inet", "cidr", "macaddr", "macaddr8"),
    )
)
"""Kinds whose plain value is text."""
_TEXTS = Column(
    name="", attnum=1, type="text[]", type_oid=0, kind="text", array=True, typmod=-1, nullable=True, key_position=None
)
"""Stands for a column of whose source nothing is known: values by their Arrow type alone."""


class WarehouseRows:
    """Rows of one shape for a warehouse whose columns have given types. ``finite``: its floats have no NaN."""

    def __init__(self, schema: TableSchema, columns: Sequence[WarehouseColumn], *, finite: bool = False) -> None:
        self._finite = finite
        self._schema = schema
        self._columns = columns
        self._plain = PlainTable(schema, nested=False)

    def tables(self, batch: TableBatch, now_us: int) -> Iterator[tuple[pa.Table, TableBatch, tuple[Refused, ...]]]:
        """The batch in pieces: as columns, the rows it holds, and those that could not be read."""
        for start in range(0, len(batch), _CHUNK_ROWS):
            piece = batch.piece(start, start + _CHUNK_ROWS)
            made = piece.converted(self._values, _unwrapped)
            yield self._columns_of(made.batch, made.rows, now_us), made.batch, made.refused

    def _values(self, after_json: bytes) -> dict[str, Any]:
        after = orjson.loads(after_json)
        if not isinstance(after, dict):
            raise ValueError("the row is not a JSON object")
        return self._plain.values(after)

    def _columns_of(self, batch: TableBatch, rows: Sequence[dict[str, Any] | None], now_us: int) -> pa.Table:
        """Typed columns, then our own."""
        keys: list[Any] = batch.events["key"].to_pylist() if None in rows else []
        whole = [row if row is not None else self._key_row(keys[number]) for number, row in enumerate(rows)]
        arrays: list[Any] = []
        exact: dict[int, list[tuple[str, str]]] = {}
        for column in self._columns:
            name = column.source.name
            values, apart = set_apart([row.get(name) for row in whole], fits_of(column))
            array, outside = typed(values, column.type, finite=self._finite)
            arrays.append(array)
            for number, value in (outside | apart).items():
                exact.setdefault(number, []).append((name, exact_text(value)))
        gone = [row is None for row in rows]
        arrays += [
            pa.array(batch.keys, pa.string()),
            pa.array(batch.pos, pa.string()),
            pa.array(gone, pa.bool_()),
            pa.array([now_us if deleted else None for deleted in gone], TIMESTAMPTZ),
            pa.array([exact.get(number) for number in range(len(rows))], EXACT_TYPE),
        ]
        return pa.Table.from_arrays(arrays, names=[*(c.name for c in self._columns), *OWN])

    def _key_row(self, key_json: bytes) -> dict[str, Any]:
        """A deleted row has its key's columns and no others."""
        return self._plain.values(orjson.loads(key_json))

    def stored(self, table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
        """Columns of the warehouse, own ones included, back to stored rows. The table's place is none."""
        if pc.any(pc.equal(table.column(KEY), PLACE)).as_py():
            table = table.filter(pc.fill_null(pc.not_equal(table.column(KEY), PLACE), True))
        gone = table.column(DELETED).to_pylist()
        present = set(table.schema.names)
        names = [c.source.name for c in self._columns if c.name in present]
        columns = [plain_values(table.column(c.name), c.source) for c in self._columns if c.name in present]
        exact = table.column(EXACT).to_pylist()
        kinds = {c.source.name: c.source for c in self._columns}
        rows: list[bytes | None] = []
        values: Iterator[tuple[Any, ...]] = zip(*columns, strict=True) if columns else iter([()] * len(gone))
        for deleted, outside, fields in zip(gone, exact, values, strict=True):
            if deleted:
                rows.append(None)
                continue
            row = dict(zip(names, fields, strict=True))
            for name, text in outside or ():
                if name in kinds:
                    row[name] = from_exact(text, kinds[name])
            rows.append(dumps_exact(row))
        # Rows that somebody else put there may have neither.
        keys = [key or "" for key in table.column(KEY).to_pylist()]
        pos = [pos or "" for pos in table.column(POS).to_pylist()]
        return stored_columns(keys, pos, rows)


def place_row(text: bytes) -> pa.Table:
    """A table's place as a row: its own columns alone."""
    exact = pa.array([[(PLACE, text.decode())]], EXACT_TYPE)
    own: list[Any] = [[PLACE], [NEWEST], [True], pa.nulls(1, TIMESTAMPTZ), exact]
    return pa.Table.from_arrays([*map(pa.array, own[:3]), *own[3:]], names=[*OWN])


def place_in(exact: Sequence[Any]) -> bytes | None:
    """The place that is in these ``_exact``, of the rows under its key. None for no row, nothing for what is none of
    ours."""
    if not exact:
        return None
    return dict(exact[0] or ()).get(PLACE, "").encode() if len(exact) == 1 else b""


def _unwrapped(row: dict[str, Any]) -> dict[str, Any]:
    """Plain values with nested ones as text again."""
    return {n: orjson.dumps(v).decode() if isinstance(v, orjson.Fragment) else v for n, v in row.items()}


def from_exact(text: str, column: Column) -> Any:
    """A plain value from its text in ``_exact``."""
    if column.kind in _TEXTUAL and not column.array:
        return text
    if column.kind in NESTED_KINDS and not column.array:
        return _fragment(text)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return _each(_fragment, value) if column.array and column.kind in NESTED_KINDS else value


def plain_values(values: Any, column: Column) -> list[Any]:
    """A column of a warehouse as plain values of its kind. Null where it is null."""
    if not pa.types.is_list(values.type):
        return _scalars(values, column)
    whole = joined(values)
    elements = _scalars(whole.flatten(), replace(column, array=False))
    found: list[Any] = []
    at = 0
    for length in pc.list_value_length(whole).to_pylist():
        found.append(None if length is None else elements[at : at + length])
        at += length or 0
    return found


def recast(values: Any, kind: pa.DataType) -> Any:
    """A column as one of a wider type. Turn values into text that are none in Arrow: lists as JSON, bytes as base64, as
    plain values have them."""
    given: Any = values.type
    wanted: Any = kind
    array: Any = pa.array
    if pa.types.is_list(given) and pa.types.is_string(kind):
        return array([None if v is None else exact_text(v) for v in plain_values(values, _TEXTS)], kind)
    if pa.types.is_binary(given) and pa.types.is_string(kind):
        return array(_converted(values, _base64), kind)
    lists = pa.types.is_list(given) and pa.types.is_list(kind)
    if lists and pa.types.is_binary(given.value_type) and pa.types.is_string(wanted.value_type):
        return array(plain_values(values, _TEXTS), kind)
    return pc.cast(values, kind)


def _scalars(values: Any, column: Column) -> list[Any]:
    kind = values.type
    if column.kind == "date" and pa.types.is_timestamp(kind):
        values = pc.cast(values, pa.date32())
        kind = values.type
    if pa.types.is_timestamp(kind):
        texts = pc.utf8_replace_slice(pc.cast(pc.cast(values, TIMESTAMP), pa.string()), 10, 11, "T")
        return _converted(texts, lambda text: f"{text}Z")
    if pa.types.is_date(kind):
        return _converted(pc.cast(values, pa.string()), lambda text: f"{text}Z")
    if pa.types.is_decimal(kind) and column.kind in INTEGERS:
        return _converted(values, _integer)
    for is_kind, convert in _CONVERSIONS:
        if is_kind(kind):
            return _converted(values, convert)
    if pa.types.is_floating(kind):
        return _converted(values, _integer if column.kind in INTEGERS else _float)
    return _converted(values, _from_text(column) if pa.types.is_string(kind) else None)


def _converted(values: Any, convert: Callable[[Any], Any] | None) -> list[Any]:
    listed: list[Any] = values.to_pylist()
    return listed if convert is None else [None if v is None else convert(v) for v in listed]


def _from_text(column: Column) -> Callable[[str], Any] | None:
    """How a column that is text in the warehouse becomes its plain value."""
    nested = column.kind in NESTED_KINDS or column.kind in OBJECTS
    if column.array:
        return (lambda text: _each(_fragment, _loaded(text))) if nested else _loaded
    if nested:
        return _fragment
    return _loaded if column.kind in _NUMBERS else None


def _float(value: float) -> Any:
    if isfinite(value):
        return value
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _integer(value: float | Decimal) -> Any:
    return int(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decimal(value: Decimal) -> str:
    return format(value, "f")


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_decimal, _decimal),
    (pa.types.is_binary, _base64),
)


def _fragment(value: Any) -> Any:
    return orjson.Fragment(value) if isinstance(value, str) else value


def _loaded(text: str) -> Any:
    """A value that stands as JSON because the column became text."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _each(convert: Callable[[Any], Any], value: Any) -> Any:
    return [_each(convert, v) for v in value] if isinstance(value, list) else convert(value)


SIDE_BY_SIDE = 8
"""So many tables are written at once."""
READ_ROWS = 2_000
UNPACKED = 3
"""About how much larger a row is than what it takes in its file."""
LOOKUP = 1_000
"""So many keys are looked up at once."""
_MERGE_ROWS = 250_000
_SCAN_ROWS = 16_384
_PIECES = -(-_MERGE_ROWS // _SCAN_ROWS)
"""Of one merge. So many rows are one and not two: a merge may read the whole table, however few rows it has."""

Piece = tuple[pa.Table, TableBatch, tuple[Refused, ...]]
Lot = tuple[pa.Table, list[bool], tuple[Refused, ...]]


def lots(pieces: Iterator[Piece]) -> Iterator[Lot]:
    """Pieces joined to what one merge takes: columns, which rows are deletes, what was refused."""
    while lot := list(itertools.islice(pieces, _PIECES)):
        rows = pa.concat_tables([table for table, _, _ in lot])
        deletes: list[Any] = rows[DELETED].to_pylist()
        yield rows, deletes, tuple(itertools.chain.from_iterable(refused for _, _, refused in lot))


def counted(written: int, deletes: Sequence[bool]) -> Applied:
    """The outcome of a merge that has put so many rows in.

    >>> counted(2, [False, True, False])
    Applied(applied=2, deleted=0, stale=1, refused=())
    """
    stale = max(0, len(deletes) - written)
    # A merge does not report which stale ones were deletes, so they are subtracted from the deletes first.
    deleted = max(0, sum(deletes) - stale)
    return Applied(applied=max(0, written - deleted), deleted=deleted, stale=stale)


def odd_rows(found: pa.Table, key: str, deleted: str) -> dict[str, StoredRow]:
    """The keys with a live row and another one, which nothing but another writer makes: no position decides. ``key``
    and ``deleted``: the columns' names."""
    live = set(found.filter(pc.invert(pc.fill_null(found[deleted], False)))[key].to_pylist())
    several: Counter[Any] = Counter(found[key].to_pylist())
    return {
        one: StoredRow(key=one, pos="", row=STRANGE_ROW) for one, count in several.items() if count > 1 and one in live
    }


class Expiry:
    """When the remembered deletes of each table are to be removed: now and then."""

    def __init__(self, replay_window_s: float, clock: Clock) -> None:
        self._remember_us = int(replay_window_s * 1e6)
        self._every_s = min(3600.0, replay_window_s)
        self._clock = clock
        self._purged: dict[str, float] = {}

    def due(self, table: str) -> datetime | None:
        """The moment before which deletes of a table go. None while it is not time for it yet."""
        now = self._clock.monotonic()
        if now - self._purged.setdefault(table, now) < self._every_s:
            return None
        self._purged[table] = now
        return datetime.fromtimestamp((self._clock.now_ns() // 1000 - self._remember_us) / 1e6, UTC)
