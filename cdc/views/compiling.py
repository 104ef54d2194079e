"""A view's SELECT as one function of its root's row, over rows that were looked up before.

Each query becomes a function of the rows around it. It walks its tables in the order of :mod:`cdc.views.join_order`, in
nested loops. ``L3`` is the dict of source 3: from the values of its tie to the rows that have them, in key order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc.views import aggregating as agg
from cdc.views.aggregating import aggregate_function, json_or_null, wire_function
from cdc.views.date_functions import series_function
from cdc.views.expression_source import Emitter, Namespace
from cdc.views.join_order import Arranged, Derive, Fetch, Outer, Spread, Step, arranged, needed
from cdc.views.json_values import quoted
from cdc.views.row_ranges import any_order as any_order_of
from cdc.views.row_ranges import range_of, rows_between
from cdc.views.sql_types import Group
from cdc.views.syntax import ViewText
from cdc.views.term_walks import walk
from cdc.views.terms import Aggregate, Expr, Select, Sort, Source, Subquery


class _NullRow(tuple[Any, ...]):
    """The row that an outer join puts where it finds none."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        return None


_NULL_ROW = _NullRow()


@dataclass(frozen=True, slots=True)
class Program:
    """``document``: a row of the root to the view's row on the wire, None where WHERE leaves it out.

    ``lookups``: for each source but the root, the dict that has to be filled before. ``fetches``: what fills them, each
    behind those that it depends on. ``source``: the compiled Python, for people.
    """

    document: Callable[[tuple[Any, ...]], Any]
    lookups: Mapping[int, dict[Any, list[tuple[Any, ...]]]]
    fetches: tuple[Fetch, ...]
    source: str


@dataclass(slots=True)
class _Code:
    """Lines of a function, with the indent that the next one has."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


def compiled(text: ViewText, plan: Arranged, root: Source) -> Program:
    """The program of a whole view that has a document per row of ``root``."""
    return _Compiling(text).document(plan, root)


class _Compiling:
    def __init__(self, text: ViewText) -> None:
        self._text = text
        self._space = Namespace()
        self._fetches: list[Fetch] = []
        self._lookups: dict[int, dict[Any, list[tuple[Any, ...]]]] = {}
        self._made: dict[int, str] = {}
        self._inner = 0
        """How many subqueries are around."""
        self._ranged: Arranged | None = None
        """The query that is compiled, where the order of its rows does not show."""

    def document(self, plan: Arranged, root: Source) -> Program:
        """See :func:`compiled`."""
        code = _Code()
        emitter = self._emitter()
        code.add("for _ in (0,):")
        code.depth += 1
        for condition in [*plan.first, *plan.steps[0].filters]:
            code.add(f"if not {emitter.truth(condition)}: continue")
        self._walk(plan.steps[1:], emitter, code)
        code.add(f"return {self._row(plan.query, emitter)}")
        code.depth = 1
        code.add("return None")
        body = "\n".join([f"def document(r{root.number}):", *code.lines])
        source = "\n\n".join([*self._space.functions, body]) + "\n"
        names = dict(self._space.names)
        exec(compile(source, "<view>", "exec"), names)
        return Program(names["document"], self._lookups, tuple(self._fetches), source)

    def _row(self, query: Select, emitter: Emitter) -> str:
        members = [f"{quoted(name)}:%s" for name, _ in query.outputs]
        template = "{" + ",".join(m.replace("%", "%%").replace("%%s", "%s") for m in members) + "}"
        values = "".join(f"{self._wire(emitter, name, expression)}, " for name, expression in query.outputs)
        return f"{template!r} % ({values})"

    def _wire(self, emitter: Emitter, name: str, expression: Expr) -> str:
        kind = expression.type
        if not kind.array and kind.group in (Group.BOOLEAN, Group.INTEGER):
            return emitter.json(expression, False)
        test, held = emitter.held(emitter.value(expression))
        return f"('null' if {test} is None else {emitter.bind(wire_function(kind, name))}({held}))"

    def _emitter(self) -> Emitter:
        return Emitter(self._space, self._call)

    def _call(self, emitter: Emitter, expression: Subquery) -> str:
        """The source of a subquery's call. It is compiled once, wherever it stands."""
        query = expression.query
        name = self._made.get(id(query))
        if name is None:
            plan = arranged(self._text, query)
            self._refuse_several(expression, plan)
            # The arguments of a call have the same names at every place of the call.
            any_order = any_order_of(query) or (expression.form == "exists" and not query.grouped)
            name = f"{self._remembered(plan, self._function(plan, any_order))}({_arguments(plan)})"
            self._made[id(query)] = name
        return name

    def _refuse_several(self, expression: Subquery, plan: Arranged) -> None:
        if expression.form == "scalar" and not plan.single:
            hint = "add order by and limit 1, or take an aggregate of it"
            raise self._text.refused(
                "a subquery that may give several rows is used as a value", expression.location, hint=hint
            )

    def _remembered(self, plan: Arranged, name: str) -> str:
        """The function, or one that answers at once for a row that it was called with before.

        That is worth it where a row is met again and again: within a subquery that reads the same rows for many
        documents.
        """
        args = needed(plan)
        if not self._inner or len(args) != 1 or args[0].table is None or not self._shared(args[0]):
            return name
        known, once = self._cache(), self._space.fresh("m")
        lines = [f"def {once}({_arguments(plan)}):", f"    found = {known}.get(r{args[0].number})"]
        lines += ["    if found is None:", f"        {known}[r{args[0].number}] = found = {name}({_arguments(plan)})"]
        self._space.functions.append("\n".join([*lines, "    return found"]))
        return once

    def _shared(self, source: Source) -> bool:
        """Whether several rows of the one above have the same rows of a table."""
        above = next(((f.above, f.above_columns) for f in self._fetches if f.source is source), None)
        return above is not None and above[0] is not None and not set(above[0].key) <= set(above[1])

    def _cache(self) -> str:
        """The name of a dict that is emptied with the lookups."""
        number = -1 - len(self._lookups)
        self._lookups[number] = {}
        name = f"K{-number}"
        self._space.names[name] = self._lookups[number]
        return name

    def _function(self, plan: Arranged, any_order: bool = False) -> str:
        before = self._ranged
        self._inner += 1
        self._ranged = plan if any_order else None
        name = self._compiled(plan)
        self._ranged = before
        self._inner -= 1
        return name

    def _compiled(self, plan: Arranged) -> str:
        name = self._space.fresh("q")
        code = _Code()
        emitter = self._emitter()
        code.add("out = []")
        if plan.query.grouped:
            self._grouped(plan, emitter, code)
        else:
            for condition in plan.first:
                code.add(f"if not {emitter.truth(condition)}: return out")
            self._plain(plan, emitter, code)
        self._space.functions.append("\n".join([f"def {name}({_arguments(plan)}):", *code.lines]))
        return name

    def _plain(self, plan: Arranged, emitter: Emitter, code: _Code) -> None:
        query = plan.query
        begin = code.depth
        self._walk(plan.steps, emitter, code)
        code.add(f"out.append({self._output(query, emitter)})")
        code.depth = begin
        self._finish(query, code)

    def _grouped(self, plan: Arranged, emitter: Emitter, code: _Code) -> None:
        query = plan.query
        rows = self._row_names(plan.steps)
        begin = code.depth
        code.add("groups = {}" if query.group else "rows = []")
        first = " and ".join(emitter.truth(condition) for condition in plan.first)
        code.add(f"for _ in (0,) if {first or 'True'} else ():")
        code.depth += 1
        self._walk(plan.steps, emitter, code)
        if query.group:
            keys = "".join(f"{self._same(emitter, by)}, " for by in query.group)
            code.add(f"groups.setdefault(({keys}), []).append({rows})")
        else:
            code.add(f"rows.append({rows})")
            if self._ranged is plan and any(_first_decides(step, plan) for step in plan.steps):
                code.add("break")
        code.depth = begin
        self._groups(query, emitter, code, rows)
        code.depth = begin
        self._finish(query, code)

    def _groups(self, query: Select, emitter: Emitter, code: _Code, rows: str) -> None:
        code.add("for rows in groups.values():" if query.group else "for rows in (rows,):")
        code.depth += 1
        if query.group:
            code.add(f"{rows} = rows[0]")
        inner = self._emitter()
        self._aggregates(query, inner, code, rows)
        for condition in query.having:
            code.add(f"if not {inner.truth(condition)}: continue")
        code.add(f"out.append({self._output(query, inner)})")

    def _aggregates(self, query: Select, emitter: Emitter, code: _Code, rows: str) -> None:
        """Give each aggregate a name, and its value to the name."""
        found = [*(e for _, e in query.outputs), *query.having, *(s.by for s in query.order), *query.distinct_on]
        for expression in found:
            for part in walk(expression):
                if isinstance(part, Aggregate) and part not in emitter.replaced:
                    name = self._space.fresh("a")
                    code.add(f"{name} = {self._aggregate(part, self._emitter(), rows)}")
                    emitter.replaced[part] = name

    def _aggregate(self, part: Aggregate, emitter: Emitter, rows: str) -> str:
        condition = f" if {emitter.truth(part.filter)}" if part.filter is not None else ""
        if part.name == "count" and not part.args:
            return f"sum(1 for {rows} in rows{condition})" if condition else "len(rows)"
        value = self._argument(part, emitter)
        if part.order:
            keys = "".join(f"{self._sort_key(emitter, sort)}, " for sort in part.order)
            pairs = f"[(({keys}), {value}) for {rows} in rows{condition}]"
            values = f"{emitter.bind(agg.values_in_order)}({pairs}, {_directions(part.order)})"
        else:
            values = f"[{value} for {rows} in rows{condition}]"
        return self._applied(part, emitter, values)

    def _argument(self, part: Aggregate, emitter: Emitter) -> str:
        """The source of the value that an aggregate gets from each row."""
        binary = part.name.startswith("jsonb")
        if part.name in ("json_agg", "jsonb_agg") and not part.distinct:
            return emitter.json(part.args[0], binary)
        if part.name in ("json_object_agg", "jsonb_object_agg"):
            return f"({emitter.value(part.args[0])}, {emitter.json(part.args[1], binary)})"
        if part.name == "string_agg" and not part.distinct:
            return f"({emitter.value(part.args[0])}, {emitter.value(part.args[1])})"
        return emitter.value(part.args[0])

    def _applied(self, part: Aggregate, emitter: Emitter, values: str) -> str:
        kind = part.args[0].type
        same, order = (_name_of(emitter, key) for key in (agg.same_key(kind), agg.order_key(kind)))
        if part.distinct and part.name == "count":
            return f"{emitter.bind(agg.counted)}({values}, {same})"
        if part.distinct:
            values = self._distinct(part, emitter, f"{emitter.bind(agg.without_repeats)}({values}, {same}, {order})")
        if part.name in ("min", "max"):
            return f"{emitter.bind(agg.least if part.name == 'min' else agg.greatest)}({values}, {order})"
        if part.name == "count":
            return f"{emitter.bind(agg.present)}({values})"
        return f"{emitter.bind(aggregate_function(part))}({values})"

    def _distinct(self, part: Aggregate, emitter: Emitter, values: str) -> str:
        """Values without repeats, as the aggregate takes them."""
        if part.order:
            raise self._text.refused("DISTINCT with ORDER BY in one aggregate", part.location, hint="use one of them")
        if part.name in ("json_agg", "jsonb_agg"):
            function = json_or_null(part.args[0].type, part.name == "jsonb_agg")
            return f"{emitter.bind(agg.each)}({emitter.bind(function)}, {values})"
        if part.name == "string_agg":
            return f"{emitter.bind(agg.paired)}({values}, {emitter.value(part.args[1])})"
        return values

    def _output(self, query: Select, emitter: Emitter) -> str:
        """A row of the result, behind its sort keys."""
        values = "".join(f"{emitter.value(expression)}, " for _, expression in query.outputs)
        keys = "".join(f"{self._sort_key(emitter, sort)}, " for sort in query.order)
        distinct = query.distinct_on or ([e for _, e in query.outputs] if query.distinct else [])
        sames = "".join(f"{self._same(emitter, expression)}, " for expression in distinct)
        return f"(({keys}), ({sames}), ({values}))"

    def _finish(self, query: Select, code: _Code) -> None:
        """Order, then drop repeats, then count."""
        if query.order:
            code.add(f"out = {self._space.bound(agg.in_order, 'f')}(out, {_directions(query.order)})")
        if query.distinct:
            code.add("out = list({o[1]: o for o in reversed(out)}.values())[::-1]")
        if query.offset or query.limit is not None:
            end = "" if query.limit is None else query.offset + query.limit
            code.add(f"out = out[{query.offset}:{end}]")
        code.add("return [o[2] for o in out]")

    def _same(self, emitter: Emitter, expression: Expr) -> str:
        key = agg.same_key(expression.type)
        source = emitter.value(expression)
        if key is None:
            return source
        test, held = emitter.held(source)
        return f"(None if {test} is None else {emitter.bind(key)}({held}))"

    def _sort_key(self, emitter: Emitter, sort: Sort) -> str:
        key = agg.order_key(sort.by.type)
        source = emitter.value(sort.by)
        if key is None:
            return source
        test, held = emitter.held(source)
        return f"(None if {test} is None else {emitter.bind(key)}({held}))"

    def _row_names(self, steps: Sequence[Step]) -> str:
        names = [f"r{source.number}" for step in steps for source in _bound(step)]
        return names[0] if len(names) == 1 else f"({''.join(name + ', ' for name in names)})"

    def _walk(self, steps: Sequence[Step], emitter: Emitter, code: _Code) -> None:
        """Loops over the rows of each step, one within the other. The next line added stands in the innermost."""
        for step in steps:
            if isinstance(step, Fetch):
                self._fetches.append(step)
                self._lookups.setdefault(step.source.number, {})
                table = f"L{step.source.number}"
                self._space.names[table] = self._lookups[step.source.number]
                code.add(f"for r{step.source.number} in {self._rows(emitter, step, table)}:")
            elif isinstance(step, Spread):
                args = ", ".join(emitter.value(arg) for arg in step.source.series)
                name = emitter.bind(series_function(step.source.series[0].type))
                code.add(f"for r{step.source.number} in {name}({args}):")
            elif isinstance(step, Derive):
                name = self._function(step.plan, any_order_of(step.plan.query))
                code.add(f"for r{step.source.number} in {name}({_arguments(step.plan)}):")
            else:
                self._outer(step, emitter, code)
            code.depth += 1
            for condition in step.filters:
                code.add(f"if not {emitter.truth(condition)}: continue")

    def _rows(self, emitter: Emitter, step: Fetch, table: str) -> str:
        """The source of a lookup: of all rows, or of those that a range holds."""
        plan, key = self._ranged, self._tie(emitter, step)
        found = range_of(step, plan) if plan is not None and step in plan.steps else None
        if found is None:
            return f"{table}.get({key}, ())"
        name = self._space.fresh("k")
        low, high = ("..." if end is None else emitter.value(end) for end in (found.low, found.high))
        place, backwards = step.source.index(found.column), found.first == "greatest"
        ends = f"lambda: ({low}, {high}), {(found.low_open, found.high_open, backwards)}"
        rows = f"{table}.get(({name} := {key}), ())"
        return f"{emitter.bind(rows_between)}({rows}, {self._cache()}, {name}, {place}, {ends})"

    def _tie(self, emitter: Emitter, step: Fetch) -> str:
        values = [self._same(emitter, value) for value in step.values]
        return values[0] if len(values) == 1 else f"({', '.join(values)})"

    def _outer(self, step: Outer, emitter: Emitter, code: _Code) -> None:
        found = self._space.fresh("x")
        names = self._row_names([step])
        begin = code.depth
        code.add(f"{found} = []")
        self._walk(step.steps, emitter, code)
        code.add(f"{found}.append({names})")
        code.depth = begin
        null = self._space.bound(_NULL_ROW, "null")
        lacking = null if len(step.sources) == 1 else f"({''.join(null + ', ' for _ in step.sources)})"
        code.add(f"for {names} in {found} or ({lacking},):")


def _first_decides(step: Step, plan: Arranged) -> bool:
    found = range_of(step, plan) if isinstance(step, Fetch) else None
    return found is not None and bool(found.first)


def _arguments(plan: Arranged) -> str:
    return ", ".join(f"r{source.number}" for source in needed(plan))


def _bound(step: Step) -> list[Source]:
    if not isinstance(step, Outer):
        return [step.source]
    return [source for inner in step.steps for source in _bound(inner)]


def _name_of(emitter: Emitter, function: Any) -> str:
    return "None" if function is None else emitter.bind(function)


def _directions(order: Sequence[Sort]) -> str:
    return repr(tuple((sort.descending, sort.nulls_first) for sort in order))
