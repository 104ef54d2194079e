"""The functions that aggregates of a query call, and those that write an output of a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc.views import aggregating as agg
from cdc.views.conversions import to_json
from cdc.views.json_values import aggregated_array, jsonb_object_aggregate, object_aggregate, quoted
from cdc.views.sql_types import PRINTED, Group, SqlType
from cdc.views.stored_values import wire_text
from cdc.views.terms import Aggregate, Const


def json_or_null(kind: SqlType, binary: bool) -> Callable[[Any], str]:
    """A value as JSON text, ``null`` for NULL."""
    convert = to_json(kind, binary) or str
    return lambda value: "null" if value is None else convert(value)


_AGGREGATES: dict[str, Callable[[Any], Any]] = {
    "bool_and": agg.every,
    "bool_or": agg.some,
    "string_agg": agg.joined,
    "array_agg": agg.collected,
    "first": agg.first_of,
    "jsonb_agg": agg.json_list,
    "json_object_agg": object_aggregate,
    "jsonb_object_agg": jsonb_object_aggregate,
    "avg": agg.average,
}


def aggregate_function(part: Aggregate) -> Callable[[Any], Any]:
    """The function that makes an aggregate of its values."""
    if part.name == "sum":
        return agg.numeric_sum if part.args[0].type.group is Group.NUMERIC else agg.int_sum
    if part.name == "json_agg":
        of_rows = part.args[0].type.group is Group.RECORD or part.args[0].type.array
        return aggregated_array if of_rows else agg.json_list
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
    same, order = agg.same_key(kind), agg.order_key(kind)

    def of_different(values: list[Any]) -> Any:
        kept = agg.without_repeats(values, same, order)
        if part.name == "string_agg":
            assert isinstance(part.args[1], Const)
            kept = agg.paired(kept, part.args[1].value)
        elif part.name != "array_agg":
            kept = agg.each(json_or_null(kind, part.name == "jsonb_agg"), kept)
        return function(kept)

    return of_different
