"""A whole SELECT: its FROM, its columns and its clauses, from the tree of Postgres's grammar to typed terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cdc.views.calls import CALL_HANDLERS, sort_of
from cdc.views.conversions import coerced, comparable
from cdc.views.date_functions import series_of
from cdc.views.expressions import Resolving, compared
from cdc.views.sql_types import TEXT
from cdc.views.syntax import Catalog, NameScope, Node, Numbered, ViewText, select_of, texts, unwrapped
from cdc.views.term_walks import as_exists, conjuncts, everything_of, refuse_masked, shape, walk
from cdc.views.terms import (
    Aggregate,
    Choice,
    Col,
    Const,
    Expr,
    From,
    FromItem,
    Join,
    Select,
    Sort,
    Source,
    Subquery,
    WholeRow,
)


@dataclass(frozen=True, slots=True)
class ResolvedSelect:
    """A view's SELECT as terms. ``sources``: all, those of subqueries too, by their numbers."""

    query: Select
    sources: tuple[Source, ...]
    notes: tuple[str, ...]


def resolved(sql: str, catalog: Catalog, *, inlined: bool = False) -> ResolvedSelect:
    """Names and types of a view's text. :class:`cdc.views.syntax.ViewRefused` for what a view may not be.

    ``inlined``: a plain query in the FROM of the whole view is taken apart, its tables stand in its place.
    """
    text = ViewText(sql)
    numbered = Numbered(text)
    selecting = _Selecting(text, catalog, numbered, inlined)
    query = selecting.query(select_of(sql), None)
    refuse_masked(text, query)
    return ResolvedSelect(query, tuple(numbered.made), tuple(selecting.on.notes))


_NAMES = {"case_expr": "case", "a_array_expr": "array", "sub_link": "exists"}


@dataclass(frozen=True, slots=True)
class _NamedQuery:
    """A query of a WITH. ``names``: of its columns. ``around`` and ``above``: the queries and the tables in its reach.

    Those are the ones of its place in the text, wherever it is used. Itself it does not see: within it its name is that
    of another query, or of a table.
    """

    select: Node
    names: list[str]
    around: dict[str, _NamedQuery]
    above: NameScope | None


class _Selecting:
    def __init__(self, text: ViewText, catalog: Catalog, numbered: Numbered, inlined: bool) -> None:
        self._text = text
        self._inlined = inlined
        self._named: dict[str, _NamedQuery] = {}
        self.on = Resolving(text, catalog, numbered, self.query, dict(CALL_HANDLERS))

    def query(self, node: Node, above: NameScope | None) -> Select:
        """One SELECT, in the reach of those around it."""
        self._refuse_clauses(node)
        before = self._named
        self._name_queries(node, above)
        reach = NameScope(above)
        query = Select(location=-1)
        query.tables = [self._from(item, reach, above is None) for item in node.from_clause]
        query.where = list(reach.filters)
        if node.HasField("where_clause"):
            query.where += [as_exists(c) for c in conjuncts(self.on.condition(node.where_clause, reach))]
            self._no_aggregates(query.where)
        query.outputs = self._outputs(node, reach)
        self._grouping(node, reach, query)
        self._ordering(node, reach, query)
        self._named = before
        return query

    def _refuse_clauses(self, node: Node) -> None:
        text = self._text
        if node.op != 1:
            raise text.refused(
                "a view may not hold UNION, INTERSECT or EXCEPT", word="", hint="make a view of each part"
            )
        if node.window_clause:
            raise text.refused("a view may not hold WINDOW")
        if node.locking_clause or node.HasField("into_clause"):
            raise text.refused("a view may not hold FOR UPDATE or INTO")
        if node.values_lists:
            raise text.refused("a view may not hold VALUES")
        if node.limit_option == 3:
            raise text.refused("a view may not hold WITH TIES")

    def _name_queries(self, node: Node, above: NameScope | None) -> None:
        if not node.HasField("with_clause"):
            return
        if node.with_clause.recursive:
            raise self._text.refused("a view may not hold WITH RECURSIVE", node.with_clause.location, word="with")
        given: set[str] = set()
        for wrapped in node.with_clause.ctes:
            named = wrapped.common_table_expr
            kind, select = unwrapped(named.ctequery)
            if kind != "select_stmt":
                raise self._text.refused("WITH holds a SELECT", named.location)
            if named.ctename in given:
                raise self._text.refused(f"WITH holds two queries named {named.ctename}", named.location)
            given.add(named.ctename)
            query = _NamedQuery(select, texts(named.aliascolnames), self._named, above)
            self._named = {**self._named, named.ctename: query}

    def _from(self, node: Node, reach: NameScope, whole: bool) -> From:
        """``whole``: an item of the whole view's FROM, whose rows no outer join leaves out."""
        kind, inner = unwrapped(node)
        if kind == "range_var":
            return self._item(self._table(inner, reach), reach, whole)
        if kind == "range_subselect":
            return self._item(self._derived(inner, reach), reach, whole)
        if kind == "join_expr":
            return self._join(inner, reach, whole)
        if kind == "range_function":
            return FromItem(self._series(inner, reach))
        raise self._text.refused("a FROM holds tables, subqueries and joins of them", getattr(inner, "location", -1))

    def _item(self, source: Source, reach: NameScope, whole: bool) -> From:
        """A source, or the tables of a plain query, where those are to stand in its place."""
        query = source.query
        if not (self._inlined and whole) or query is None or not query.plain:
            return FromItem(source)
        typed_outputs(self._text, query)
        source.inlined = True
        reach.filters += query.where
        first, *others = query.tables
        for other in others:
            first = Join(False, first, other, [])
        return first

    def _table(self, node: Node, reach: NameScope) -> Source:
        alias = node.alias.aliasname or node.relname
        if node.alias.colnames:
            raise self._text.refused("a table's columns keep their names", node.location)
        named = self._named.get(node.relname) if not node.schemaname else None
        if named is not None:
            before, self._named = self._named, named.around
            query = self.query(named.select, named.above)
            self._named = before
            made = self.on.numbered.query(query, alias, node.location, named.names)
        else:
            table = self.on.catalog.table(self._text, node.schemaname, node.relname, node.location)
            made = self.on.numbered.table(table, alias, node.location)
        return self._added(made, reach)

    def _derived(self, node: Node, reach: NameScope) -> Source:
        query = self.query(node.subquery.select_stmt, reach if node.lateral else reach.above)
        made = self.on.numbered.query(query, node.alias.aliasname, -1, texts(node.alias.colnames))
        return self._added(made, reach)

    def _series(self, node: Node, reach: NameScope) -> Source:
        calls = [unwrapped(one.list.items[0]) for one in node.functions]
        kind, call = calls[0]
        if kind != "func_call" or texts(call.funcname)[-1] != "generate_series" or node.ordinality or len(calls) > 1:
            hint = "of functions a view's FROM holds generate_series alone"
            raise self._text.refused("a view has no rows of this function", getattr(call, "location", -1), hint=hint)
        args = series_of(self._text, [self.on.expression(arg, reach) for arg in call.args], call.location)
        alias = node.alias.aliasname or "generate_series"
        names = texts(node.alias.colnames)
        return self._added(self.on.numbered.series(args, alias, call.location, (names or [alias])[0]), reach)

    def _added(self, source: Source, reach: NameScope) -> Source:
        if any(other.alias == source.alias for other in reach.sources):
            raise self._text.refused(f"the name {source.alias} stands twice in one FROM", source.location)
        reach.sources.append(source)
        return source

    def _join(self, node: Node, reach: NameScope, whole: bool) -> Join:
        if node.jointype == 3:  # JOIN_FULL
            raise self._text.refused("a view may not hold FULL JOIN", word="full join", hint="make a view of each side")
        begin = len(reach.sources)
        left = self._from(node.larg, reach, whole and node.jointype != 4)
        middle = len(reach.sources)
        right = self._from(node.rarg, reach, whole and node.jointype != 2)
        sides = reach.sources[begin:middle], reach.sources[middle:]
        if node.jointype == 4:  # JOIN_RIGHT
            left, right = right, left
        on = self._using(node, sides, reach)
        if node.HasField("quals"):
            on += [as_exists(c) for c in conjuncts(self.on.condition(node.quals, reach))]
        self._no_aggregates(on)
        return Join(node.jointype in (2, 4), left, right, on)

    def _using(self, node: Node, sides: tuple[list[Source], list[Source]], reach: NameScope) -> list[Expr]:
        names = texts(node.using_clause)
        if node.is_natural:
            names = [name for name in _names(sides[0]) if name in _names(sides[1])]
        found: list[Expr] = []
        for name in names:
            left, right = (self._side(name, side) for side in sides)
            found.append(compared(self.on, "=", left, right, -1))
            kept = right if node.jointype == 4 else left
            reach.merged[name] = kept
        return found

    def _side(self, name: str, sources: list[Source]) -> Expr:
        having = [source for source in sources if source.type_of(name) is not None]
        kind = having[0].type_of(name) if len(having) == 1 else None
        if kind is None:
            raise self._text.refused(f"USING names {name}, which is not in each side once")
        return having[0].column(name)

    def _outputs(self, node: Node, reach: NameScope) -> list[tuple[str, Expr]]:
        found: list[tuple[str, Expr]] = []
        for wrapped in node.target_list:
            target = wrapped.res_target
            kind, inner = unwrapped(target.val)
            if kind == "column_ref" and unwrapped(inner.fields[-1])[0] == "a_star":
                found += self._star(texts(inner.fields[:-1]), inner.location, reach)
            else:
                expression = self.on.expression(target.val, reach)
                found.append((target.name or self._name(target.val, expression), expression))
        return found

    def _star(self, qualifier: list[str], location: int, reach: NameScope) -> list[tuple[str, Expr]]:
        if not qualifier:
            merged = list(reach.merged.items())
            rest = [pair for s in reach.sources for pair in everything_of(s, location) if pair[0] not in reach.merged]
            return merged + rest
        source = reach.by_alias(qualifier[-1])
        if source is None:
            raise self._text.refused(f"there is no table {qualifier[-1]} here", location)
        return everything_of(source, location)

    def _name(self, node: Node, expression: Expr) -> str:
        """The name that Postgres gives to a column without one."""
        kind, inner = unwrapped(node)
        if kind in ("column_ref", "func_call"):
            return texts(inner.fields if kind == "column_ref" else inner.funcname)[-1]
        if kind == "type_cast":
            named = self._name(inner.arg, expression)
            return texts(inner.type_name.names)[-1] if named == "?column?" else named
        if kind in ("collate_clause", "a_indirection"):
            return self._name(inner.arg, expression)
        if isinstance(expression, Choice):
            return expression.name
        if isinstance(expression, Subquery) and expression.form == "scalar":
            return expression.query.outputs[0][0]
        return _NAMES.get(kind, "?column?")

    def _no_aggregates(
        self, expressions: Iterable[Expr], place: str = "WHERE and ON", hint: str = "use HAVING"
    ) -> None:
        for expression in expressions:
            for part in walk(expression):
                if isinstance(part, Aggregate):
                    raise self._text.refused(f"aggregates do not stand in {place}", part.location, hint=hint)

    def _grouping(self, node: Node, reach: NameScope, query: Select) -> None:
        for term in node.group_clause:
            query.group.append(self._grouped_by(term, reach, query))
        self._no_aggregates(query.group, "GROUP BY", hint="group by columns of the tables")
        if node.HasField("having_clause"):
            query.having = conjuncts(self.on.condition(node.having_clause, reach))
        aggregated = any(isinstance(p, Aggregate) for _, e in query.outputs for p in walk(e))
        query.grouped = bool(query.group or query.having or aggregated)
        if query.grouped:
            for _, output in query.outputs:
                self._check_grouped(output, query)

    def _grouped_by(self, node: Node, reach: NameScope, query: Select) -> Expr:
        kind, inner = unwrapped(node)
        if kind == "grouping_set":
            raise self._text.refused("a view may not hold GROUPING SETS, ROLLUP or CUBE", inner.location)
        by = self._output_of(node, query)
        if by is None and kind == "column_ref" and len(inner.fields) == 1:
            name = texts(inner.fields)[0]
            here = name in reach.merged or any(s.type_of(name) is not None for s in reach.sources)
            by = None if here else next((e for n, e in query.outputs if n == name), None)
        by = by if by is not None else self.on.expression(node, reach)
        comparable(self._text, by.type, by.location, ordered=False, collated=True)
        return by

    def _output_of(self, node: Node, query: Select) -> Expr | None:
        """The column that a number names."""
        kind, inner = unwrapped(node)
        if kind != "a_const" or inner.WhichOneof("val") != "ival":
            return None
        number = inner.ival.ival
        if not 1 <= number <= len(query.outputs):
            raise self._text.refused(f"there is no column {number}", inner.location)
        found: Expr = query.outputs[number - 1][1]
        return found

    def _check_grouped(self, expression: Expr, query: Select) -> None:
        grouped = [shape(by) for by in query.group]
        keyed = {by.source for by in query.group if isinstance(by, Col)}
        whole = {s for s in keyed if s.key and all(("column", s.number, c) in grouped for c in s.key)}
        self._check_part(expression, grouped, whole, set(query.sources()))

    def _check_part(self, part: Expr, grouped: list[object], whole: set[Source], own: set[Source]) -> None:
        if isinstance(part, Aggregate | Const) or shape(part) in grouped:
            return
        if isinstance(part, Col | WholeRow) and part.source in own and part.source not in whole:
            name = part.name if isinstance(part, Col) else part.source.alias
            raise self._text.refused(f"{name} stands neither in GROUP BY nor in an aggregate", part.location)
        for inner in part.parts():
            self._check_part(inner, grouped, whole, own)

    def _ordering(self, node: Node, reach: NameScope, query: Select) -> None:
        query.distinct = bool(node.distinct_clause)
        for term in node.distinct_clause:
            if term.WhichOneof("node") is not None:
                query.distinct_on.append(self.on.expression(term, reach))
        if query.distinct:
            for expression in query.distinct_on or [e for _, e in query.outputs]:
                comparable(self._text, expression.type, expression.location, ordered=False, collated=True)
        query.order = [self._sort(term, reach, query) for term in node.sort_clause]
        query.limit = self._count(node, "limit_count")
        query.offset = self._count(node, "limit_offset") or 0

    def _sort(self, node: Node, reach: NameScope, query: Select) -> Sort:
        term = node.sort_by.node
        by = self._output_of(term, query)
        kind, inner = unwrapped(term)
        if by is None and kind == "column_ref" and len(inner.fields) == 1:
            by = next((e for n, e in query.outputs if n == texts(inner.fields)[0]), None)
        return sort_of(self.on, node, by if by is not None else self.on.expression(term, reach))

    def _count(self, node: Node, name: str) -> int | None:
        if not node.HasField(name):
            return None
        kind, inner = unwrapped(getattr(node, name))
        if kind == "a_const" and inner.isnull:
            return None
        if kind != "a_const" or inner.WhichOneof("val") != "ival":
            raise self._text.refused("LIMIT and OFFSET are numbers in a view", getattr(inner, "location", -1))
        return int(inner.ival.ival)


def _names(sources: list[Source]) -> list[str]:
    return [name for source in sources for name, _ in source.columns]


def typed_outputs(text: ViewText, query: Select) -> None:
    """Give a type to literals among the columns of the whole view, as Postgres does: text."""
    query.outputs = [(n, coerced(text, e, TEXT) if e.type.kind == "unknown" else e) for n, e in query.outputs]
