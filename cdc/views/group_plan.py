"""A view whose rows are groups: ``select … group by …`` over a driving table and what each of its rows is tied to.

Each row of the driving table contributes to one group: the values of the group's columns, and a value for each
aggregate. A change subtracts the old contribution and adds the new one. Sums are exact: how many values have which
scale is kept, so that a sum has the scale that Postgres gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from cdc.views.chains import Arranged
from cdc.views.compiling import Program, compiled_contribution
from cdc.views.sql_types import Group, SqlType
from cdc.views.syntax import ViewText
from cdc.views.term_walks import base_column, conjuncts, shape, walk
from cdc.views.terms import Aggregate, Choice, Col, Const, Expr, FromItem, IsNull, Join, Select, Source

Kept = Literal["count", "different", "sum", "average", "least", "greatest", "all", "any"]
"""How an aggregate is kept: by counts and sums, or by the order of its values."""

_KEPT: dict[str, Kept] = {
    "count": "count",
    "sum": "sum",
    "avg": "average",
    "min": "least",
    "max": "greatest",
    "bool_and": "all",
    "bool_or": "any",
}
_KEYS = frozenset(
    {
        Group.BOOLEAN,
        Group.INTEGER,
        Group.NUMERIC,
        Group.TEXT,
        Group.DATE,
        Group.TIMESTAMP,
        Group.TIMESTAMPTZ,
        Group.UUID,
        Group.ENUM,
    }
)


@dataclass(frozen=True, slots=True)
class GroupFigure:
    """One aggregate of a grouped view. ``kind``: of the values that it takes."""

    kept: Kept
    kind: SqlType


@dataclass(frozen=True, slots=True)
class Grouping:
    """``keys``: types of the group's columns, in the order of the view's key.

    ``contribution``: a row of the driving table to the values of the group and those of the figures, None where WHERE
    leaves it out. ``row``: both, the figures computed, to the view's row on the wire, None where HAVING leaves it out.
    """

    keys: tuple[SqlType, ...]
    figures: tuple[GroupFigure, ...]
    contribution: Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], tuple[Any, ...]] | None] = field(compare=False)
    row: Callable[[tuple[Any, ...], tuple[Any, ...]], str | None] = field(compare=False)


def grouping(text: ViewText, query: Select, plan: Arranged, root: Source) -> tuple[Grouping, Program, tuple[str, ...]]:
    """How a grouped view is kept, its program, and the names of the view's columns that are its key."""
    names = tuple(_output(text, query, by) for by in query.group)
    if not names:
        raise text.refused("a view of one row has no key", word="", hint="group by a column")
    aggregates = _aggregates(query)
    for part in aggregates:
        repeats = part.distinct and part.name in ("sum", "avg")
        if repeats or part.order or part.name not in _KEPT:
            hint = "count, sum, avg, min, max, bool_and and bool_or are kept; others stand in subqueries"
            said = f"{part.name}(distinct …)" if repeats else part.name
            raise text.refused(f"{said} of groups is not kept", part.location, hint=hint)
    _refuse_keys(text, query)
    program, contribution, row = compiled_contribution(text, plan, root, aggregates)
    figures = tuple(map(_figure, aggregates))
    keys = tuple(by.type for by in query.group)
    return Grouping(keys, figures, contribution, row), program, names


def _figure(part: Aggregate) -> GroupFigure:
    kept: Kept = "different" if part.distinct and part.name == "count" else _KEPT[part.name]
    return GroupFigure(kept, part.args[0].type if part.args else part.type)


def _aggregates(query: Select) -> list[Aggregate]:
    found: dict[Any, Aggregate] = {}
    for expression in (*(e for _, e in query.outputs), *query.having):
        for part in walk(expression):
            if isinstance(part, Aggregate):
                found.setdefault(part, part)
    return list(found.values())


def _output(text: ViewText, query: Select, by: Expr) -> str:
    wanted = shape(by)
    name = next((name for name, e in query.outputs if shape(e) == wanted), None)
    if name is None:
        raise text.refused("a column of GROUP BY is not among the view's", by.location, hint="it is in the group's key")
    return name


def _refuse_keys(text: ViewText, query: Select) -> None:
    for by in query.group:
        if by.type.array or by.type.group not in _KEYS or (by.type.group is Group.NUMERIC and by.type.scale is None):
            hint = "numeric(p, s) has one text for each value" if by.type.group is Group.NUMERIC else ""
            raise text.refused(f"a group's key is not of type {by.type}", by.location, hint=hint)
        if not _never_null(by, query):
            hint = "add WHERE … IS NOT NULL, or COALESCE: a key has no NULL"
            raise text.refused("a column of GROUP BY may be NULL", by.location, hint=hint)


def _never_null(by: Expr, query: Select) -> bool:
    if isinstance(by, Const):
        return by.value is not None
    if isinstance(by, Choice):
        return any(_never_null(arg, query) for arg in by.args)
    said = [c for condition in query.where for c in conjuncts(condition)]
    if any(isinstance(c, IsNull) and c.negated and shape(c.arg) == shape(by) for c in said):
        return True
    if isinstance(by, Col):
        base = base_column(by)
        return base is not None and _not_null(base[0], base[1]) and not _outer(base[0], query)
    parts = by.parts()
    return bool(parts) and getattr(by, "strict", False) and all(_never_null(part, query) for part in parts)


def _not_null(source: Source, column: str) -> bool:
    if source.table is None:
        return False
    return any(c.name == column and (not c.nullable or c.key_position is not None) for c in source.table.columns)


def _outer(source: Source, query: Select) -> bool:
    """Whether an outer join may leave a source out."""

    def within(table: FromItem | Join, outer: bool) -> bool:
        if isinstance(table, FromItem):
            return outer and table.source is source
        return within(table.left, outer) or within(table.right, outer or table.left_outer)

    return any(within(table, False) for table in query.tables) or source not in query.sources()
