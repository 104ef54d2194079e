"""The columns of a warehouse table: real types where they hold every legal value, and a place for what they do not.

Postgres has values that no warehouse type holds: infinity and BC dates, NaN among decimals, nested arrays in a
column of arrays. The typed column is null for such a value and ``_exact`` has its text, by the column's name: nothing
is cut, rounded or lost. The same happens to a row of an old shape whose value does not fit the type of today.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import copysign
from typing import Any, cast

import orjson
import pyarrow as pa

from cdc.record.schema import Column, TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.types import BY_KIND, Plain, kinds
from sinks.contract.batch import pc
from sinks.contract.port import CannotCarry
from sinks.contract.store_names import column_names

KEY, POS, DELETED, DELETED_AT, EXACT = "_key", "_pos", "_deleted", "_deleted_at", "_exact"
OWN = (KEY, POS, DELETED, DELETED_AT, EXACT)
"""Our own columns: the store key, the position, whether and when it was deleted, and the exact text of what a
typed column does not hold."""

TIMESTAMPTZ = pa.timestamp("us", "UTC")
TIMESTAMP = pa.timestamp("us")
_DIGITS = 38
_CALENDAR = r"^([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_ARROW: tuple[pa.DataType, ...] = (
    pa.bool_(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(19, 2), pa.binary(),
    pa.date32(), TIMESTAMP, TIMESTAMPTZ,
)  # fmt: skip
_BY_NAME = {str(kind): kind for kind in _ARROW}
_SIMPLE = {kind: _BY_NAME[family.warehouse] for kind, family in BY_KIND.items() if family.warehouse in _BY_NAME}
_VECTORS = kinds(Plain.VECTOR)
_WHOLE_DIGITS: dict[pa.DataType, int] = {pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_WIDER: dict[frozenset[pa.DataType], pa.DataType] = {
    frozenset((pa.int16(), pa.int32())): pa.int32(),
    frozenset((pa.int16(), pa.int64())): pa.int64(),
    frozenset((pa.int32(), pa.int64())): pa.int64(),
    # A double holds every int4 and every float4, but not every long.
    frozenset((pa.int16(), pa.float32())): pa.float64(),
    frozenset((pa.int32(), pa.float32())): pa.float64(),
    frozenset((pa.int16(), pa.float64())): pa.float64(),
    frozenset((pa.int32(), pa.float64())): pa.float64(),
    frozenset((pa.float32(), pa.float64())): pa.float64(),
    frozenset((pa.date32(), TIMESTAMP)): TIMESTAMP,
}
_SPECIAL_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_REFUSALS = (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError, InvalidOperation)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseColumn:
    """A source column as a warehouse has it. ``fits``: whether the store's type has a plain value that ``type`` has.
    None where ``type`` says all."""

    source: Column
    name: str
    type: pa.DataType
    fits: Callable[[Any], bool] | None = None


def warehouse_columns(schema: TableSchema) -> list[WarehouseColumn]:
    """The columns of a table, less our own."""
    names = column_names((c.name for c in schema.columns), OWN)
    return [WarehouseColumn(source=c, name=names[c.name], type=arrow_type(c)) for c in schema.columns]


def arrow_type(column: Column) -> pa.DataType:
    """The type of a column. Every kind without a type of its own is text."""
    element = _element_type(column)
    return pa.list_(element) if column.array or column.kind in _VECTORS else element


def _element_type(column: Column) -> pa.DataType:
    if column.kind in _VECTORS:
        return pa.float32()
    if column.kind in ("bit", "varbit") and column.typmod == 1:
        return pa.bool_()
    if column.kind != "numeric":
        return _SIMPLE.get(column.kind, pa.string())
    precision, scale = column.precision, column.scale
    if precision is None or scale is None:
        return pa.string()
    digits = max(precision - min(scale, 0), scale)
    return pa.decimal128(digits, max(scale, 0)) if digits <= _DIGITS else pa.string()


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that holds all values of both: text in the end."""
    if one.equals(other):
        return one
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(wider(one.value_type, other.value_type))
    if pa.types.is_decimal(one) or pa.types.is_decimal(other):
        return _wider_decimal(_as_decimal(one), _as_decimal(other))
    return _WIDER.get(frozenset((one, other)), pa.string())


def _wider_decimal(one: Any, other: Any) -> pa.DataType:
    if one is None or other is None:
        return pa.string()
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    return pa.decimal128(digits, scale) if digits <= _DIGITS else pa.string()


def _as_decimal(kind: pa.DataType) -> pa.DataType | None:
    """A decimal that holds a whole number's type. None for what is neither."""
    digits = _WHOLE_DIGITS.get(kind)
    return pa.decimal128(digits, 0) if digits else kind if pa.types.is_decimal(kind) else None


def evolved(existing: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    """The column after its source took another type: one that holds the values of both.

    None when nothing but text would, and the source is no text: readers of such a column would find text in the
    place of numbers.
    """
    both = wider(existing, wanted)
    return None if _text_instead(both, wanted) else both


def retypes(
    table: TableName, existing: Mapping[str, pa.DataType], wanted: Sequence[WarehouseColumn], *, may: bool = True
) -> dict[str, pa.DataType]:
    """The columns of a table that have to change, and what to. CannotCarry for one that has no such type.

    ``may`` False: of a store that cannot change a column's type.
    """
    found: dict[str, pa.DataType] = {}
    for column in wanted:
        before = existing.get(column.name)
        if before is None:
            continue
        after = evolved(before, column.type)
        if after is None or not (may or after.equals(before)):
            raise CannotCarry.column(table, column.source.name, str(before), column.source.type)
        if not after.equals(before):
            found[column.name] = after
    return found


def removed(existing: Collection[str], wanted: Sequence[WarehouseColumn], kept: Collection[str]) -> str:
    """Why a table that lost a column cannot be gone on with. Empty where it lost none.

    ``kept``: columns of the source that it is known to have had. One that was never there is new in the source. One
    that was removed by hand would come back without its values.
    """
    own = [name for name in OWN if name not in existing]
    lost = own or [column.name for column in wanted if column.source.name in kept and column.name not in existing]
    return f"column {lost[0]} was removed from the table in the store, with what it held" if lost else ""


def _text_instead(both: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_list(both) and pa.types.is_list(wanted):
        inner, element = cast("Any", both).value_type, cast("Any", wanted).value_type
        return _text_instead(inner, element)
    return pa.types.is_string(both) and not pa.types.is_string(wanted)


def fits_of(column: WarehouseColumn) -> Callable[[Any], bool] | None:
    """Whether the store has a plain value of a column, as :attr:`WarehouseColumn.fits`. Text of an older shape is not
    taken for the base64 of bytes, of which much ordinary text is some."""
    return _never if _has_bytes(column.type) and not _has_bytes(arrow_type(column.source)) else column.fits


def _has_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind.value_type if pa.types.is_list(kind) else kind))


def _never(_value: Any) -> bool:
    return False


def set_apart(values: Sequence[Any], fits: Callable[[Any], bool] | None) -> tuple[Sequence[Any], dict[int, Any]]:
    """Values, null in the place of those that the store's type does not have, and these by number."""
    if fits is None:
        return values, {}
    apart = {number: value for number, value in enumerate(values) if value is not None and not fits(value)}
    return ([None if n in apart else v for n, v in enumerate(values)] if apart else values), apart


def typed(values: Sequence[Any], kind: pa.DataType, *, finite: bool = False) -> tuple[Any, dict[int, Any]]:
    """Plain values as an array of a type. By number, the values that it does not hold (null in the array).

    ``finite``: floats have neither NaN nor infinity (text, here) nor a negative zero, which stays as a zero.
    """
    if finite and pa.types.is_floating(kind):
        special = {number: value for number, value in enumerate(values) if value.__class__ is str}
        array, outside = typed([None if n in special else v for n, v in enumerate(values)], kind)
        zeros = {n: v for n, v in enumerate(values) if v.__class__ is float and v == 0 and copysign(1, v) < 0}
        return array, outside | special | zeros
    try:
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return _calendar(values, kind)
        return _fast(values, kind), {}
    except _REFUSALS:
        return _one_by_one(values, kind)


def _calendar(values: Sequence[Any], kind: pa.DataType) -> tuple[Any, dict[int, Any]]:
    """Moments, those outside the calendar apart: infinity is an ordinary value of a valid_until."""
    texts: Any = pa.array(values, pa.string())
    inside = pc.fill_null(pc.match_substring_regex(texts, _CALENDAR), True)
    if not pc.all(inside, min_count=0).as_py():
        outside = {number: values[number] for number in pc.indices_nonzero(pc.invert(inside)).to_pylist()}
        return _moments(pc.if_else(inside, texts, None), kind), outside
    return _moments(texts, kind), {}


def exact_text(value: Any) -> str:
    """A plain value as ``_exact`` has it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _fast(values: Sequence[Any], kind: pa.DataType) -> Any:
    """All at once. Raises when any value is out of the ordinary."""
    array: Any = pa.array
    if pa.types.is_list(kind):
        return _lists(values, kind)
    if pa.types.is_decimal(kind):
        return pc.cast(array(values, pa.string()), kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _moments(array(values, pa.string()), kind)
    if pa.types.is_binary(kind):
        return array([None if v is None else binascii.a2b_base64(v) for v in values], kind)
    if pa.types.is_floating(kind):
        return array([_SPECIAL_FLOATS[v] if v.__class__ is str else v for v in values], kind)
    return array(values, kind)


def _moments(texts: Any, kind: pa.DataType) -> Any:
    in_calendar = pc.match_substring_regex(texts, _CALENDAR)
    if not pc.all(in_calendar, min_count=0).as_py():
        raise ValueError("outside the calendar")
    if pa.types.is_date(kind):
        return pc.cast(pc.utf8_rtrim(texts, characters="Z"), kind)
    moments = pc.cast(texts, TIMESTAMPTZ)
    return moments if kind.equals(TIMESTAMPTZ) else pc.cast(moments, kind)


def _lists(values: Sequence[Any], kind: pa.DataType) -> Any:
    offsets = [0]
    flat: list[Any] = []
    for value in values:
        if value is not None:
            if value.__class__ is not list:
                raise TypeError("not an array")
            flat.extend(value)
        offsets.append(len(flat))
    lists: Any = pa.ListArray.from_arrays
    mask = pa.array([value is None for value in values], pa.bool_())
    element: Any = kind
    return lists(pa.array(offsets, pa.int32()), _fast(flat, element.value_type), type=kind, mask=mask)


def _one_by_one(values: Sequence[Any], kind: pa.DataType) -> tuple[Any, dict[int, Any]]:
    """Value by value. Text types take anything, as JSON where it is no text."""
    convert: Callable[[Any], Any] = exact_text if pa.types.is_string(kind) else lambda value: _scalar(value, kind)
    fitting: list[Any] = []
    exact: dict[int, Any] = {}
    for number, value in enumerate(values):
        try:
            fitting.append(None if value is None else convert(value))
        except _REFUSALS:
            fitting.append(None)
            exact[number] = value
    array: Any = pa.array
    return array(fitting, kind), exact


def _scalar(value: Any, kind: pa.DataType) -> Any:
    """One value as Arrow takes it. Raises when the type does not hold it."""
    if pa.types.is_decimal(kind):
        number = Decimal(value)
        if not number.is_finite():
            raise ValueError("not finite")
        scalar: Any = pa.scalar
        return scalar(number, kind).as_py()
    one = _fast([value], kind)
    return one[0].as_py() if not pa.types.is_timestamp(kind) else one[0]


def one_to_spark(existing: Collection[str], wanted: Sequence[WarehouseColumn]) -> str:
    """Why Spark cannot merge into a table with these columns beside each other. Empty where it can: it reads names
    that differ in case alone as one, letter by letter.

    >>> one_to_spark(["\u0131d", "stra\u00dfe", "strasse", "_key"], [])
    ''
    >>> one_to_spark(["\u0131d", "id"], [])
    'columns \u0131d and id are one column to Spark'
    """
    first: dict[str, str] = {}
    for name in (*existing, *(column.name for column in wanted)):
        twin = first.setdefault("".join(map(_caseless, name)), name)
        if twin != name:
            return f"columns {twin} and {name} are one column to Spark"
    return ""


def _caseless(letter: str) -> str:
    upper = letter.upper()
    return (upper if len(upper) == 1 else letter).lower()[0]
