"""How the rows of a view hang together: in which order they are looked up, and by which equal columns.

A table is tied to one that comes before it by columns that are equal. A source without such a tie is refused: a change
of it would concern every document. The order is worked out for each SELECT by itself. A tie stands in ON or in WHERE.
It is followed through a query in FROM as far as its columns are plain ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cdc.views.sql_types import Group
from cdc.views.syntax import ViewText
from cdc.views.term_walks import base_column, outer_references, references, shape
from cdc.views.terms import Col, Compare, Expr, From, Join, Select, Source, sources_of

_TIED = frozenset(
    {
        Group.BOOLEAN,
        Group.INTEGER,
        Group.NUMERIC,
        Group.TEXT,
        Group.DATE,
        Group.TIME,
        Group.TIMESTAMP,
        Group.TIMESTAMPTZ,
        Group.UUID,
        Group.ENUM,
    }
)
"""Groups of values by which rows are looked up."""


@dataclass(slots=True, eq=False)
class Fetch:
    """Look up rows of a table. ``columns`` of it equal ``values``, whose rows ``above`` come before. The root has none.

    ``single``: there is at most one. ``filters``: conditions that hold from here on.
    """

    source: Source
    columns: tuple[str, ...] = ()
    values: tuple[Expr, ...] = ()
    above: Source | None = None
    above_columns: tuple[str, ...] = ()
    single: bool = False
    filters: list[Expr] = field(default_factory=list)
    tied_by: list[Expr] = field(default_factory=list)
    """The conditions that the lookup fulfils by itself."""


@dataclass(slots=True, eq=False)
class Derive:
    """The rows of a query in FROM."""

    source: Source
    plan: Arranged
    single: bool = False
    filters: list[Expr] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Spread:
    """The rows of a series."""

    source: Source
    single: bool = False
    filters: list[Expr] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Outer:
    """The right part of a left join: where ``steps`` find nothing, each of its ``sources`` is a row of NULLs."""

    sources: list[Source]
    steps: list[Step]
    single: bool = False
    filters: list[Expr] = field(default_factory=list)


Step = Fetch | Derive | Spread | Outer


@dataclass(slots=True, eq=False)
class Arranged:
    """A SELECT with the order of its lookups. ``first``: conditions that need none. ``single``: one row at most."""

    query: Select
    steps: list[Step]
    first: list[Expr]
    single: bool


class Untied(Exception):
    """A source that no equal columns tie to those before it."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.alias)
        self.source = source


def arranged(text: ViewText, query: Select, root: Source | None = None) -> Arranged:
    """The order of a query's lookups. ``root``: the table whose rows come first, for the whole view.

    :class:`cdc.views.syntax.ViewRefused` where a table is tied to nothing.
    """
    try:
        return _Arranging(text, root).query(query, [], set())
    except Untied as untied:
        raise untied_refusal(text, untied.source) from None


def untied_refusal(text: ViewText, source: Source) -> Exception:
    """The refusal of a source that nothing ties."""
    return text.refused(
        f"no equal columns tie {source.alias} to the tables before it",
        source.location,
        hint="a view's tables hang together by column = column; a change of a row has to lead to its documents",
    )


class _Arranging:
    def __init__(self, text: ViewText, root: Source | None) -> None:
        self._text = text
        self._root = root

    def query(self, query: Select, injected: Sequence[Expr], unbound: set[Source]) -> Arranged:
        """``injected``: conditions from outside that rows have to fulfil, too. ``unbound``: not yet looked up."""
        unbound = unbound | set(query.sources())
        conditions = [*query.where, *injected]
        first = [c for c in conditions if not references(c) & unbound]
        rest = [c for c in conditions if c not in first]
        steps = self._group(query.tables, rest, [], unbound)
        single = query.limit == 1 or (query.grouped and not query.group)
        if query.grouped and query.group:
            fixed = self._fixed_shapes(injected)
            single = single or all(shape(by) in fixed for by in query.group)
        elif not query.grouped:
            single = single or all(step.single for step in steps)
        return Arranged(query, steps, first, single)

    def _fixed_shapes(self, conditions: Iterable[Expr]) -> list[object]:
        return [shape(c.left) for c in conditions if isinstance(c, Compare)]

    def _group(self, tables: list[From], own: list[Expr], hints: list[Expr], unbound: set[Source]) -> list[Step]:
        """Tables joined without an outer join, in an order in which each is tied to what comes before it."""
        items: list[From] = []
        conditions = list(own)
        for table in tables:
            _flatten(table, items, conditions)
        steps: list[Step] = []
        while items:
            found = self._next(items, [*conditions, *hints], unbound)
            if found is None:
                raise Untied(sources_of(items[0])[0])
            item, added = found
            items.remove(item)
            unbound.difference_update(sources_of(item))
            ready = [c for c in conditions if not references(c) & unbound]
            conditions = [c for c in conditions if c not in ready]
            tied = [c for step in added if isinstance(step, Fetch) for c in step.tied_by]
            added[-1].filters += [c for c in ready if c not in tied]
            steps += added
        return steps

    def _next(self, items: list[From], conditions: list[Expr], unbound: set[Source]) -> tuple[From, list[Step]] | None:
        for item in items:
            if self._root is not None and self._root not in sources_of(item) and self._root in unbound:
                continue
            try:
                return item, self._attach(item, conditions, unbound)
            except Untied:
                continue
        return None

    def _attach(self, item: From, conditions: list[Expr], unbound: set[Source]) -> list[Step]:
        if isinstance(item, Join):
            inner = set(unbound)
            left = self._group([item.left], [], conditions, inner)
            right = self._group([item.right], list(item.on), [], inner)
            unheard = [c for c in item.on if references(c) & inner]
            if unheard:
                raise Untied(sources_of(item.right)[0])
            sources = sources_of(item.right)
            return [*left, Outer(sources, right, all(step.single for step in right))]
        source = item.source
        equal = self._equal(source, conditions, unbound)
        if source.query is not None:
            return [self._derive(source, equal, unbound)]
        if source.series:
            if any(references(arg) & unbound for arg in source.series):
                raise Untied(source)
            return [Spread(source)]
        if source is self._root:
            return [Fetch(source, single=True)]
        return [self._fetch(source, equal)]

    def _equal(self, source: Source, conditions: list[Expr], unbound: set[Source]) -> list[tuple[str, Expr, Expr]]:
        """Columns of a source that equal something that is known before it, and the condition that says so."""
        found: list[tuple[str, Expr, Expr]] = []
        for condition in conditions:
            if isinstance(condition, Compare) and condition.op == "=" and not condition.distinct:
                for own, other in ((condition.left, condition.right), (condition.right, condition.left)):
                    column = _column(own, source)
                    if column is not None and not references(other) & unbound:
                        found.append((column, other, condition))
        return found

    def _fetch(self, source: Source, equal: list[tuple[str, Expr, Expr]]) -> Fetch:
        ties: dict[Source, dict[str, tuple[Expr, str, Expr]]] = {}
        for column, other, condition in equal:
            base = base_column(other)
            kind = source.type_of(column)
            if base is not None and kind is not None and kind.group in _TIED and column not in ties.get(base[0], {}):
                ties.setdefault(base[0], {})[column] = (other, base[1], condition)
        if not ties:
            raise Untied(source)
        key = set(source.key)
        # Of several, the one that says most of the key: it finds the fewest rows.
        above = max(ties, key=lambda s: (len(key & set(ties[s])), len(ties[s]), -s.number))
        columns = tuple(sorted(ties[above]))
        return Fetch(
            source,
            columns=columns,
            values=tuple(ties[above][c][0] for c in columns),
            above=above,
            above_columns=tuple(ties[above][c][1] for c in columns),
            tied_by=[ties[above][c][2] for c in columns],
            single=bool(key) and key <= {column for column, *_ in equal},
        )

    def _derive(self, source: Source, equal: list[tuple[str, Expr, Expr]], unbound: set[Source]) -> Derive:
        query = source.query
        assert query is not None
        injected = [c for column, other, _ in equal if (c := _pushed(query, column, other)) is not None]
        plan = self.query(query, injected, unbound - {source})
        return Derive(source, plan, plan.single)


def needed(plan: Arranged) -> list[Source]:
    """The sources outside of a query whose rows its lookups and its columns need, by their numbers."""
    own = set(plan.query.sources())
    found = _needed_by(plan.steps) | outer_references(plan.query)
    for condition in plan.first:
        found |= references(condition)
    return sorted(found - own, key=lambda source: source.number)


def _needed_by(steps: Iterable[Step]) -> set[Source]:
    found: set[Source] = set()
    for step in steps:
        for condition in step.filters:
            found |= references(condition)
        if isinstance(step, Fetch):
            for value in step.values:
                found |= references(value)
        elif isinstance(step, Derive):
            found |= set(needed(step.plan))
        elif isinstance(step, Spread):
            for arg in step.source.series:
                found |= references(arg)
        else:
            found |= _needed_by(step.steps)
    return found


def _flatten(table: From, items: list[From], conditions: list[Expr]) -> None:
    if isinstance(table, Join) and not table.left_outer:
        _flatten(table.left, items, conditions)
        _flatten(table.right, items, conditions)
        conditions += table.on
    else:
        items.append(table)


def _column(expression: Expr, source: Source) -> str | None:
    """The column of a source that an expression is."""
    while not isinstance(expression, Col):
        if not getattr(expression, "same_value", False):
            return None
        (expression,) = expression.parts()
    return expression.name if expression.source is source else None


def _pushed(query: Select, column: str, other: Expr) -> Compare | None:
    """The condition ``column = other`` inside of a query in FROM. None where it would say something else there."""
    expression = next(e for name, e in query.outputs if name == column)
    if query.limit is not None or query.offset or query.distinct_on:
        return None
    if query.grouped and shape(expression) not in [shape(by) for by in query.group]:
        return None
    kind = expression.type
    return Compare(type=replace(kind, kind="bool", array=False, name=""), op="=", left=expression, right=other)
