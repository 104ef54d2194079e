"""Questions about terms: what an expression needs, which column it is, whether two are written alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from cdc.views.sql_types import BOOL, Group, SqlType
from cdc.views.terms import (
    Case,
    Col,
    Collated,
    Compare,
    Const,
    Expr,
    FunctionCall,
    Logic,
    Select,
    Source,
    Subquery,
    WholeRow,
)


def walk(expression: Expr) -> Iterator[Expr]:
    """An expression and all in it, those of subqueries left out."""
    yield expression
    for part in expression.parts():
        yield from walk(part)


def references(expression: Expr) -> set[Source]:
    """The sources whose rows an expression needs: those outside of its subqueries."""
    found: set[Source] = set()
    for part in walk(expression):
        if isinstance(part, Col | WholeRow):
            found.add(part.source)
        for query in part.queries():
            found |= outer_references(query)
    return found


def outer_references(query: Select) -> set[Source]:
    """The sources outside of a query that it needs."""
    found: set[Source] = set()
    for expression in query.expressions():
        found |= references(expression)
    own = query.sources()
    for source in own:
        if source.query is not None:
            found |= outer_references(source.query)
    return found - set(own)


def base_column(expression: Expr) -> tuple[Source, str] | None:
    """The table and the column that an expression is, looking through queries in a FROM. None where it is another."""
    while isinstance(expression, FunctionCall) and expression.same_value:
        (expression,) = expression.args
    while isinstance(expression, Col):
        query = expression.source.query
        if query is None:
            return (expression.source, expression.name) if expression.source.table is not None else None
        name = expression.name
        expression = next(output for column, output in query.outputs if column == name)
    return None


def conjuncts(expression: Expr) -> list[Expr]:
    """The parts of a condition that all have to hold."""
    if isinstance(expression, Logic) and expression.op == "and":
        return [part for arg in expression.args for part in conjuncts(arg)]
    return [expression]


def as_exists(condition: Expr) -> Expr:
    """A condition of WHERE or ON, with ``x in (select y …)`` as EXISTS: what is not true may be false or NULL there."""
    if not isinstance(condition, Subquery) or condition.form != "in" or condition.arg is None:
        return condition
    query = condition.query
    output = query.outputs[0][1]
    if query.grouped or query.limit is not None or query.offset or query.distinct_on:
        return condition
    equal = Compare(type=BOOL, op="=", left=output, right=condition.arg)
    query.where.append(equal)
    return replace(condition, form="exists", arg=None)


def literal(value: Any, kind: SqlType, location: int = -1) -> Const:
    """A constant."""
    return Const(type=kind, value=value, location=location)


def everything_of(source: Source, location: int) -> list[tuple[str, Expr]]:
    """``source.*``"""
    return [(name, source.column(name, location)) for name, _ in source.columns]


def of_collation_c(expression: Expr) -> bool:
    """A collation comes from the texts that a text is made of, not from the conditions in it."""
    if isinstance(expression, Collated):
        return True
    if isinstance(expression, Case):
        return any(map(of_collation_c, (*(result for _, result in expression.whens), expression.default)))
    return expression.type.group is Group.TEXT and any(map(of_collation_c, expression.parts()))


def shape(expression: Expr) -> Any:
    """Equal for two expressions that are written alike. Subqueries are equal to nothing else."""
    if isinstance(expression, Col):
        return ("column", expression.source.number, expression.name)
    if isinstance(expression, WholeRow):
        return ("row", expression.source.number)
    if isinstance(expression, Const):
        return ("constant", expression.type, expression.value)
    if expression.queries():
        return ("query", id(expression))
    # Neither parts nor locations: operators, names, values, flags.
    own = [getattr(expression, f.name) for f in fields(expression) if f.name not in ("location", "type")]
    said = tuple(value for value in own if isinstance(value, str | bool | None) or callable(value))
    return (type(expression).__name__, said, tuple(map(shape, expression.parts())))
