"""Expressions as Python source: what a view computes is compiled once, to functions of rows.

The source of an expression gives its value, and None for NULL. Rows are tuples named after their source: ``r3[1]`` is
the second column of source 3, as the state holds it. An expression may stand in a comprehension, but not in what that
iterates over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

from cdc.views import aggregating as agg
from cdc.views.conversions import to_json
from cdc.views.json_values import json_array, json_object, jsonb_object, jsonb_order, quoted, row_json
from cdc.views.sql_types import Group
from cdc.views.stored_values import loaded
from cdc.views.syntax import NotComputable
from cdc.views.terms import (
    Aggregate,
    ArrayOf,
    Case,
    Choice,
    Col,
    Collated,
    Compare,
    Const,
    Expr,
    FunctionCall,
    InList,
    IsNull,
    IsTruth,
    JsonArray,
    JsonObject,
    Logic,
    Subquery,
    ToJson,
    WholeRow,
)

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[\d+\])?|None")


@dataclass(slots=True)
class Namespace:
    """The values that compiled source refers to by name. ``functions``: source of the functions made so far, in
    order."""

    names: dict[str, Any] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    _known: dict[int, str] = field(default_factory=dict)
    _count: int = 0

    def bound(self, value: Any, prefix: str = "v") -> str:
        """The name of an object. The same for the same object."""
        name = self._known.get(id(value))
        if name is None:
            name = self.fresh(prefix)
            self.names[name] = value
            self._known[id(value)] = name
        return name

    def fresh(self, prefix: str) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"{prefix}{self._count}"


@dataclass(slots=True)
class Emitter:
    """``query``: compiles a subquery and gives the source of its call. ``replaced``: expressions with a name here."""

    space: Namespace
    query: Callable[[Emitter, Subquery], str]
    replaced: dict[Expr, str] = field(default_factory=dict)
    shapes: dict[Any, str] = field(default_factory=dict)
    shape_of: Callable[[Expr], Any] = id

    def value(self, expression: Expr) -> str:
        """Source of the value."""
        known = self.replaced.get(expression) or self.shapes.get(self.shape_of(expression))
        return known if known is not None else self._value(expression)

    def truth(self, expression: Expr) -> str:
        """Source of whether a condition is true: neither false nor NULL."""
        if isinstance(expression, Logic) and expression.op != "not":
            return "(" + f" {expression.op} ".join(map(self.truth, expression.args)) + ")"
        if isinstance(expression, IsNull | IsTruth):
            return self.value(expression)
        if isinstance(expression, Const):
            return repr(expression.value is True)
        return f"({self.value(expression)} is True)"

    def json(self, expression: Expr, binary: bool) -> str:
        """Source of the value as JSON text, ``null`` for NULL."""
        if isinstance(expression, Const) and expression.value is None:
            return "'null'"
        known = self.replaced.get(expression) or self.shapes.get(self.shape_of(expression))
        if isinstance(expression, Col) and expression.type.group is Group.NUMERIC and known is None:
            source = self._raw(expression)
            # The state has the text that JSON takes, but for words such as NaN.
            return f"('null' if {source} is None else {self.bind(_numeric_json)}({source}))"
        convert = to_json(expression.type, binary)
        source = self.value(expression)
        if isinstance(expression, JsonObject | JsonArray) and expression.binary == binary:
            return source
        test, held = self.held(source)
        return f"('null' if {test} is None else {self._applied(convert, held)})"

    def bind(self, value: Any, prefix: str = "f") -> str:
        """The name of an object in the compiled source."""
        return self.space.bound(value, prefix)

    def held(self, source: str) -> tuple[str, str]:
        """A source to test first, and one to use behind the test."""
        if _SIMPLE.fullmatch(source):
            return source, source
        name = self.space.fresh("t")
        return f"({name} := {source})", name

    def _applied(self, function: Any, source: str) -> str:
        return source if function is None else f"{self.bind(function)}({source})"

    def _raw(self, expression: Col) -> str:
        return f"r{expression.source.number}[{expression.source.index(expression.name)}]"

    def _strict(self, sources: list[str], call: Callable[[list[str]], str], nullable: list[bool]) -> str:
        """A call of values, or NULL where any of them is."""
        tests, uses = [], []
        for source, may_be_null in zip(sources, nullable, strict=True):
            if may_be_null:
                test, held = self.held(source)
                tests.append(f"{test} is None")
                uses.append(held)
            else:
                uses.append(source)
        return f"(None if {' or '.join(tests)} else {call(uses)})" if tests else f"{call(uses)}"

    @singledispatchmethod
    def _value(self, expression: Expr) -> str:
        raise TypeError(f"no source for {type(expression).__name__}")

    @_value.register
    def _(self, expression: Col) -> str:
        raw = self._raw(expression)
        kind = expression.source.type_of(expression.name)
        if expression.source.table is None or kind is None:
            return raw
        function = loaded(kind)
        return raw if function is None else f"(None if {raw} is None else {self.bind(function)}({raw}))"

    @_value.register
    def _(self, expression: Const) -> str:
        value = expression.value
        return repr(value) if value is None or isinstance(value, bool | int | str) else self.bind(value, "c")

    @_value.register
    def _(self, expression: Collated) -> str:
        return self.value(expression.arg)

    @_value.register
    def _(self, expression: FunctionCall) -> str:
        sources = [self.value(arg) for arg in expression.args]
        name = self.bind(expression.function)
        if not expression.strict:
            return f"{name}({', '.join(sources)})"
        nullable = [not _never_null(arg) for arg in expression.args]
        return self._strict(sources, lambda uses: f"{name}({', '.join(uses)})", nullable)

    @_value.register
    def _(self, expression: Compare) -> str:
        left, right = self.value(expression.left), self.value(expression.right)
        kind, op = expression.left.type, {"=": "==", "<>": "!="}.get(expression.op, expression.op)
        key = agg.same_key(kind) if op in ("==", "!=") else agg.order_key(kind)

        def call(uses: list[str]) -> str:
            a, b = (self._applied(key, use) for use in uses)
            return f"({a} {op} {b})"

        if not expression.distinct:
            return self._strict([left, right], call, [not _never_null(e) for e in (expression.left, expression.right)])
        (test_a, a), (test_b, b) = self.held(left), self.held(right)
        return self._distinct(test_a, a, test_b, b, call([a, b]), op)

    def _distinct(self, test_a: str, a: str, test_b: str, b: str, both: str, op: str) -> str:
        one_null = "True" if op == "!=" else "False"
        both_null = "False" if op == "!=" else "True"
        return (
            f"(({both_null} if {test_b} is None else {one_null}) if {test_a} is None "
            f"else ({one_null} if {test_b} is None else {both}))"
        )

    @_value.register
    def _(self, expression: Logic) -> str:
        if expression.op == "not":
            test, held = self.held(self.value(expression.args[0]))
            return f"(None if {test} is None else not {held})"
        decides = "False" if expression.op == "and" else "True"
        other = "True" if expression.op == "and" else "False"
        source = self.value(expression.args[-1])
        for arg in reversed(expression.args[:-1]):
            (test, held), (rest_test, rest) = self.held(self.value(arg)), self.held(source)
            # The second part is not looked at where the first decides, as a division may stand there.
            source = (
                f"({decides} if {test} is {decides} else {decides} if {rest_test} is {decides} "
                f"else None if {held} is None or {rest} is None else {other})"
            )
        return source

    @_value.register
    def _(self, expression: IsNull) -> str:
        return f"({self.value(expression.arg)} is {'not ' if expression.negated else ''}None)"

    @_value.register
    def _(self, expression: IsTruth) -> str:
        return f"({self.value(expression.arg)} is {'not ' if expression.negated else ''}{expression.value!r})"

    @_value.register
    def _(self, expression: Case) -> str:
        parts = "".join(f"{self.value(result)} if {self.truth(test)} else " for test, result in expression.whens)
        return f"({parts}{self.value(expression.default)})"

    @_value.register
    def _(self, expression: Choice) -> str:
        sources = [self.value(arg) for arg in expression.args]
        if expression.name == "coalesce":
            source = sources[-1]
            for earlier in reversed(sources[:-1]):
                test, held = self.held(earlier)
                source = f"({held} if {test} is not None else {source})"
            return source
        function = agg.greatest if expression.name == "greatest" else agg.least
        order = agg.order_key(expression.type)
        return f"{self.bind(function)}(({', '.join(sources)},), {self.bind(order) if order else None})"

    @_value.register
    def _(self, expression: InList) -> str:
        key = agg.same_key(expression.arg.type)
        items = ", ".join(self.value(item) for item in expression.items)
        found = (
            f"{self.bind(agg.in_items)}({self.value(expression.arg)}, ({items},), {self.bind(key) if key else None})"
        )
        return found if not expression.negated else self._negated(found)

    def _negated(self, source: str) -> str:
        test, held = self.held(source)
        return f"(None if {test} is None else not {held})"

    @_value.register
    def _(self, expression: ArrayOf) -> str:
        return f"[{', '.join(self.value(item) for item in expression.items)}]"

    @_value.register
    def _(self, expression: JsonArray) -> str:
        items = ", ".join(self.json(item, expression.binary) for item in expression.items)
        return f"{self.bind(json_array)}([{items}])"

    @_value.register
    def _(self, expression: ToJson) -> str:
        test, held = self.held(self.value(expression.arg))
        convert = to_json(expression.arg.type, expression.binary)
        return f"(None if {test} is None else {self._applied(convert, held)})"

    @_value.register
    def _(self, expression: JsonObject) -> str:
        if not all(isinstance(name, Const) for name, _ in expression.members):
            return self._named_at_run(expression)
        members = [(str(getattr(name, "value", "")), value) for name, value in expression.members]
        if expression.binary:
            last = dict(members)
            members = [(name, last[name]) for name in sorted(last, key=jsonb_order)]
        between = ": " if expression.binary else " : "
        template = "{" + ", ".join(f"{quoted(n).replace('%', '%%')}{between}%s" for n, _ in members) + "}"
        values = "".join(f"{self.json(value, expression.binary)}, " for _, value in members)
        return f"({template!r} % ({values}))" if members else repr("{}")

    def _named_at_run(self, expression: JsonObject) -> str:
        pairs = ", ".join(
            f"({self.bind(_member_name)}({self.value(name)}), {self.json(value, expression.binary)})"
            for name, value in expression.members
        )
        return f"{self.bind(jsonb_object if expression.binary else json_object)}([{pairs}])"

    @_value.register
    def _(self, expression: WholeRow) -> str:
        columns = [Col(type=kind, source=expression.source, name=name) for name, kind in expression.source.columns]
        names = self.bind(tuple(c.name for c in columns), "n")
        values = ", ".join(self.json(column, False) for column in columns)
        row = f"{self.bind(row_json)}({names}, [{values}])"
        return f"({row} if {self._present(expression)} else None)"

    def _present(self, expression: WholeRow) -> str:
        """A row that an outer join did not find is NULL, and it is the one whose columns all are."""
        return f"any(v is not None for v in r{expression.source.number})"

    @_value.register
    def _(self, expression: Subquery) -> str:
        call = self.query(self, expression)
        if expression.form == "scalar":
            return f"{self.bind(agg.one_value)}({call})"
        if expression.form == "exists":
            return f"(not {call})" if expression.negated else f"bool({call})"
        if expression.form == "array":
            return f"[o[0] for o in {call}]"
        assert expression.arg is not None
        key = agg.same_key(expression.arg.type)
        return f"{self.bind(agg.among)}({self.value(expression.arg)}, {call}, {self.bind(key) if key else None})"

    @_value.register
    def _(self, expression: Aggregate) -> str:
        raise TypeError("an aggregate outside of its query")


def _never_null(expression: Expr) -> bool:
    if isinstance(expression, Const):
        return expression.value is not None
    return isinstance(expression, JsonObject | JsonArray | ArrayOf | IsNull | IsTruth)


def _numeric_json(text: str) -> str:
    return text if text[-1] not in "Nyn" else f'"{text}"'


def _member_name(name: str | None) -> str:
    if name is None:
        raise NotComputable("argument must not be null: a member's name")
    return name
