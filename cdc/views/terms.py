"""A view's SELECT with its names and types resolved: what is between the text and the plan.

Expressions carry their type and the byte offset of their word in the text. Nothing here is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cdc.record.schema import TableSchema
from cdc.views.sql_types import SqlType


@dataclass(eq=False, slots=True)
class Source:
    """An occurrence of a table, or of a query, in a FROM. Identity is equality: one table may occur several times.

    ``number``: unique in the view, in the order of the text. ``table`` is None for a query's occurrence.
    """

    number: int
    alias: str
    location: int
    table: TableSchema | None = None
    query: Select | None = None
    columns: tuple[tuple[str, SqlType], ...] = ()
    used: list[str] = field(default_factory=list)
    """Columns of a table that the view reads, in the order of its rows."""
    series: tuple[Expr, ...] = ()
    """The arguments of generate_series(), where its rows are those of a series."""
    inlined: bool = False
    """Whether the tables of its query stand in its place: its columns are the expressions of the query."""

    def type_of(self, name: str) -> SqlType | None:
        """The type of a column. None where it has no such column."""
        return next((kind for column, kind in self.columns if column == name), None)

    def column(self, name: str, location: int = -1) -> Expr:
        """A column that it has."""
        if self.inlined and self.query is not None:
            return next(expression for column, expression in self.query.outputs if column == name)
        kind = self.type_of(name)
        assert kind is not None
        return Col(type=kind, source=self, name=name, location=location)

    def index(self, name: str) -> int:
        """Where a column stands in a row. It is used from now on."""
        if self.query is not None or self.series:
            return next(i for i, (column, _) in enumerate(self.columns) if column == name)
        if name not in self.used:
            self.used.append(name)
        return self.used.index(name)

    @property
    def key(self) -> tuple[str, ...]:
        """The names of a table's key columns."""
        return tuple(column.name for column in self.table.key) if self.table is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expr:
    """``type`` of the value. ``location``: the byte in the text where its word begins, -1 for none."""

    type: SqlType
    location: int = -1

    def parts(self) -> Sequence[Expr]:
        """The expressions in it, those of subqueries left out."""
        return ()

    def queries(self) -> Sequence[Select]:
        """The subqueries in it, but not in its parts."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Col(Expr):
    """A column of a source."""

    source: Source
    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Const(Expr):
    """A constant. ``value``: as the engine computes with it. None is NULL."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionCall(Expr):
    """A function of its arguments. ``strict``: NULL where any argument is.

    ``same_value``: a cast after which equal values are those that were equal before. ``one_scale``: a numeric that
    always has the same digits behind the point.
    """

    function: Any
    args: tuple[Expr, ...]
    strict: bool = True
    same_value: bool = False
    one_scale: bool = False

    def parts(self) -> Sequence[Expr]:
        return self.args


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compare(Expr):
    """``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=`` of two values of one type.

    ``distinct``: NULL is a value like others.
    """

    op: str
    left: Expr
    right: Expr
    distinct: bool = False

    def parts(self) -> Sequence[Expr]:
        return self.left, self.right


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logic(Expr):
    """``and``, ``or``, ``not``, with three values."""

    op: Literal["and", "or", "not"]
    args: tuple[Expr, ...]

    def parts(self) -> Sequence[Expr]:
        return self.args


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IsNull(Expr):
    """``is null`` and ``is not null``."""

    arg: Expr
    negated: bool

    def parts(self) -> Sequence[Expr]:
        return (self.arg,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IsTruth(Expr):
    """``is true``, ``is not false`` and the like. ``value`` None: ``is unknown``."""

    arg: Expr
    value: bool | None
    negated: bool

    def parts(self) -> Sequence[Expr]:
        return (self.arg,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case(Expr):
    """``case``: pairs of a condition and a result, and what is left."""

    whens: tuple[tuple[Expr, Expr], ...]
    default: Expr

    def parts(self) -> Sequence[Expr]:
        return (*(part for pair in self.whens for part in pair), self.default)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice(Expr):
    """``coalesce``, ``greatest``, ``least``: one of its arguments."""

    name: Literal["coalesce", "greatest", "least"]
    args: tuple[Expr, ...]

    def parts(self) -> Sequence[Expr]:
        return self.args


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InList(Expr):
    """``x in (…)``: equal to any of the items."""

    arg: Expr
    items: tuple[Expr, ...]
    negated: bool

    def parts(self) -> Sequence[Expr]:
        return self.arg, *self.items


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JsonObject(Expr):
    """``json_build_object`` and ``jsonb_build_object``."""

    members: tuple[tuple[Expr, Expr], ...]
    binary: bool

    def parts(self) -> Sequence[Expr]:
        return [part for pair in self.members for part in pair]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JsonArray(Expr):
    """``json_build_array`` and ``jsonb_build_array``."""

    items: tuple[Expr, ...]
    binary: bool

    def parts(self) -> Sequence[Expr]:
        return self.items


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToJson(Expr):
    """``to_json``, ``to_jsonb`` and ``row_to_json``: NULL stays NULL."""

    arg: Expr
    binary: bool

    def parts(self) -> Sequence[Expr]:
        return (self.arg,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrayOf(Expr):
    """``array[…]``"""

    items: tuple[Expr, ...]

    def parts(self) -> Sequence[Expr]:
        return self.items


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WholeRow(Expr):
    """A source by its name alone: all columns that it has now. Its type is a record."""

    source: Source


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subquery(Expr):
    """``scalar``: its one value. ``exists``. ``array``: its column. ``in``: whether ``arg`` is among them."""

    form: Literal["scalar", "exists", "array", "in"]
    query: Select
    arg: Expr | None = None
    negated: bool = False

    def parts(self) -> Sequence[Expr]:
        return () if self.arg is None else (self.arg,)

    def queries(self) -> Sequence[Select]:
        return (self.query,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """One term of an ORDER BY. ``nulls_first`` follows from the direction where the text does not have it."""

    by: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Aggregate(Expr):
    """An aggregate of the rows of a group. ``name``: ``count`` without arguments is ``count(*)``."""

    name: str
    args: tuple[Expr, ...]
    order: tuple[Sort, ...] = ()
    filter: Expr | None = None
    distinct: bool = False

    def parts(self) -> Sequence[Expr]:
        return (*self.args, *(sort.by for sort in self.order), *(() if self.filter is None else (self.filter,)))


@dataclass(eq=False, slots=True)
class FromItem:
    """A source in a FROM."""

    source: Source


@dataclass(eq=False, slots=True)
class Join:
    """Two parts of a FROM. ``left``: rows of the left part without a partner stay. ``on`` are conjuncts."""

    left_outer: bool
    left: From
    right: From
    on: list[Expr]


From = FromItem | Join


@dataclass(eq=False, slots=True, kw_only=True)
class Select:
    """A SELECT. ``where`` and ``having`` are conjuncts. ``grouped``: it has GROUP BY, HAVING or aggregates.

    ``outputs``: names and expressions. ``location``: where it begins in the text.
    """

    location: int
    tables: list[From] = field(default_factory=list)
    where: list[Expr] = field(default_factory=list)
    outputs: list[tuple[str, Expr]] = field(default_factory=list)
    grouped: bool = False
    group: list[Expr] = field(default_factory=list)
    having: list[Expr] = field(default_factory=list)
    distinct: bool = False
    distinct_on: list[Expr] = field(default_factory=list)
    order: list[Sort] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0

    @property
    def plain(self) -> bool:
        """Whether its rows are those of its tables that WHERE leaves, one for one."""
        counted = self.limit is not None or self.offset or self.distinct
        return bool(self.tables) and not (self.grouped or counted)

    def expressions(self) -> Iterator[Expr]:
        """All of its own, those of joins among them."""
        for table in self.tables:
            yield from _conditions(table)
        yield from self.where
        yield from (expression for _, expression in self.outputs)
        yield from self.group
        yield from self.having
        yield from self.distinct_on
        yield from (sort.by for sort in self.order)

    def sources(self) -> list[Source]:
        """All of its FROM."""
        return [source for table in self.tables for source in sources_of(table)]


def _conditions(table: From) -> Iterator[Expr]:
    if isinstance(table, FromItem):
        yield from table.source.series
    else:
        yield from _conditions(table.left)
        yield from _conditions(table.right)
        yield from table.on


def sources_of(table: From) -> list[Source]:
    """The sources of a part of a FROM, in the order of the text."""
    if isinstance(table, FromItem):
        return [table.source]
    return [*sources_of(table.left), *sources_of(table.right)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collated(Expr):
    """Text under the collation C, as ``collate "C"`` says."""

    arg: Expr

    def parts(self) -> Sequence[Expr]:
        return (self.arg,)
