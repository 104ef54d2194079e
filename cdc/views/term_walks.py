"""Questions about terms: what an expression needs, which column it is, whether two are written alike, and whether one
computes with a masked column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from cdc.record.schema import TableSchema
from cdc.views.sql_types import BOOL, Group, SqlType
from cdc.views.syntax import ViewText
from cdc.views.terms import (
    Aggregate,
    ArrayOf,
    Case,
    Col,
    Collated,
    Compare,
    Const,
    Expr,
    FunctionCall,
    JsonArray,
    JsonObject,
    Logic,
    Select,
    Source,
    Subquery,
    ToJson,
    WholeRow,
)
from cdc.wire.types import EXACT_KINDS, INTEGERS


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


# A masked column in a view: its value may be carried, and equal HMACs tie tables. Nothing else is computed of it.
#
# A view computes what Postgres would, and Postgres has the plain value. A value is tainted where a masked column is,
# or is in it: a row, JSON or an array that a query below carries keeps the taint. So it may stand in the view's
# columns, and in JSON and arrays that are made of values, and nowhere else.

_CARRYING = ("json_agg", "jsonb_agg", "array_agg")
_HMAC = "hmac:"
_HINT = (
    "a masked column may be selected as it is, and columns masked by hmac may be compared by =, where they have one "
    "type of which equal values have one text; a view that was kept before the mask still has what it computed, in its "
    "topic and stores, until it is dropped and they are rebuilt"
)


class Taint(NamedTuple):
    """``name``: of the masked column. ``rule``: its mask where the value is the column's, empty where it is within.
    ``location``: of the expression in the text. ``text_of``: what the values' texts were of, empty where equal values
    may have several texts, as 1.0 and 1.00 have."""

    name: str
    rule: str
    location: int
    text_of: str = ""

    @property
    def by_hmac(self) -> bool:
        """Whether the value is an HMAC, and those of equal values are equal."""
        return self.rule.startswith(_HMAC) and bool(self.text_of)


def refuse_masked(text: ViewText, query: Select) -> None:
    """:class:`cdc.views.syntax.ViewRefused`, with the column's place, for an expression over a masked column."""
    outputs = [expression for _, expression in query.outputs]
    for output in outputs:
        # Rows that are set side by side, as those of a group, are equal where their HMACs are.
        _check(text, output, carried=not query.distinct or _by_hmac(output))
    for by in query.group:
        _check(text, by, carried=_by_hmac(by))
    for by in (*query.distinct_on, *(sort.by for sort in query.order)):
        _check(text, by, carried=False)
    # A number or a name in a clause is the column's own expression.
    done = {id(expression) for expression in (*outputs, *query.group)}
    for expression in query.expressions():
        if id(expression) not in done:
            _check(text, expression, carried=False)
    for source in query.sources():
        if source.query is not None:
            refuse_masked(text, source.query)


def taint_of(expression: Expr) -> Taint | None:
    """The masked column that the value is, or that is in it. None for a value without any."""
    match expression:
        case FunctionCall(same_value=True, args=(arg,)):
            return taint_of(arg)
        case Col(source=source, name=name, location=location):
            return _column(source, name, location)
        case WholeRow(source=source, location=location):
            return _within((_column(source, name, location) for name, _ in source.columns), location)
        case Subquery(form="scalar", query=query, location=location):
            found = taint_of(query.outputs[0][1])
            return found if found is None or location < 0 else found._replace(location=location)
        case Subquery(form="array", query=query, location=location):
            return _within((taint_of(output) for _, output in query.outputs), location)
        case _:
            return _within(map(taint_of, _carrying(expression)), expression.location)


def _column(source: Source, name: str, location: int) -> Taint | None:
    if source.table is not None:
        masks = source.table.noted_masks
        return Taint(name, masks[name], location, _text_of(source.table, name)) if name in masks else None
    if source.query is None:
        return None
    found = next((taint_of(output) for column, output in source.query.outputs if column == name), None)
    return None if found is None else found._replace(name=name if found.rule else found.name, location=location)


def _text_of(table: TableSchema, name: str) -> str:
    """Of types that compare with each other and print a value alike it is the same."""
    mask = next((column.mask for column in table.columns if column.name == name), None)
    if mask is None or mask.array or mask.kind not in EXACT_KINDS:
        return ""
    return {**dict.fromkeys(INTEGERS, "integer"), "varchar": "text"}.get(mask.kind, mask.kind)


def _within(taints: Iterable[Taint | None], location: int) -> Taint | None:
    found = next((taint for taint in taints if taint is not None), None)
    return None if found is None else Taint(found.name, "", location if location >= 0 else found.location)


def _by_hmac(expression: Expr) -> bool:
    taint = taint_of(expression)
    return taint is not None and taint.by_hmac


def _check(text: ViewText, expression: Expr, *, carried: bool) -> None:
    taint = taint_of(expression)
    if taint is not None and not carried:
        raise text.refused(f"{taint.name} is masked, and a view computes nothing of it", taint.location, hint=_HINT)
    if _ties(expression):
        # A side may compute all the same: it may be a scalar subquery, or a cast of one.
        for part in expression.parts():
            _check(text, part, carried=True)
    else:
        carrying = _carrying(expression)
        for place, part in enumerate(expression.parts()):
            _check(text, part, carried=_is_carried(expression, place, part, carrying))
        if isinstance(expression, Subquery) and expression.form == "in":
            for _, output in expression.query.outputs:
                _check(text, output, carried=False)
    for query in expression.queries():
        refuse_masked(text, query)


def _ties(expression: Expr) -> bool:
    """Whether it says that two HMACs of one key are equal."""
    match expression:
        case Compare(op="=", left=left, right=right):
            return _equal_hmacs(left, right)
        case Subquery(form="in", arg=arg, query=query, negated=False) if arg is not None:
            return _equal_hmacs(arg, query.outputs[0][1])
        case _:
            return False


def _equal_hmacs(left: Expr, right: Expr) -> bool:
    one, other = taint_of(left), taint_of(right)
    if one is None or other is None or not one.by_hmac:
        return False
    return (one.rule, one.text_of) == (other.rule, other.text_of)


def _is_carried(expression: Expr, place: int, part: Expr, carrying: Sequence[Expr]) -> bool:
    if isinstance(expression, Aggregate):
        # The text may sort or filter by the very expression that it carries.
        return bool(carrying) and place < len(expression.args)
    return any(part is one for one in carrying)


def _carrying(expression: Expr) -> Sequence[Expr]:
    """The parts of which the values stand in the result as they are."""
    match expression:
        case FunctionCall(same_value=True, args=args):
            return args
        case JsonObject(members=members):
            return [value for _, value in members]
        case JsonArray(items=items) | ArrayOf(items=items):
            return items
        case ToJson(arg=arg):
            return [arg]
        case Aggregate(name=name, args=args, distinct=False) if name in _CARRYING:
            return args
        case _:
            return []
