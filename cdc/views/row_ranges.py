"""Rows of a lookup by a range of one column: neighbours are found without a walk over all rows of a key.

Of ``x.placed_at <= o.placed_at`` only those rows are looked at for which it holds. They are sorted once for all
documents of a piece. A subquery whose order of rows shows in its result is left as it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.views.join_order import Arranged, Fetch
from cdc.views.sql_types import Group
from cdc.views.term_walks import references, walk
from cdc.views.terms import Aggregate, Col, Compare, Expr, Select, Source

Row = tuple[Any, ...]
_SORTED = frozenset({Group.INTEGER, Group.DATE, Group.TIMESTAMP, Group.TIMESTAMPTZ})
"""Groups whose values in the state compare as they stand."""
_ANY_ORDER = frozenset({"count", "min", "max", "bool_and", "bool_or"})
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class RowRange:
    """The values of ``column`` between ``low`` and ``high``, each None where there is no such end. ``first``: "least"
    or "greatest" where the first row of the range that holds decides, else empty."""

    column: str
    low: Expr | None
    low_open: bool
    high: Expr | None
    high_open: bool
    first: str = ""


def any_order(query: Select) -> bool:
    """Whether the order of a query's rows shows nowhere in its one row of aggregates."""
    found = [part for _, e in query.outputs for part in walk(e) if isinstance(part, Aggregate)]
    return (
        query.grouped
        and not query.group
        and not query.having
        and all(part.name in _ANY_ORDER and not part.order for part in found)
    )


def range_of(step: Fetch, plan: Arranged) -> RowRange | None:
    """The range that the conditions of a step set for a column of its rows. None where they set none."""
    column = ""
    low: tuple[Expr, bool] | None = None
    high: tuple[Expr, bool] | None = None
    for condition in step.filters:
        found = _end(step.source, condition)
        if found is None or column not in ("", found[0]):
            continue
        column, op, value = found
        if op in (">", ">=") and low is None:
            low = value, op == ">"
        elif op in ("<", "<=") and high is None:
            high = value, op == "<"
    if not column:
        return None
    first = _first(step, plan, column)
    return RowRange(column, low and low[0], bool(low and low[1]), high and high[0], bool(high and high[1]), first)


def _end(source: Source, condition: Expr) -> tuple[str, str, Expr] | None:
    if not isinstance(condition, Compare) or condition.op not in _FLIPPED or condition.distinct:
        return None
    for own, other, op in (
        (condition.left, condition.right, condition.op),
        (condition.right, condition.left, _FLIPPED[condition.op]),
    ):
        plain = isinstance(own, Col) and own.source is source and not own.type.array
        same = own.type.group is other.type.group and own.type.group in _SORTED
        alone = source not in references(other) and not any(part.queries() for part in walk(other))
        if isinstance(own, Col) and plain and same and alone:
            return own.name, op, other
    return None


def _first(step: Fetch, plan: Arranged, column: str) -> str:
    """Of the one aggregate ``max(column)`` or ``min(column)`` over one table the first row decides."""
    outputs = plan.query.outputs
    if len(plan.steps) != 1 or plan.steps[0] is not step or len(outputs) != 1 or not plan.query.grouped:
        return ""
    part = outputs[0][1]
    if not isinstance(part, Aggregate) or part.filter is not None or part.name not in ("min", "max"):
        return ""
    (value,) = part.args
    if not isinstance(value, Col) or value.source is not step.source or value.name != column:
        return ""
    return "greatest" if part.name == "max" else "least"


def rows_between(
    rows: Sequence[Row],
    known: dict[Any, tuple[list[Any], list[Row]]],
    key: Any,
    place: int,
    ends: Callable[[], tuple[Any, ...]],
    how: tuple[bool, bool, bool],
) -> Iterable[Row]:
    """The rows of a key whose value at ``place`` is between the ``ends``: one or two values, NULL for no row at all.

    ``how``: whether each end is left out itself, and whether the greatest value comes first. ``known``: sorted rows
    by key. ``ends``: the lower end or Ellipsis for none, then the upper one in the same way.
    """
    if not rows:
        return rows
    found = known.get(key)
    if found is None:
        kept = sorted((row for row in rows if row[place] is not None), key=lambda row: row[place])
        known[key] = found = [row[place] for row in kept], kept
    (low, high), (low_open, high_open, backwards) = ends(), how
    if low is None or high is None:
        return ()
    values, sorted_rows = found
    begin = 0 if low is ... else (bisect_right if low_open else bisect_left)(values, low)
    end = len(values) if high is ... else (bisect_left if high_open else bisect_right)(values, high)
    if backwards:
        return (sorted_rows[i] for i in range(end - 1, begin - 1, -1))
    return (sorted_rows[i] for i in range(begin, end))
