"""A grouped view's SELECT as two functions: what a row of the driving table contributes, and a group's row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cdc.views.calls import ORDER_MATTERS
from cdc.views.chains import Arranged
from cdc.views.compiling import Program, _Code, _Compiling
from cdc.views.emitting import Emitter
from cdc.views.syntax import ViewText
from cdc.views.term_walks import shape
from cdc.views.terms import Aggregate, Expr, Select, Source

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
