"""A masked column in a view: its value may be carried, and equal HMACs tie tables. Nothing else is computed of it.

A view computes what Postgres would, and Postgres has the plain value.
"""

from __future__ import annotations

from cdc.schema import Mask
from cdc.views.syntax import ViewText
from cdc.views.term_walks import base_column
from cdc.views.terms import Aggregate, ArrayOf, Compare, Expr, JsonArray, JsonObject, Select, ToJson

_CARRYING = ("json_agg", "jsonb_agg", "array_agg")
_HMAC = "hmac:"
_HINT = "a masked column may be selected as it is, and columns masked by hmac may be compared by ="


def refuse_masked(text: ViewText, query: Select) -> None:
    """:class:`cdc.views.refused.ViewRefused`, with the column's place, for an expression over a masked column."""
    outputs = [expression for _, expression in query.outputs]
    for output in outputs:
        # Rows that are set side by side, as those of a group, are equal where their HMACs are.
        _check(text, output, carried=not query.distinct or _is_hmac(output))
    for by in query.group:
        _check(text, by, carried=_is_hmac(by))
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


def mask_of(expression: Expr) -> Mask | None:
    """The mask of the column that an expression is. None where it is another expression, or has no mask."""
    found = base_column(expression)
    if found is None or found[0].table is None:
        return None
    return next((column.mask for column in found[0].table.columns if column.name == found[1]), None)


def _is_hmac(expression: Expr) -> bool:
    mask = mask_of(expression)
    return mask is not None and mask.rule.startswith(_HMAC)


def _check(text: ViewText, expression: Expr, *, carried: bool) -> None:
    mask = mask_of(expression)
    if mask is not None and not carried:
        name = (base_column(expression) or (None, ""))[1]
        raise text.refused(f"{name} is masked, and a view computes nothing of it", expression.location, hint=_HINT)
    if mask is not None or _ties(expression):
        return
    carrying = _carrying(expression)
    for part in expression.parts():
        _check(text, part, carried=any(part is one for one in carrying))
    for query in expression.queries():
        refuse_masked(text, query)


def _ties(expression: Expr) -> bool:
    """Whether it says that two HMACs of one key are equal."""
    if not isinstance(expression, Compare) or expression.op != "=":
        return False
    left, right = mask_of(expression.left), mask_of(expression.right)
    return left is not None and right is not None and left.rule == right.rule and left.rule.startswith(_HMAC)


def _carrying(expression: Expr) -> list[Expr]:
    """The parts of which the values stand in the result as they are."""
    match expression:
        case JsonObject(members=members):
            return [value for _, value in members]
        case JsonArray(items=items) | ArrayOf(items=items):
            return list(items)
        case ToJson(arg=arg):
            return [arg]
        case Aggregate(name=name, args=args, distinct=False) if name in _CARRYING:
            return list(args)
        case _:
            return []
