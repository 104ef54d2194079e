"""Expressions of a SELECT, from the tree of Postgres's grammar to typed terms.

A handler per kind of node. Functions, aggregates and subqueries have a module of their own (:mod:`cdc.views.calls`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

from cdc.views.calendar_days import negated
from cdc.views.conversions import chosen_type, coerced, common_type, comparable, named_type
from cdc.views.decimals import numeric_of
from cdc.views.functions import Signature, arithmetic, signature
from cdc.views.sql_types import BOOL, INT4, INT8, NUMERIC, TEXT, UNKNOWN, Group, SqlType
from cdc.views.syntax import (
    Catalog,
    NameScope,
    Node,
    Numbered,
    ViewText,
    column,
    names_column,
    texts,
    unwrapped,
    whole_row,
)
from cdc.views.term_walks import literal, of_collation_c
from cdc.views.terms import (
    ArrayOf,
    Case,
    Choice,
    Collated,
    Compare,
    Const,
    Expr,
    FunctionCall,
    InList,
    IsNull,
    IsTruth,
    Logic,
    Select,
    WholeRow,
)

_TIMES_COMPARED = (Group.DATE, Group.TIMESTAMP, Group.TIMESTAMPTZ)
_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
_JSON_OPS = ("->", "->>", "#>", "#>>", "?")


@dataclass(slots=True)
class Resolving:
    """The context that all parts of the resolution share. ``select``: resolves a subquery. ``notes``: what ``check``
    says."""

    text: ViewText
    catalog: Catalog
    numbered: Numbered
    select: Callable[[Node, NameScope], Select]
    handlers: dict[str, Callable[[Resolving, Node, NameScope], Expr]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def expression(self, node: Node, reach: NameScope) -> Expr:
        """A node as a term. :class:`cdc.views.syntax.ViewRefused` for what a view may not hold."""
        kind, inner = unwrapped(node)
        handler = self.handlers.get(kind) or _HANDLERS.get(kind)
        if handler is None:
            word = _WORDS.get(kind, kind.replace("_", " "))
            place = getattr(inner, "location", -1)
            raise self.text.refused(f"a view may not hold {word}", place, hint=_HINTS.get(kind, ""))
        return handler(self, inner, reach)

    def condition(self, node: Node, reach: NameScope) -> Expr:
        """A node that has to be a condition."""
        return coerced(self.text, self.expression(node, reach), BOOL)

    def collated(self, expression: Expr) -> bool:
        """Whether its text is of the collation C."""
        if self.catalog.collation == "C" or expression.type.kind == "name":
            return True
        return of_collation_c(expression)

    def noted(self, note: str) -> None:
        """Remember what the person who checks the view should know."""
        if note not in self.notes:
            self.notes.append(note)


_WORDS = {
    "sqlvalue_function": "what answers otherwise each time",
    "param_ref": "a parameter",
    "grouping_func": "grouping()",
    "row_expr": "a row constructor",
    "xml_expr": "XML functions",
    "set_to_default": "DEFAULT",
    "json_func_expr": "SQL/JSON functions",
    "json_object_constructor": "SQL/JSON constructors",
    "json_array_constructor": "SQL/JSON constructors",
    "json_object_agg": "SQL/JSON constructors",
    "json_array_agg": "SQL/JSON constructors",
}
_HINTS = {
    "sqlvalue_function": "its answer changes without a change of a row; let the reader compare with the time",
    "json_object_constructor": "write json_build_object(...)",
    "json_array_constructor": "write json_build_array(...)",
    "json_object_agg": "write json_object_agg(...)",
    "json_array_agg": "write json_agg(...)",
}


def _column_ref(on: Resolving, node: Node, reach: NameScope) -> Expr:
    kind, _ = unwrapped(node.fields[-1])
    if kind == "a_star":
        raise on.text.refused("* stands in the list of columns alone", node.location)
    parts = texts(node.fields)
    if len(parts) == 1:
        source = reach.by_alias(parts[0])
        if source is not None and not names_column(reach, parts[0]):
            return whole_row(on.text, source, node.location)
    return column(on.text, reach, parts, node.location)


def _constant(on: Resolving, node: Node, _: NameScope) -> Expr:
    kind = node.WhichOneof("val")
    if node.isnull or kind is None:
        return literal(None, UNKNOWN, node.location)
    if kind == "ival":
        return literal(node.ival.ival, INT4, node.location)
    if kind == "boolval":
        return literal(node.boolval.boolval, BOOL, node.location)
    if kind == "sval":
        return literal(node.sval.sval, UNKNOWN, node.location)
    if kind == "fval":
        return _number(node.fval.fval, node.location)
    raise on.text.refused("a view may not hold a bit string", node.location)


def _number(written: str, location: int) -> Const:
    digits = written.lstrip("0") or "0"
    # Python reads no integer of thousands of digits.
    if written.isdecimal() and len(digits) < 20 and int(digits) < 2**63:
        return literal(int(digits), INT8, location)
    return literal(numeric_of(written), NUMERIC, location)


def _type_cast(on: Resolving, node: Node, reach: NameScope) -> Expr:
    name = node.type_name
    modifiers = [n.a_const.ival.ival for n in name.typmods]
    target = named_type(on.text, texts(name.names), modifiers, bool(name.array_bounds), name.location)
    arg = on.expression(node.arg, reach)
    if {arg.type.group, target.group} == {Group.TIMESTAMP, Group.TIMESTAMPTZ} or (
        arg.type.group is Group.TIMESTAMPTZ and target.group in (Group.DATE, Group.TIME, Group.TEXT)
    ):
        on.noted("it depends on the time zone, which is UTC for a view; `at time zone 'UTC'` says so in the text")
    if isinstance(arg, Collated):
        cast = coerced(on.text, arg.arg, target)
        return replace(arg, type=target, arg=cast) if target.group is Group.TEXT else cast
    return coerced(on.text, arg, target, node.location if node.location >= 0 else arg.location)


def _collate(on: Resolving, node: Node, reach: NameScope) -> Expr:
    name = texts(node.collname)[-1]
    if name not in ("C", "POSIX"):
        raise on.text.refused(f"the collation {name} is known to Postgres alone", node.location, hint='collate "C"')
    arg = on.expression(node.arg, reach)
    arg = coerced(on.text, arg, TEXT) if arg.type.kind == "unknown" else arg
    return Collated(type=arg.type, arg=arg, location=node.location)


def _bool_expr(on: Resolving, node: Node, reach: NameScope) -> Expr:
    ops: dict[int, Literal["and", "or", "not"]] = {1: "and", 2: "or", 3: "not"}
    args = tuple(on.condition(arg, reach) for arg in node.args)
    return Logic(type=BOOL, op=ops[node.boolop], args=args, location=node.location)


def _null_test(on: Resolving, node: Node, reach: NameScope) -> Expr:
    arg = on.expression(node.arg, reach)
    if isinstance(arg, WholeRow):
        raise on.text.refused("a view does not ask whether a whole row is null", node.location, hint="ask for its key")
    return IsNull(type=BOOL, arg=arg, negated=node.nulltesttype == 2, location=node.location)


def _boolean_test(on: Resolving, node: Node, reach: NameScope) -> Expr:
    value, negated = [(True, False), (True, True), (False, False), (False, True), (None, False), (None, True)][
        node.booltesttype - 1
    ]
    arg = on.condition(node.arg, reach)
    return IsTruth(type=BOOL, arg=arg, value=value, negated=negated, location=node.location)


def _case(on: Resolving, node: Node, reach: NameScope) -> Expr:
    subject = on.expression(node.arg, reach) if node.HasField("arg") else None
    whens: list[tuple[Expr, Expr]] = []
    for wrapped in node.args:
        when = wrapped.case_when
        test = on.condition(when.expr, reach) if subject is None else None
        if subject is not None:
            test = compared(on, "=", subject, on.expression(when.expr, reach), when.location)
        assert test is not None
        whens.append((test, on.expression(when.result, reach)))
    default = on.expression(node.defresult, reach) if node.HasField("defresult") else literal(None, UNKNOWN)
    kind = chosen_type(on.text, [default, *(result for _, result in whens)], node.location)
    return Case(
        type=kind,
        whens=tuple((test, coerced(on.text, result, kind)) for test, result in whens),
        default=coerced(on.text, default, kind),
        location=node.location,
    )


def _choice(name: Literal["coalesce", "greatest", "least"]) -> Callable[[Resolving, Node, NameScope], Expr]:
    def handler(on: Resolving, node: Node, reach: NameScope) -> Expr:
        said = name if name == "coalesce" or node.op == 1 else "least"
        args = [on.expression(arg, reach) for arg in node.args]
        kind = chosen_type(on.text, args, node.location)
        if said != "coalesce":
            collated = any(on.collated(arg) for arg in args)
            comparable(on.text, kind, node.location, ordered=True, collated=collated)
        return Choice(
            type=kind, name=said, args=tuple(coerced(on.text, arg, kind) for arg in args), location=node.location
        )

    return handler


def _array(on: Resolving, node: Node, reach: NameScope) -> Expr:
    items = [on.expression(item, reach) for item in node.elements]
    kind = chosen_type(on.text, items, node.location)
    if kind.array:
        raise on.text.refused("a view does not make arrays of arrays", node.location)
    coerced_items = tuple(coerced(on.text, item, kind) for item in items)
    return ArrayOf(type=kind.array_of(), items=coerced_items, location=node.location)


def compared(on: Resolving, op: str, left: Expr, right: Expr, location: int, distinct: bool = False) -> Compare:
    """A comparison, both sides brought to one type."""
    op = "<>" if op == "!=" else op
    kind = common_type(on.text, (left, right), location)
    ordered = op not in ("=", "<>")
    comparable(on.text, kind, location, ordered=ordered, collated=on.collated(left) or on.collated(right))
    if {left.type.group, right.type.group} == {Group.TIMESTAMP, Group.TIMESTAMPTZ}:
        on.noted("it compares a timestamp with a timestamptz in the time zone of a view, which is UTC")
    return Compare(
        type=BOOL,
        op=op,
        left=coerced(on.text, left, kind),
        right=coerced(on.text, right, kind),
        distinct=distinct,
        location=location,
    )


def called(on: Resolving, found: Signature, args: list[Expr], location: int) -> FunctionCall:
    """A function of its arguments, each cast to what the signature says."""
    if found.collated and not any(on.collated(arg) for arg in args):
        hint = 'write collate "C" behind the text: other collations have letters that only Postgres knows'
        raise on.text.refused(f"{found.name} depends on the collation", location, hint=hint)
    if found.zoned:
        on.noted(f"{found.name} of a timestamptz depends on the time zone, which is UTC for a view")
    cast = tuple(coerced(on.text, arg, SqlType(kind)) for arg, kind in zip(args, found.args, strict=True))
    return FunctionCall(type=SqlType(found.result), function=found.function, args=cast, location=location)


def _operator(on: Resolving, op: str, left: Expr, right: Expr, location: int) -> Expr:
    if op in _COMPARISONS:
        return compared(on, op, left, right, location)
    if op in ("+", "-", "*", "/", "%"):
        found = arithmetic(op, left.type, right.type)
    elif op == "||" and not (left.type.array or right.type.array) and "jsonb" not in (left.type.kind, right.type.kind):
        return _concatenated(on, left, right, location)
    else:
        found = signature(op, [left.type, right.type])
    if found is None:
        hint = "" if op in _JSON_OPS else "operators of a view: + - * / % || -> ->> #> #>> ? like and the comparisons"
        reason = f"a view has no operator {op} for {left.type} and {right.type}"
        raise on.text.refused(reason, location, word=op, hint=hint)
    return called(on, found, [left, right], location)


def _concatenated(on: Resolving, left: Expr, right: Expr, location: int) -> Expr:
    if Group.TEXT not in (left.type.group, right.type.group) and "unknown" not in (left.type.kind, right.type.kind):
        raise on.text.refused(f"a view has no operator || for {left.type} and {right.type}", location, word="||")
    args = (coerced(on.text, left, TEXT), coerced(on.text, right, TEXT))
    return FunctionCall(type=TEXT, function=str.__add__, args=args, location=location)


def _negative(on: Resolving, arg: Expr, location: int) -> Expr:
    if isinstance(arg, Const) and isinstance(arg.value, int | Decimal):
        return replace(arg, value=-arg.value)
    if arg.type.group in (Group.FLOAT, Group.INTERVAL):
        function = negated if arg.type.group is Group.INTERVAL else float.__neg__
        return FunctionCall(type=arg.type, function=function, args=(arg,), location=location)
    found = arithmetic("-", arg.type, arg.type) if arg.type.kind != "unknown" else None
    if found is None or found.result != arg.type.kind:
        raise on.text.refused(f"a view has no operator - for {arg.type}", location, word="-")
    return called(on, found, [coerced(on.text, literal(0, INT4), arg.type), arg], location)


def _in_list(on: Resolving, node: Node, reach: NameScope) -> Expr:
    arg = on.expression(node.lexpr, reach)
    items = [on.expression(item, reach) for item in node.rexpr.list.items]
    return in_list(on, arg, items, texts(node.name)[-1] != "=", node.location)


def in_list(on: Resolving, arg: Expr, items: list[Expr], negated: bool, location: int) -> Expr:
    """``arg in (items)``"""
    kind = common_type(on.text, [arg, *items], location)
    comparable(on.text, kind, location, ordered=False, collated=True)
    cast = tuple(coerced(on.text, item, kind) for item in items)
    return InList(type=BOOL, arg=coerced(on.text, arg, kind), items=cast, negated=negated, location=location)


def _any_of(on: Resolving, node: Node, reach: NameScope) -> Expr:
    kind, array = unwrapped(node.rexpr)
    if kind == "type_cast":
        kind, array = unwrapped(array.arg)
    elements = array.elements if kind == "a_array_expr" else None
    if elements is None or texts(node.name)[-1] != "=":
        raise on.text.refused("a view compares with the elements of array[…] alone", node.location)
    items = [on.expression(element, reach) for element in elements]
    return in_list(on, on.expression(node.lexpr, reach), items, False, node.location)


def _between(on: Resolving, node: Node, reach: NameScope) -> Expr:
    arg = on.expression(node.lexpr, reach)
    low, high = (on.expression(item, reach) for item in node.rexpr.list.items)
    both = (compared(on, ">=", arg, low, node.location), compared(on, "<=", arg, high, node.location))
    inside = Logic(type=BOOL, op="and", args=both, location=node.location)
    negated = node.kind == 12  # AEXPR_NOT_BETWEEN
    return Logic(type=BOOL, op="not", args=(inside,), location=node.location) if negated else inside


def _distinct(on: Resolving, node: Node, reach: NameScope) -> Expr:
    left, right = on.expression(node.lexpr, reach), on.expression(node.rexpr, reach)
    op = "<>" if node.kind == 4 else "="  # AEXPR_DISTINCT
    if isinstance(right, Const) and right.value is None:
        return IsNull(type=BOOL, arg=left, negated=op == "<>", location=node.location)
    return compared(on, op, left, right, node.location, distinct=True)


def _null_if(on: Resolving, node: Node, reach: NameScope) -> Expr:
    left, right = on.expression(node.lexpr, reach), on.expression(node.rexpr, reach)
    test = compared(on, "=", left, right, node.location)
    # Postgres has comparisons of two integer types, and of two types of times. All others first cast to one type.
    if left.type.kind == "unknown" or test.left.type.group not in (Group.INTEGER, *_TIMES_COMPARED):
        left = replace(test.left, type=TEXT) if test.left.type.kind == "varchar" else test.left
    return Case(type=left.type, whens=((test, literal(None, left.type)),), default=left, location=node.location)


def _like(on: Resolving, node: Node, reach: NameScope) -> Expr:
    left = on.expression(node.lexpr, reach)
    kind, pattern = unwrapped(node.rexpr)
    if kind == "func_call" and texts(pattern.funcname)[-1] == "like_escape":
        raise on.text.refused("a view's LIKE has the escape character \\ alone", node.location)
    return _operator(on, texts(node.name)[-1], left, on.expression(node.rexpr, reach), node.location)


def _plain_operator(on: Resolving, node: Node, reach: NameScope) -> Expr:
    op = texts(node.name)[-1]
    right = on.expression(node.rexpr, reach)
    if not node.HasField("lexpr"):
        return right if op == "+" else _negative(on, right, node.location)
    return _operator(on, op, on.expression(node.lexpr, reach), right, node.location)


def _a_expr(on: Resolving, node: Node, reach: NameScope) -> Expr:
    handler = _KINDS_OF_OPERATION.get(node.kind)
    if handler is None:
        raise on.text.refused("a view does not know this operation", node.location)
    return handler(on, node, reach)


_KINDS_OF_OPERATION: dict[int, Callable[[Resolving, Any, NameScope], Expr]] = {
    1: _plain_operator,  # AEXPR_OP
    2: _any_of,  # AEXPR_OP_ANY
    4: _distinct,  # AEXPR_DISTINCT
    5: _distinct,  # AEXPR_NOT_DISTINCT
    6: _null_if,  # AEXPR_NULLIF
    7: _in_list,  # AEXPR_IN
    8: _like,  # AEXPR_LIKE
    9: _like,  # AEXPR_ILIKE
    11: _between,  # AEXPR_BETWEEN
    12: _between,  # AEXPR_NOT_BETWEEN
}
_HANDLERS: dict[str, Callable[[Resolving, Node, NameScope], Expr]] = {
    "column_ref": _column_ref,
    "a_const": _constant,
    "type_cast": _type_cast,
    "collate_clause": _collate,
    "bool_expr": _bool_expr,
    "null_test": _null_test,
    "boolean_test": _boolean_test,
    "case_expr": _case,
    "coalesce_expr": _choice("coalesce"),
    "min_max_expr": _choice("greatest"),
    "a_array_expr": _array,
    "a_expr": _a_expr,
}
