"""Functions, aggregates and subqueries of a SELECT, from the tree of Postgres's grammar to typed terms."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

from cdc.views.conversions import coerced, common_type, comparable, to_json, written_in_json
from cdc.views.date_functions import DATE_FIELDS, FIELDS, TRUNCATIONS, binned, date_field_of, field_of, truncated_to
from cdc.views.expressions import Resolving, called, compared
from cdc.views.functions import KNOWN_FUNCTIONS, VOLATILE, signature
from cdc.views.sql_types import BOOL, INT8, INTERVAL, JSON, JSONB, NUMERIC, TEXT, TIMESTAMP, TIMESTAMPTZ, Group, SqlType
from cdc.views.syntax import NameScope, Node, texts, unwrapped
from cdc.views.term_walks import walk
from cdc.views.terms import (
    Aggregate,
    Const,
    Expr,
    FunctionCall,
    JsonArray,
    JsonObject,
    Sort,
    Subquery,
    ToJson,
    WholeRow,
)

Handler = Callable[[Resolving, list[Expr], Node], Expr]

_PLAIN_AGGREGATES = {"bool_and": BOOL, "bool_or": BOOL, "every": BOOL, "string_agg": TEXT}
_JSON_AGGREGATES = {"json_agg": JSON, "jsonb_agg": JSONB, "json_object_agg": JSON, "jsonb_object_agg": JSONB}
AGGREGATES = frozenset({"count", "sum", "avg", "min", "max", "array_agg", *_PLAIN_AGGREGATES, *_JSON_AGGREGATES})
ORDER_MATTERS = frozenset({"array_agg", "string_agg", "first", *_JSON_AGGREGATES})
"""Aggregates whose result depends on the order of their rows."""


_SKETCH = re.compile(r"(?:hll|kll|theta|tuple|tdigest|bitmap|approx)_|(?:percentile_approx|count_min_sketch)$")
"""Functions of Spark and of extensions of Postgres that count without keeping what they counted."""


def _func_call(on: Resolving, node: Node, reach: NameScope) -> Expr:
    names = texts(node.funcname)
    name = names[-1]
    if len(names) > 1 and names[0] != "pg_catalog":
        raise on.text.refused("a view calls no functions of the user's", node.location, hint="write out what it does")
    if name in VOLATILE:
        hint = "its answer changes without a change of a row; let the reader compare with the time"
        raise on.text.refused("a view may not hold what answers otherwise each time", node.location, hint=hint)
    if node.HasField("over"):
        raise on.text.refused(
            "a view may not hold window functions",
            node.location,
            hint="subqueries and generate_series say most of it, not sessions: see Windows in cdc/views/README.md",
        )
    if _SKETCH.match(name):
        hint = "count(distinct x) is exact in a view; a stream over the table's history takes sketches: cdc/STREAMS.md"
        reason = "a view has no sketches: a row that is deleted cannot leave one"
        raise on.text.refused(reason, node.location, word=name, hint=hint)
    if name in AGGREGATES:
        return _aggregate(on, name, node, reach)
    if node.agg_distinct or node.agg_order or node.HasField("agg_filter") or node.agg_star or node.func_variadic:
        raise on.text.refused(f"{name} is no aggregate of a view", node.location)
    args = [on.expression(arg, reach) for arg in node.args]
    special = _SPECIAL.get(name)
    if special is not None:
        return special(on, args, node)
    found = signature(name, [arg.type for arg in args])
    if found is None:
        types = ", ".join(str(arg.type) for arg in args)
        reason = (
            f"a view has no function {name}({types})" if name in KNOWN_FUNCTIONS else f"a view has no function {name}"
        )
        raise on.text.refused(reason, node.location, word=name, hint="views/README.md lists those it has")
    made = called(on, found, args, node.location)
    return replace(made, one_scale=True) if found.result == "numeric" and _rounds(name, args) else made


def _rounds(name: str, args: list[Expr]) -> bool:
    """Whether a numeric that a function gives always has the same digits behind the point."""
    known = len(args) == 1 or isinstance(args[-1], Const)
    return name in ("ceil", "ceiling", "floor") or (name in ("round", "trunc") and known)


def _no_aggregates(on: Resolving, expressions: list[Expr], location: int) -> None:
    if any(isinstance(part, Aggregate) for expression in expressions for part in walk(expression)):
        raise on.text.refused("aggregates do not stand in each other", location)


def _aggregate(on: Resolving, name: str, node: Node, reach: NameScope) -> Expr:
    args = [on.expression(arg, reach) for arg in node.args]
    filtered = on.condition(node.agg_filter, reach) if node.HasField("agg_filter") else None
    order = tuple(sort_of(on, term, on.expression(term.sort_by.node, reach)) for term in node.agg_order)
    inner = [*args, *(sort.by for sort in order), *([] if filtered is None else [filtered])]
    _no_aggregates(on, inner, node.location)
    if node.agg_within_group:
        raise on.text.refused("a view may not hold WITHIN GROUP", node.location)
    args, kind = _aggregate_type(on, name, args, node)
    if node.agg_distinct:
        for arg in args[:1] + [arg for arg in args[1:] if not isinstance(arg, Const)]:
            comparable(on.text, arg.type, node.location, ordered=name in ORDER_MATTERS, collated=on.collated(arg))
    if name in ORDER_MATTERS and not order and not node.agg_distinct:
        on.noted(f"{name} without ORDER BY is in the order of its rows' keys; an ORDER BY says so in the text")
    return Aggregate(
        type=kind,
        name="bool_and" if name == "every" else name,
        args=tuple(args),
        order=order,
        filter=filtered,
        distinct=node.agg_distinct,
        location=node.location,
    )


def _aggregate_type(on: Resolving, name: str, args: list[Expr], node: Node) -> tuple[list[Expr], SqlType]:
    wanted = {"count": (0, 1), "string_agg": (2,), "json_object_agg": (2,), "jsonb_object_agg": (2,)}.get(name, (1,))
    if len(args) not in wanted or (name == "count" and not args and not node.agg_star):
        raise on.text.refused(f"{name} takes {wanted[-1]} arguments", node.location)
    if name == "count":
        return args, INT8
    if name in _PLAIN_AGGREGATES:
        kind = _PLAIN_AGGREGATES[name]
        return [coerced(on.text, arg, kind) for arg in args], kind
    if name in _JSON_AGGREGATES:
        if len(args) == 2:
            args = [member_name(on, args[0]), args[1]]
        return [written_in_json(on.text, arg) for arg in args], _JSON_AGGREGATES[name]
    arg = coerced(on.text, args[0], TEXT) if args[0].type.kind == "unknown" else args[0]
    if name == "array_agg":
        if arg.type.array:
            raise on.text.refused("a view does not make arrays of arrays", node.location)
        return [arg], arg.type.array_of()
    if name in ("min", "max"):
        comparable(on.text, arg.type, node.location, ordered=True, collated=on.collated(arg))
        return [arg], arg.type if arg.type.kind != "varchar" else TEXT
    return _summed(on, name, arg, node.location)


def _summed(on: Resolving, name: str, arg: Expr, location: int) -> tuple[list[Expr], SqlType]:
    group = arg.type.group
    if group is Group.FLOAT:
        raise on.text.refused(
            f"{name} of floats depends on the order of the rows", location, hint="cast the values to numeric"
        )
    if group not in (Group.INTEGER, Group.NUMERIC):
        raise on.text.refused(f"a view has no {name} of {arg.type}", location)
    if name == "sum" and arg.type.kind in ("int2", "int4"):
        return [arg], INT8
    return [coerced(on.text, arg, NUMERIC)], NUMERIC


def sort_of(on: Resolving, node: Node, by: Expr) -> Sort:
    """A term of an ORDER BY. :class:`cdc.views.syntax.ViewRefused` where only Postgres knows the order."""
    term = node.sort_by
    if term.sortby_dir == 4:  # SORTBY_USING
        raise on.text.refused("a view may not hold ORDER BY … USING", by.location)
    by = coerced(on.text, by, TEXT) if by.type.kind == "unknown" else by
    comparable(on.text, by.type, by.location, ordered=True, collated=on.collated(by))
    descending = term.sortby_dir == 3
    return Sort(
        by=by, descending=descending, nulls_first=term.sortby_nulls == 2 if term.sortby_nulls > 1 else descending
    )


def member_name(on: Resolving, arg: Expr) -> Expr:
    """The name of a JSON object's member: times as JSON writes them, ``char(n)`` with its blanks, all else as text."""
    if arg.type.group in (Group.DATE, Group.TIMESTAMP, Group.TIMESTAMPTZ) and not isinstance(arg, Const):
        write = to_json(arg.type, False)
        assert write is not None
        return FunctionCall(type=TEXT, function=lambda v: write(v)[1:-1], args=(arg,), location=arg.location)
    if arg.type.group in (Group.JSON, Group.JSONB) or not arg.type.known_in_json:
        raise on.text.refused(f"the name of a member is no {arg.type}", arg.location, hint="cast it to text")
    return arg if arg.type.kind == "bpchar" else coerced(on.text, arg, TEXT)


def _json_object(binary: bool) -> Handler:
    def handler(on: Resolving, args: list[Expr], node: Node) -> Expr:
        if len(args) % 2:
            raise on.text.refused("it takes names and values in pairs", node.location)
        names = [member_name(on, arg) for arg in args[::2]]
        if any(isinstance(name, Const) and name.value is None for name in names):
            raise on.text.refused("the name of a member is null", node.location)
        members = tuple(zip(names, [written_in_json(on.text, arg) for arg in args[1::2]], strict=True))
        return JsonObject(type=JSONB if binary else JSON, members=members, binary=binary, location=node.location)

    return handler


def _json_array(binary: bool) -> Handler:
    def handler(on: Resolving, args: list[Expr], node: Node) -> Expr:
        items = tuple(written_in_json(on.text, arg) for arg in args)
        return JsonArray(type=JSONB if binary else JSON, items=items, binary=binary, location=node.location)

    return handler


def _to_json(binary: bool) -> Handler:
    def handler(on: Resolving, args: list[Expr], node: Node) -> Expr:
        if len(args) != 1:
            raise on.text.refused("it takes one value", node.location)
        arg = written_in_json(on.text, args[0])
        return ToJson(type=JSONB if binary else JSON, arg=arg, binary=binary, location=node.location)

    return handler


@cache
def _of_word(function: Callable[[str, int], Any], word: str) -> Callable[[int], Any]:
    """The same for the same word: expressions that are written alike are one."""
    return partial(function, word)


def _word(on: Resolving, args: list[Expr], place: int, node: Node, known: frozenset[str]) -> str:
    arg = args[place] if place < len(args) else None
    word = arg.value.lower() if isinstance(arg, Const) and isinstance(arg.value, str) else ""
    if word not in known:
        raise on.text.refused(
            "a view does not know this unit", node.location, hint="units: " + ", ".join(sorted(known))
        )
    return word


def _date_trunc(on: Resolving, args: list[Expr], node: Node) -> Expr:
    unit = _word(on, args, 0, node, TRUNCATIONS)
    if len(args) == 3 and not (isinstance(args[2], Const) and str(args[2].value).upper() == "UTC"):
        raise on.text.refused("a view truncates in UTC alone", node.location)
    arg = args[1]
    if arg.type.group is Group.DATE:
        arg = coerced(on.text, arg, TIMESTAMPTZ)
    if arg.type.group not in (Group.TIMESTAMP, Group.TIMESTAMPTZ):
        raise on.text.refused(f"a view has no date_trunc of {arg.type}", node.location)
    if arg.type.group is Group.TIMESTAMPTZ and len(args) == 2:
        on.noted("date_trunc of a timestamptz depends on the time zone, which is UTC for a view")
    return FunctionCall(type=arg.type, function=_of_word(truncated_to, unit), args=(arg,), location=node.location)


def _extract(on: Resolving, args: list[Expr], node: Node) -> Expr:
    group = args[1].type.group
    field = _word(on, args, 0, node, DATE_FIELDS if group is Group.DATE else FIELDS)
    if group not in (Group.DATE, Group.TIMESTAMP, Group.TIMESTAMPTZ):
        raise on.text.refused(f"a view has no field of {args[1].type}", node.location)
    if group is Group.TIMESTAMPTZ and field != "epoch":
        on.noted("extract from a timestamptz depends on the time zone, which is UTC for a view")
    function = date_field_of if group is Group.DATE else field_of
    found = FunctionCall(
        type=NUMERIC, function=_of_word(function, field), args=(args[1],), location=node.location, one_scale=True
    )
    return coerced(on.text, found, SqlType("float8")) if texts(node.funcname)[-1] == "date_part" else found


def _date_bin(on: Resolving, args: list[Expr], node: Node) -> Expr:
    if len(args) != 3:
        raise on.text.refused("date_bin takes a stride, a time and an origin", node.location)
    groups = {args[1].type.group, args[2].type.group}
    kind = TIMESTAMP if Group.TIMESTAMP in groups and Group.TIMESTAMPTZ not in groups else TIMESTAMPTZ
    cast = (coerced(on.text, args[0], INTERVAL), coerced(on.text, args[1], kind), coerced(on.text, args[2], kind))
    return FunctionCall(type=kind, function=binned, args=cast, location=node.location)


def _printed(on: Resolving, arg: Expr) -> Expr:
    """A value as its type prints it, which is not always what a cast to text gives."""
    if arg.type.kind == "bool":
        return FunctionCall(type=TEXT, function=lambda v: "t" if v else "f", args=(arg,), location=arg.location)
    return arg if arg.type.kind == "bpchar" else coerced(on.text, arg, TEXT)


def _concat(on: Resolving, args: list[Expr], node: Node) -> Expr:
    cast = tuple(_printed(on, arg) for arg in args)
    return FunctionCall(type=TEXT, function=_joined_texts, args=cast, strict=False, location=node.location)


def _joined_texts(*texts_given: str | None) -> str:
    return "".join(text for text in texts_given if text is not None)


def _concat_ws(on: Resolving, args: list[Expr], node: Node) -> Expr:
    cast = tuple(_printed(on, arg) for arg in args)
    return FunctionCall(type=TEXT, function=_joined_by, args=cast, strict=False, location=node.location)


def _joined_by(by: str | None, *texts_given: str | None) -> str | None:
    return None if by is None else by.join(text for text in texts_given if text is not None)


def _array_length(on: Resolving, args: list[Expr], node: Node) -> Expr:
    if not args or not args[0].type.array:
        raise on.text.refused("it takes an array", node.location)
    name = texts(node.funcname)[-1]
    if name == "cardinality":
        return FunctionCall(type=SqlType("int4"), function=_elements, args=(args[0],), location=node.location)
    first = len(args) == 2 and isinstance(args[1], Const) and args[1].value == 1
    if not first:
        raise on.text.refused("a view knows the first dimension alone", node.location)
    return FunctionCall(
        type=SqlType("int4"), function=lambda v: len(v) or None, args=(args[0],), location=node.location
    )


def _elements(value: list[object]) -> int:
    return sum(_elements(v) if isinstance(v, list) else 1 for v in value)


_SPECIAL: dict[str, Handler] = {
    "json_build_object": _json_object(False),
    "jsonb_build_object": _json_object(True),
    "json_build_array": _json_array(False),
    "jsonb_build_array": _json_array(True),
    "to_json": _to_json(False),
    "to_jsonb": _to_json(True),
    "row_to_json": _to_json(False),
    "array_to_json": _to_json(False),
    "date_trunc": _date_trunc,
    "extract": _extract,
    "date_part": _extract,
    "date_bin": _date_bin,
    "concat": _concat,
    "concat_ws": _concat_ws,
    "array_length": _array_length,
    "cardinality": _array_length,
}

_FORMS: dict[int, Literal["exists", "in", "scalar", "array"]] = {1: "exists", 3: "in", 5: "scalar", 7: "array"}


def _sub_link(on: Resolving, node: Node, reach: NameScope) -> Expr:
    form = _FORMS.get(node.sub_link_type)
    if form is None or (form == "in" and node.oper_name and texts(node.oper_name)[-1] != "="):
        raise on.text.refused("a view knows subqueries as a value, EXISTS, IN and ARRAY", node.location)
    query = on.select(node.subselect.select_stmt, reach)
    if form == "exists":
        return Subquery(type=BOOL, form=form, query=query, location=node.location)
    if len(query.outputs) != 1:
        raise on.text.refused("a subquery gives one column here", node.location)
    output = query.outputs[0][1]
    if isinstance(output, WholeRow):
        raise on.text.refused("a subquery gives a column here, not a row", node.location, hint="row_to_json(…) of it")
    if form == "in":
        arg = on.expression(node.testexpr, reach)
        kind = common_type(on.text, [arg, output], node.location)
        test = compared(on, "=", arg, output, node.location)
        query.outputs[0] = (query.outputs[0][0], coerced(on.text, output, kind))
        return Subquery(type=BOOL, form=form, query=query, arg=test.left, location=node.location)
    kind = TEXT if output.type.kind == "unknown" else output.type
    query.outputs[0] = (query.outputs[0][0], coerced(on.text, output, kind))
    if form == "array":
        return Subquery(type=kind.array_of(), form=form, query=query, location=node.location)
    return Subquery(type=kind, form=form, query=query, location=node.location)


def _indirection(on: Resolving, node: Node, reach: NameScope) -> Expr:
    """``(array_agg(x order by y))[1]``: the first, in an order of the rows."""
    kind, called_one = unwrapped(node.arg)
    steps = [unwrapped(one) for one in node.indirection]
    location = getattr(called_one, "location", -1)
    hint = "a view knows (array_agg(x order by y))[1], the first of several"
    if kind != "func_call" or texts(called_one.funcname)[-1] != "array_agg" or not _is_first(steps):
        raise on.text.refused("a view may not hold a part of an array or of a composite", location, hint=hint)
    found = on.expression(node.arg, reach)
    assert isinstance(found, Aggregate)
    if found.distinct or not found.order:
        hint = "array_agg(x order by y), without DISTINCT"
        raise on.text.refused("which of the elements is the first is left open", location, hint=hint)
    return replace(found, name="first", type=replace(found.args[0].type, typmod=-1))


def _is_first(steps: list[tuple[str, Node]]) -> bool:
    if len(steps) != 1 or steps[0][0] != "a_indices" or steps[0][1].is_slice:
        return False
    kind, place = unwrapped(steps[0][1].uidx)
    return kind == "a_const" and place.WhichOneof("val") == "ival" and place.ival.ival == 1


CALL_HANDLERS = {"func_call": _func_call, "sub_link": _sub_link, "a_indirection": _indirection}
