"""Aggregates over the rows of one group, and the order and sameness of values as Postgres has them.

All take lists in the order of the rows. NULL is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from cdc.views import decimals as dec
from cdc.views.conversions import to_json
from cdc.views.json_values import aggregated_array, equal_form, jsonb_object_aggregate, object_aggregate, quoted
from cdc.views.sql_types import PRINTED, Group, SqlType
from cdc.views.stored_values import wire_text
from cdc.views.syntax import NotComputable
from cdc.views.terms import Aggregate, Const
from cdc.views.text_values import unpadded

Key = Callable[[Any], Any]


def _numeric_same(value: Decimal) -> Any:
    return "NaN" if value.is_nan() else value


def _float_same(value: float) -> Any:
    return "NaN" if math.isnan(value) else value


def same_key(kind: SqlType) -> Key | None:
    """A form in which two values are equal where Postgres says so. Hashable. None where it is the value itself."""
    if kind.kind == "bpchar":
        return unpadded
    return _SAME.get(kind.group)


def order_key(kind: SqlType) -> Key | None:
    """A form that sorts as Postgres does. None where it is the value itself."""
    if kind.kind == "bpchar":
        return unpadded
    return _ORDER.get(kind.group)


_SAME: dict[Group, Key] = {
    Group.NUMERIC: _numeric_same,
    Group.FLOAT: _float_same,
    Group.INTERVAL: lambda value: value.span(),
    Group.JSONB: equal_form,
}
_ORDER: dict[Group, Key] = {Group.NUMERIC: dec.numeric_key, Group.FLOAT: dec.float_key}


def in_order(rows: list[tuple[Any, ...]], directions: Sequence[tuple[bool, bool]]) -> list[tuple[Any, ...]]:
    """Rows whose first member is their tuple of sort keys, sorted by it. Stable.

    ``directions``: for each key, whether it descends and whether NULL comes first.
    """
    for place in range(len(directions) - 1, -1, -1):
        descending, nulls_first = directions[place]
        null_is_high = descending == nulls_first

        def key(row: tuple[Any, ...], place: int = place, null_is_high: bool = null_is_high) -> tuple[bool, Any]:
            value = row[0][place]
            return ((value is None) is null_is_high, value)

        rows.sort(key=key, reverse=descending)
    return rows


def values_in_order(rows: list[tuple[Any, ...]], directions: Sequence[tuple[bool, bool]]) -> list[Any]:
    """The second members of rows, in the order of their keys."""
    return [row[1] for row in in_order(rows, directions)]


def each(function: Key, values: Iterable[Any]) -> list[Any]:
    """A function of each value."""
    return [function(value) for value in values]


def paired(values: Iterable[Any], other: Any) -> list[tuple[Any, Any]]:
    """Each value with the same other."""
    return [(value, other) for value in values]


def present(values: Iterable[Any]) -> int:
    """``count`` of a value."""
    return sum(1 for value in values if value is not None)


def without_repeats(values: Iterable[Any], key: Key | None, order: Key | None) -> list[Any]:
    """Each value once, sorted as ``distinct`` inside of an aggregate sorts them: NULL last."""
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(value if value is None or key is None else key(value), value)
    kept = list(found.values())
    kept.sort(key=lambda v: (v is None, v if v is None or order is None else order(v)))
    return kept


def counted(values: Iterable[Any], key: Key | None) -> int:
    """``count(distinct …)``"""
    return len({v if key is None else key(v) for v in values if v is not None})


def int_sum(values: Iterable[int | None]) -> int | None:
    """``sum`` of int2 and int4: a bigint."""
    known = [value for value in values if value is not None]
    return dec.bounded("int8", sum(known)) if known else None


def numeric_sum(values: Iterable[Decimal | None]) -> Decimal | None:
    """``sum`` of numerics, exactly."""
    total: Decimal | None = None
    for value in values:
        if value is not None:
            total = value if total is None else dec.add(total, value)
    return total


def average(values: Iterable[Decimal | None]) -> Decimal | None:
    """``avg``, with the scale that Postgres gives it."""
    known = [value for value in values if value is not None]
    total = numeric_sum(known)
    return None if total is None else dec.average(total, len(known))


def least(values: Iterable[Any], order: Key | None) -> Any:
    """``min``"""
    known = [value for value in values if value is not None]
    return min(known, key=order, default=None) if known else None


def greatest(values: Iterable[Any], order: Key | None) -> Any:
    """``max``. Of equal ones the first."""
    known = [value for value in values if value is not None]
    return max(known, key=order, default=None) if known else None


def every(values: Iterable[bool | None]) -> bool | None:
    """``bool_and``"""
    known = [value for value in values if value is not None]
    return all(known) if known else None


def some(values: Iterable[bool | None]) -> bool | None:
    """``bool_or``"""
    known = [value for value in values if value is not None]
    return any(known) if known else None


def joined(values: Iterable[tuple[str | None, str | None]]) -> str | None:
    """``string_agg``: each value behind its own delimiter, but for the first."""
    parts: list[str] = []
    for value, delimiter in values:
        if value is not None:
            if parts:
                parts.append(delimiter or "")
            parts.append(value)
    return "".join(parts) if parts else None


def json_list(values: list[str]) -> str | None:
    """``json_agg`` of values that are no rows, and ``jsonb_agg``. NULL without any."""
    return "[" + ", ".join(values) + "]" if values else None


def first_of(values: list[Any]) -> Any:
    """``(array_agg(value order by …))[1]``"""
    return values[0] if values else None


def collected(values: list[Any]) -> list[Any] | None:
    """``array_agg``. NULL without any."""
    return values or None


def one_value(rows: Sequence[tuple[Any, ...]]) -> Any:
    """The value of a subquery: that of its only row, NULL without rows. Raises NotComputable for a second row."""
    if len(rows) > 1:
        raise NotComputable("more than one row returned by a subquery used as an expression")
    return rows[0][0] if rows else None


def among(value: Any, rows: Sequence[tuple[Any, ...]], key: Key | None) -> bool | None:
    """``value in (subquery)``"""
    if not rows:
        return False
    if value is None:
        return None
    wanted = value if key is None else key(value)
    if any(v is not None and (v if key is None else key(v)) == wanted for (v,) in rows):
        return True
    return None if any(v is None for (v,) in rows) else False


def in_items(value: Any, items: Sequence[Any], key: Key | None) -> bool | None:
    """``value in (a, b, …)``"""
    return among(value, [(item,) for item in items], key)


def json_or_null(kind: SqlType, binary: bool) -> Callable[[Any], str]:
    """A value as JSON text, ``null`` for NULL."""
    convert = to_json(kind, binary) or str
    return lambda value: "null" if value is None else convert(value)


_AGGREGATES: dict[str, Callable[[Any], Any]] = {
    "bool_and": every,
    "bool_or": some,
    "string_agg": joined,
    "array_agg": collected,
    "first": first_of,
    "jsonb_agg": json_list,
    "json_object_agg": object_aggregate,
    "jsonb_object_agg": jsonb_object_aggregate,
    "avg": average,
}


def aggregate_function(part: Aggregate) -> Callable[[Any], Any]:
    """The function that makes an aggregate of its values."""
    if part.name == "sum":
        return numeric_sum if part.args[0].type.group is Group.NUMERIC else int_sum
    if part.name == "json_agg":
        of_rows = part.args[0].type.group is Group.RECORD or part.args[0].type.array
        return aggregated_array if of_rows else json_list
    return _AGGREGATES[part.name]


_QUOTED = (Group.TEXT, Group.UUID, Group.ENUM, Group.JSON, Group.JSONB, Group.OPAQUE)


def wire_function(kind: SqlType, name: str) -> Callable[[Any], str]:
    """How an output of the view is written, where it is not null."""
    if not kind.array and kind.group in _QUOTED and kind.kind not in PRINTED:
        return quoted
    return wire_text(kind, name)


def gathering(part: Aggregate) -> Callable[[list[Any]], Any]:
    """The function that makes an aggregate of its values over all rows of a group, in their order."""
    function = aggregate_function(part)
    if not part.distinct:
        return function
    kind = part.args[0].type
    same, order = same_key(kind), order_key(kind)

    def of_different(values: list[Any]) -> Any:
        kept = without_repeats(values, same, order)
        if part.name == "string_agg":
            assert isinstance(part.args[1], Const)
            kept = paired(kept, part.args[1].value)
        elif part.name != "array_agg":
            kept = each(json_or_null(kind, part.name == "jsonb_agg"), kept)
        return function(kept)

    return of_different
