"""A view whose rows are groups: ``select … group by …`` over a driving table and what each of its rows is tied to.

Each row of the driving table contributes to one group: the values of the group's columns, and a value for each
aggregate. A change subtracts the old contribution and adds the new one. Sums are exact: how many values have which
scale is kept, so that a sum has the scale that Postgres gives it. Without GROUP BY there is one group, always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cdc.views.aggregating import gathering
from cdc.views.calls import ORDER_MATTERS
from cdc.views.compiling import Program, _Code, _Compiling
from cdc.views.expression_source import Emitter
from cdc.views.join_order import Arranged
from cdc.views.sql_types import TEXT, Group, SqlType
from cdc.views.stored_values import Ordered
from cdc.views.syntax import ViewText
from cdc.views.term_walks import base_column, conjuncts, shape, walk
from cdc.views.terms import (
    Aggregate,
    Col,
    Compare,
    Const,
    Expr,
    From,
    FunctionCall,
    Join,
    Select,
    Source,
    Subquery,
    WholeRow,
)

Kept = Literal["count", "different", "sum", "average", "least", "greatest", "all", "any", "first", "listed", "alike"]
"""How an aggregate is kept: by counts and sums, or by the order of its values or rows. ``listed``: from all of them.
``alike``: no aggregate, but a value that is the same in all rows of a group."""
PAIR = SqlType("pair")
"""What has no type in SQL: two values that an aggregate takes from each row."""

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
    """One aggregate of a grouped view. ``kind``: of the values that it takes. ``order``: in which it takes rows.

    ``gather``: makes it of the values of all rows, where it is listed.
    """

    kept: Kept
    kind: SqlType
    order: tuple[Ordered, ...] = ()
    gather: Callable[[list[Any]], Any] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Grouping:
    """``keys``: types of the group's columns, in the order of the view's key.

    ``contribution``: a row of the driving table to the values of its group and those of the figures, none where WHERE
    leaves it out. ``row``: both, the figures computed, to the view's row on the wire, None where HAVING leaves it out.
    ``having``: whether there is one.
    """

    keys: tuple[SqlType, ...]
    figures: tuple[GroupFigure, ...]
    contribution: Contribution = field(compare=False)
    row: GroupRow = field(compare=False)
    having: bool = field(default=False, compare=False)


def grouping(text: ViewText, query: Select, plan: Arranged, root: Source) -> tuple[Grouping, Program, tuple[str, ...]]:
    """How a grouped view is kept, its program, and the names of the view's columns that are its key."""
    keys = _keys(text, query)
    aggregates = _aggregates(query)
    for part in aggregates:
        if part.distinct and part.name in ("sum", "avg"):
            hint = "a subquery may hold it"
            raise text.refused(f"{part.name}(distinct …) of groups is not kept", part.location, hint=hint)
        if part.distinct and (part.order or not all(isinstance(arg, Const) for arg in part.args[1:])):
            hint = "DISTINCT stands without ORDER BY, and with a delimiter that is a constant"
            raise text.refused(f"{part.name}(distinct …) of this form is not kept", part.location, hint=hint)
        if part.name in ORDER_MATTERS and not (part.order or part.distinct):
            hint = f"{part.name}(… order by …), which ends with the key of the rows"
            raise text.refused(f"{part.name} of groups needs an order", part.location, hint=hint)
    alike = _alike(text, query, [shape(by) for by in keys.values()])
    program, contribution, row = compiled_contribution(text, plan, root, list(keys.values()), [*aggregates, *alike])
    figures = tuple(map(_figure, [*aggregates, *alike]))
    kinds = tuple(by.type for by in keys.values())
    return Grouping(kinds, figures, contribution, row, bool(query.having)), program, tuple(keys)


def _figure(part: Expr) -> GroupFigure:
    if not isinstance(part, Aggregate):
        return GroupFigure("alike", part.type)
    kind = part.args[0].type if part.args else part.type
    if part.name not in ORDER_MATTERS:
        return GroupFigure("different" if part.distinct and part.name == "count" else _KEPT[part.name], kind)
    order = tuple(Ordered(sort.by.type, sort.descending, sort.nulls_first) for sort in part.order)
    if part.name == "first":
        return GroupFigure("first", kind, order)
    if not part.distinct:
        kind = PAIR if len(part.args) == 2 else kind if part.name == "array_agg" else TEXT
    return GroupFigure("listed", kind, order, gathering(part))


def _said(query: Select) -> Iterator[Expr]:
    """The expressions of a group's row."""
    yield from (expression for _, expression in query.outputs)
    yield from query.having


def _aggregates(query: Select) -> list[Aggregate]:
    parts = (part for expression in _said(query) for part in walk(expression))
    return list(dict.fromkeys(part for part in parts if isinstance(part, Aggregate)))


def _alike(text: ViewText, query: Select, keys: list[Any]) -> list[Expr]:
    """The columns of a group that are neither key nor aggregate: they follow from the key."""
    found: dict[Any, Expr] = {}

    def visit(part: Expr) -> None:
        if isinstance(part, Aggregate) or shape(part) in keys:
            return
        if isinstance(part, WholeRow):
            raise text.refused("a whole row does not stand beside a group", part.location, hint="name its columns")
        if isinstance(part, Col | Subquery):
            found.setdefault(shape(part), part)
            return
        for inner in part.parts():
            visit(inner)

    for expression in _said(query):
        visit(expression)
    return list(found.values())


def _keys(text: ViewText, query: Select) -> dict[str, Expr]:
    """The columns of the view that are its key. A column of GROUP BY that is none of them has to follow from them."""
    keys: dict[str, Expr] = {}
    hidden: list[Expr] = []
    for by in query.group:
        wanted = shape(by)
        name = next((name for name, e in query.outputs if shape(e) == wanted), None)
        if name is None:
            hidden.append(by)
        else:
            keys.setdefault(name, by)
            _refuse_key(text, by)
    known = _following(query, keys.values())
    for by in hidden:
        if base_column(by) not in known:
            hint = "select it: it is in the group's key, and does not follow from the other columns of it"
            raise text.refused("a column of GROUP BY is not among the view's", by.location, hint=hint)
    return keys


def _refuse_key(text: ViewText, by: Expr) -> None:
    hint = _several_texts(by)
    if by.type.array or by.type.group not in _KEYS or hint:
        raise text.refused(f"a group's key is not of type {by.type}", by.location, hint=hint)


def _several_texts(by: Expr) -> str:
    """A hint where equal values may have several texts, of which Postgres chooses one. Empty where they have
    one."""
    if by.type.group is Group.NUMERIC and by.type.scale is None:
        one = isinstance(by, FunctionCall) and by.one_scale
        return "" if one else "numeric(p, s) has one text for each value, and so have round(…, 2) and extract"
    blanks = by.type.kind == "bpchar" and by.type.typmod < 0
    return "cast it to text: char(n) of no one length has as many blanks as it came with" if blanks else ""


def _following(query: Select, keys: Iterable[Expr]) -> set[tuple[Source, str] | None]:
    """Columns that have one value for each value of the keys: those of a row whose key is known, and what equals."""
    known: set[tuple[Source, str] | None] = {base_column(by) for by in keys}
    equal = [pair for condition in _inner_conditions(query) if (pair := _equal_columns(condition)) is not None]
    before = -1
    while before != len(known):
        before = len(known)
        for source in query.sources():
            if source.key and all((source, column) in known for column in source.key):
                known |= {(source, column) for column, _ in source.columns}
        for one, other in equal:
            if one in known or other in known:
                known |= {one, other}
    return known - {None}


def _equal_columns(condition: Expr) -> tuple[tuple[Source, str], tuple[Source, str]] | None:
    if not isinstance(condition, Compare) or condition.op != "=" or condition.distinct:
        return None
    one, other = base_column(condition.left), base_column(condition.right)
    kinds = {condition.left.type.group, condition.right.type.group}
    # Equal numerics may have two texts.
    return None if one is None or other is None or kinds & {Group.NUMERIC, Group.FLOAT} else (one, other)


def _inner_conditions(query: Select) -> Iterator[Expr]:
    """The conditions that hold in each row."""

    def within(table: From) -> Iterator[Expr]:
        if isinstance(table, Join):
            yield from within(table.left)
            if not table.left_outer:
                yield from within(table.right)
                yield from table.on

    for table in query.tables:
        yield from within(table)
    for condition in query.where:
        yield from conjuncts(condition)


Contributed = Sequence[tuple[tuple[Any, ...], tuple[Any, ...]]]
"""What one driving row contributes: the values of its group and those of the figures, for each of its groups."""
Contribution = Callable[[tuple[Any, ...]], Contributed]
GroupRow = Callable[[tuple[Any, ...], tuple[Any, ...]], "str | None"]


def compiled_contribution(
    text: ViewText, plan: Arranged, root: Source, keys: Sequence[Expr], figures: Sequence[Expr]
) -> tuple[Program, Contribution, GroupRow]:
    """The program of a grouped view: what a row of ``root`` contributes, and a group's row from the figures.

    Its ``document`` is the contribution.

    ``figures``: aggregates, and expressions that are alike in all rows of a group.
    """
    return _Contributing(text).contribution(plan, root, keys, figures)


class _Contributing(_Compiling):
    def contribution(
        self, plan: Arranged, root: Source, keys: Sequence[Expr], figures: Sequence[Expr]
    ) -> tuple[Program, Contribution, GroupRow]:
        """See :func:`compiled_contribution`."""
        code = _Code()
        emitter = self._emitter()
        code.add("out = []")
        code.add("for _ in (0,):")
        code.depth += 1
        for condition in [*plan.first, *plan.steps[0].filters]:
            code.add(f"if not {emitter.truth(condition)}: continue")
        self._walk(plan.steps[1:], emitter, code)
        group = "".join(f"{emitter.value(by)}, " for by in keys)
        values = "".join(f"{self._contributed(emitter, part)}, " for part in figures)
        code.add(f"out.append((({group}), ({values})))")
        code.depth = 1
        code.add("return out")
        body = "\n".join([f"def contribution(r{root.number}):", *code.lines])
        source = "\n\n".join([*self._space.functions, body, self._group_row(plan.query, keys, figures)]) + "\n"
        names = dict(self._space.names)
        exec(compile(source, "<view>", "exec"), names)
        program = Program(names["contribution"], self._lookups, tuple(self._fetches), source)
        return program, names["contribution"], names["group_row"]

    def _contributed(self, emitter: Emitter, part: Expr) -> str:
        """The source of a row's contribution to a figure: NULL for what it leaves out, 1 where rows are counted.

        Where the order of rows counts: the values to order by, and the value.
        """
        if not isinstance(part, Aggregate):
            return emitter.value(part)
        value = self._argument(part, emitter) if part.args else "1"
        if part.name in ORDER_MATTERS:
            keys = "".join(f"{emitter.value(sort.by)}, " for sort in part.order)
            value = f"(({keys}), {value})"
        return value if part.filter is None else f"({value} if {emitter.truth(part.filter)} else None)"

    def _group_row(self, query: Select, keys: Sequence[Expr], figures: Sequence[Expr]) -> str:
        emitter = self._emitter()
        emitter.shape_of = shape
        for number, by in enumerate(keys):
            emitter.shapes[shape(by)] = f"key[{number}]"
        for number, part in enumerate(figures):
            if isinstance(part, Aggregate):
                emitter.replaced[part] = f"figures[{number}]"
            else:
                emitter.shapes[shape(part)] = f"figures[{number}]"
        lines = ["def group_row(key, figures):"]
        lines += [f"    if not {emitter.truth(condition)}: return None" for condition in query.having]
        lines.append(f"    return {self._row(query, emitter)}")
        return "\n".join(lines)
