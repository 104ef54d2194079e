"""The plan of a view: from its text and the shapes of the tables, what is kept, looked up and computed. Pure.

A document view has a row for each row of its root: the table that each other one is tied to by at most one row. Its key
is the root's key, so the key's columns have to be among those of the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.views.compiling import Program, compiled
from cdc.views.group_plan import Grouping, grouping
from cdc.views.join_order import Arranged, Fetch, Outer, Spread, Step, Untied, _Arranging, untied_refusal
from cdc.views.selecting import ResolvedSelect, resolved, typed_outputs
from cdc.views.sql_types import SqlType, type_of
from cdc.views.syntax import Catalog, ViewRefused, ViewText, nested_too_deeply, uncarried
from cdc.views.term_walks import base_column, taint_of
from cdc.views.terms import FromItem, Join, Select, Source


@dataclass(frozen=True, slots=True)
class Tie:
    """``columns`` of an occurrence equal ``above_columns`` of occurrence ``above``. ``single``: of one row at most."""

    columns: tuple[str, ...]
    above: int
    above_columns: tuple[str, ...]
    single: bool


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A table where it stands in the view. ``columns``: those of its rows, in their order. The root has no tie."""

    number: int
    alias: str
    table: TableName
    columns: tuple[str, ...]
    tie: Tie | None


@dataclass(frozen=True, slots=True)
class KeptTable:
    """The columns and indexes of a table that the state keeps. ``columns``: those that the view uses, the key's first.

    ``indexed``: lists of columns by which rows are looked up. ``kinds``: a type for each column. ``masked``: those of
    which the view computes nothing, because their values are masked, each with its mask as it was noted in the
    ``version`` of the table's shape that the plan was made over. ``summed``: whether the text has a sum.
    """

    table: TableName
    columns: tuple[str, ...]
    kinds: tuple[SqlType, ...]
    key: tuple[str, ...]
    indexed: tuple[tuple[str, ...], ...]
    masked: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    summed: bool = False

    def kind(self, column: str) -> SqlType:
        """The type of a column."""
        return self.kinds[self.columns.index(column)]


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """All that an engine needs. ``occurrences`` stand behind those that they are tied to. The root is the first.

    ``key``: pairs of a column of the root's key and the view's column that has it. ``outputs``: names and types of the
    view's columns. ``notes``: what the person who checks the view should know. ``grouping``: of a view whose rows are
    groups. Then each pair of ``key`` names the view's column twice. ``masked``: the view's columns that are masked, or
    carry masked values.
    """

    sql: str
    root: Occurrence
    occurrences: tuple[Occurrence, ...]
    relations: Mapping[TableName, KeptTable]
    key: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, SqlType], ...]
    notes: tuple[str, ...]
    program: Program = field(compare=False, repr=False)
    grouping: Grouping | None = None
    masked: tuple[str, ...] = ()

    @property
    def key_kinds(self) -> tuple[SqlType, ...]:
        """The types of the key's columns."""
        if self.grouping is not None:
            return self.grouping.keys
        return tuple(self.relations[self.root.table].kind(column) for column, _ in self.key)

    def of_table(self, table: TableName) -> list[Occurrence]:
        """Where a table stands in the view."""
        return [occurrence for occurrence in self.occurrences if occurrence.table == table]


def planned(
    sql: str, tables: Iterable[TableSchema], *, search_path: tuple[str, ...] = ("public",), collation: str = ""
) -> ViewPlan:
    """The plan of a view's text over captured tables.

    ``collation``: the database's, where it is C. ViewRefused, with the word and its place, for what cannot be kept
    true.
    """
    catalog = Catalog({table.table: table for table in tables}, search_path, collation)
    try:
        try:
            return _planned(sql, resolved(sql, catalog))
        except ViewRefused:
            # The tables of a query in FROM may do what the query does not: be the root, or tie another table.
            return _planned(sql, resolved(sql, catalog, inlined=True))
    except (RecursionError, SyntaxError):
        # Python's limits: of calls within calls, and of 20 loops within loops, one for each table of a FROM.
        raise nested_too_deeply() from None


def _planned(sql: str, found: ResolvedSelect) -> ViewPlan:
    text = ViewText(sql)
    query = found.query
    typed_outputs(text, query)
    _refuse_shape(text, query)
    root, plan = _rooted(text, query)
    groups = None
    if query.grouped:
        groups, program, names = grouping(text, query, plan, root)
        key = tuple((name, name) for name in names)
    else:
        key = _key(text, query, root)
        program = compiled(text, plan, root)
    _use_what_ties(root, program.fetches)
    occurrences = tuple(map(_occurrence, _sorted(root, program.fetches)))
    summed = "sum" in sql.lower()
    relations = {t: replace(one, summed=summed) for t, one in _relations(root, program.fetches).items()}
    outputs = tuple((name, expression.type) for name, expression in query.outputs)
    masked = tuple(name for name, expression in query.outputs if taint_of(expression) is not None)
    return ViewPlan(sql, occurrences[0], occurrences, relations, key, outputs, found.notes, program, groups, masked)


def _refuse_shape(text: ViewText, query: Select) -> None:
    if query.limit is not None or query.offset:
        raise text.refused("a view's rows cannot be counted off", word="limit", hint="LIMIT stands in subqueries")
    if query.distinct:
        raise text.refused("the rows of a view differ by their key already", word="distinct")
    if not query.tables:
        raise text.refused("a view reads tables", word="", hint="it needs a FROM")
    names = [name for name, _ in query.outputs]
    for name in names:
        if names.count(name) > 1 or name == "?column?":
            said = f"two columns are named {name}" if name != "?column?" else "a column has no name"
            raise text.refused(said, word="", hint="give each column a name with AS")
    for name, expression in query.outputs:
        if not expression.type.passed:
            raise uncarried(text, f"the column {name}", expression.type, expression.location)
        if expression.type.kind == "record":
            raise text.refused(f"the column {name} is a whole row", expression.location, hint="row_to_json(…) of it")


def _candidates(query: Select) -> list[Source]:
    """Tables whose rows may be the view's: those that no outer join leaves out."""
    found: list[Source] = []

    def visit(table: FromItem | Join) -> None:
        if isinstance(table, FromItem):
            if table.source.table is not None:
                found.append(table.source)
            return
        visit(table.left)
        if not table.left_outer:
            visit(table.right)

    for table in query.tables:
        visit(table)
    return found


def _rooted(text: ViewText, query: Select) -> tuple[Source, Arranged]:
    candidates = _candidates(query)
    if not candidates:
        raise text.refused("a view has a table of its own in FROM", word="", hint="the root is a table, not a subquery")
    untied: Untied | None = None
    several: tuple[Source, Step] | None = None
    for root in candidates:
        try:
            plan = _Arranging(text, root).query(query, [], set())
        except Untied as failure:
            untied = untied or failure
            continue
        many = next((step for step in plan.steps if not (step.single or (query.grouped and _spreads(step)))), None)
        if many is None:
            if not root.key:
                raise text.refused(f"{root.alias} has no key, so its documents would have none", root.location)
            return root, plan
        several = several or (root, many)
    if several is not None:
        root, step = several
        source = step.sources[0] if isinstance(step, Outer) else step.source
        hint = f"collect them: (select json_agg(…) from … where …), or tie {source.alias} by its key"
        raise text.refused(f"{source.alias} multiplies {root.alias}", source.location, hint=hint)
    assert untied is not None
    raise untied_refusal(text, untied.source)


def _spreads(step: Step) -> bool:
    """Whether the rows that it gives for one are a series. A row may stand in several groups."""
    return isinstance(step, Spread) or (isinstance(step, Outer) and all(s.single or _spreads(s) for s in step.steps))


def _key(text: ViewText, query: Select, root: Source) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for column in root.key:
        name = next((n for n, e in query.outputs if base_column(e) == (root, column)), None)
        if name is None:
            hint = f"select {root.alias}.{column}: it is in the key of each document"
            raise text.refused(f"{column} of {root.alias} is not among the columns", root.location, hint=hint)
        pairs.append((column, name))
    return tuple(pairs)


def _use_what_ties(root: Source, fetches: Iterable[Fetch]) -> None:
    """Rows have the columns by which others are found, and those of their key."""
    for column in root.key:
        root.index(column)
    for fetch in fetches:
        assert fetch.above is not None
        for column in fetch.above_columns:
            fetch.above.index(column)
        for column in (*fetch.columns, *fetch.source.key):
            fetch.source.index(column)


def _sorted(root: Source, fetches: Iterable[Fetch]) -> list[tuple[Source, Fetch | None]]:
    """Each behind the one that it is tied to."""
    ordered: list[tuple[Source, Fetch | None]] = [(root, None)]
    waiting = list(fetches)
    while waiting:
        known = {source for source, _ in ordered}
        ready = [fetch for fetch in waiting if fetch.above in known]
        assert ready, "a table is tied to none that is known"
        ordered += [(fetch.source, fetch) for fetch in ready]
        waiting = [fetch for fetch in waiting if fetch not in ready]
    return ordered


def _occurrence(pair: tuple[Source, Fetch | None]) -> Occurrence:
    source, fetch = pair
    assert source.table is not None
    tie = None
    if fetch is not None and fetch.above is not None:
        tie = Tie(fetch.columns, fetch.above.number, fetch.above_columns, fetch.single)
    return Occurrence(source.number, source.alias, source.table.table, tuple(source.used), tie)


def _relations(root: Source, fetches: Iterable[Fetch]) -> dict[TableName, KeptTable]:
    used: dict[TableName, tuple[TableSchema, set[str], set[tuple[str, ...]]]] = {}

    def note(source: Source, indexed: tuple[str, ...] | None) -> None:
        assert source.table is not None
        _, columns, indexes = used.setdefault(source.table.table, (source.table, set(), set()))
        columns.update(source.used)
        if indexed and indexed != source.key:
            indexes.add(indexed)

    note(root, None)
    for fetch in fetches:
        assert fetch.above is not None
        note(fetch.source, fetch.columns)
        note(fetch.above, fetch.above_columns)
    return {table: _relation(*kept) for table, kept in used.items()}


def _relation(table: TableSchema, used: set[str], indexes: set[tuple[str, ...]]) -> KeptTable:
    key = tuple(column.name for column in table.key)
    names = (*key, *(c.name for c in table.columns if c.name in used and c.name not in key))
    kinds = {column.name: type_of(column) for column in table.columns}
    masked = {column: rule for column, rule in table.noted_masks.items() if column in names}
    typed = tuple(kinds[name] for name in names)
    return KeptTable(table.table, names, typed, key, tuple(sorted(indexes)), masked, table.version)
