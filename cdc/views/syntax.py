"""A SELECT's text by Postgres's own grammar: libpg_query through the binding ``postgast`` (BSD-2). And the meaning of
its names: the sources that are in reach, inside and outside of a subquery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.process.errors import ConfigError
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.views.sql_types import SqlType, type_of
from cdc.views.terms import Expr, Select, Source, WholeRow

try:
    import postgast
    from google.protobuf.message import DecodeError
except ImportError:  # the extra ``views``
    postgast = None

_INSTALL = "pip install 'headrace[views]'"
Node = Any
"""A node of libpg_query's tree: a protobuf message of ``pg_query.proto``."""


def select_of(sql: str) -> Node:
    """The one SELECT of a text. Raises :class:`ViewRefused` where the text is no SELECT, or not one."""
    if postgast is None:
        raise ConfigError("a view's text needs Postgres's grammar, which is not installed", hint=_INSTALL)
    if "\0" in sql:
        # libpg_query would read the text up to there, and no more.
        place = place_of(sql, len(sql.partition("\0")[0].encode()))
        raise ViewRefused("a NUL stands in the text", place=place, hint="save the file as text in UTF-8")
    try:
        statements = postgast.parse(sql).stmts
    except postgast.PgQueryError as failure:
        place = place_of(sql, failure.cursorpos - 1)
        raise ViewRefused(failure.message, place=place, hint="Postgres itself would not read this text") from None
    except DecodeError:
        raise nested_too_deeply() from None
    if len(statements) != 1:
        raise ViewRefused("a view is one SELECT", hint="keep one statement in the file")
    kind, statement = unwrapped(statements[0].stmt)
    if kind != "select_stmt":
        raise ViewRefused("a view is a SELECT", place=(1, 1))
    return statement


def nested_too_deeply() -> ViewRefused:
    """The error about a text whose parts stand in each other more often than they can be followed."""
    hint = "a FROM holds up to 20 tables; further ones stand in subqueries, or in a view of their own"
    return ViewRefused("the view is nested too deeply", hint=hint)


def unwrapped(node: Node) -> tuple[str, Node]:
    """A node's kind and the node within."""
    kind = node.WhichOneof("node")
    return kind, getattr(node, kind)


def texts(nodes: Node) -> list[str]:
    """The strings of a list of nodes, such as the parts of a name."""
    return [node.string.sval for node in nodes]


class ViewText:
    """A view's text, which refusals quote."""

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def refused(self, reason: str, location: int = -1, *, word: str | None = None, hint: str = "") -> ViewRefused:
        """The error about a place of the text, which the byte names where it begins."""
        if word is None:
            word = word_at(self.sql, location) if location >= 0 else ""
        return ViewRefused(reason, word=word, place=place_of(self.sql, location), hint=hint)


_LONGEST = 200
"""Letters of a reason that are shown. Postgres's own words quote a text whose quote has no end up to its last line."""


class ViewRefused(ConfigError):
    """A view's SELECT lies outside of what can be kept true. ``word`` and ``place`` name what is in the way.

    ``place``: ``(line, column)`` in the text, both from 1, or None where the text has no single place for it. A
    reason is one line, whatever it quotes.
    """

    def __init__(self, reason: str, *, word: str = "", place: tuple[int, int] | None = None, hint: str = "") -> None:
        self.reason = reason = _in_one_line(reason)
        self.word = word
        self.place = place
        where = f"line {place[0]}, column {place[1]}: " if place is not None else ""
        said = f"{_in_one_line(word)!r}: " if word else ""
        super().__init__(f"{where}{said}{reason}", hint=hint)


def _in_one_line(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


class NotComputable(ValueError):
    """Postgres itself would end the query with an error on this value (a division by zero, an overflow).

    The document is parked by its key. ``str()`` of it is a sentence without values of a row.
    """


def place_of(sql: str, location: int) -> tuple[int, int] | None:
    """Line and column, from 1, of a byte offset in the text. None for an unknown one.

    >>> place_of("select a,\\n  é, b", 16)
    (2, 6)
    """
    if location < 0:
        return None
    before = sql.encode()[:location].decode(errors="replace")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def word_at(sql: str, location: int) -> str:
    """The word that begins at a byte offset, or the sign that stands there.

    >>> word_at("select now() from t", 7)
    'now'
    """
    rest = sql.encode()[max(location, 0) :].decode(errors="replace")
    end = next((i for i, c in enumerate(rest) if not (c.isalnum() or c in '_."')), len(rest))
    return rest[: end or 1]


@dataclass(slots=True)
class NameScope:
    """The names of a SELECT's FROM, and of those around it. ``merged``: columns of a join's USING, by name."""

    above: NameScope | None = None
    sources: list[Source] = field(default_factory=list)
    merged: dict[str, Expr] = field(default_factory=dict)
    filters: list[Expr] = field(default_factory=list)
    """Conditions of queries in the FROM whose tables stand in their place."""

    def by_alias(self, alias: str) -> Source | None:
        """The nearest source of that name."""
        reach: NameScope | None = self
        while reach is not None:
            for source in reach.sources:
                if source.alias == alias:
                    return source
            reach = reach.above
        return None


@dataclass(slots=True)
class Catalog:
    """The tables that a view may read. ``search_path``: schemas, for names without one."""

    tables: Mapping[TableName, TableSchema]
    search_path: tuple[str, ...] = ("public",)
    collation: str = ""
    """The database's collation, where it is known to be C."""

    def table(self, text: ViewText, schema: str, name: str, location: int) -> TableSchema:
        """A table by its name. :class:`cdc.views.syntax.ViewRefused` where it is not captured."""
        for candidate in (schema,) if schema else self.search_path:
            found = self.tables.get(TableName(candidate, name))
            if found is not None:
                return found
        hint = "add it to `tables` in cdc.toml; a view reads captured tables alone"
        raise text.refused(f"the table {schema + '.' if schema else ''}{name} is not captured", location, hint=hint)


@dataclass(slots=True)
class Numbered:
    """Makes sources, each with a number of its own."""

    text: ViewText
    made: list[Source] = field(default_factory=list)
    used: dict[TableName, list[str]] = field(default_factory=dict)
    """Columns of each table, one list for all its occurrences: what one has fetched serves the others."""

    def table(self, schema: TableSchema, alias: str, location: int) -> Source:
        """An occurrence of a table."""
        columns = tuple((column.name, type_of(column)) for column in schema.columns)
        used = self.used.setdefault(schema.table, [])
        source = Source(len(self.made), alias, location, table=schema, columns=columns, used=used)
        self.made.append(source)
        return source

    def series(self, args: tuple[Expr, ...], alias: str, location: int, name: str) -> Source:
        """A series of rows, with the one column ``name``."""
        source = Source(len(self.made), alias, location, columns=((name, args[0].type),), series=args)
        self.made.append(source)
        return source

    def query(self, query: Select, alias: str, location: int, names: list[str]) -> Source:
        """An occurrence of a query in a FROM. ``names`` replace those of its first columns."""
        outputs = [(names[i] if i < len(names) else name, e) for i, (name, e) in enumerate(query.outputs)]
        query.outputs = outputs
        columns = tuple((name, expression.type) for name, expression in outputs)
        source = Source(len(self.made), alias, location, query=query, columns=columns)
        self.made.append(source)
        return source


def column(text: ViewText, reach: NameScope, parts: list[str], location: int) -> Expr:
    """A column by its name, qualified or not. :class:`cdc.views.syntax.ViewRefused` for none and for several."""
    name = parts[-1]
    if len(parts) > 1:
        source = reach.by_alias(parts[-2])
        if source is None:
            raise text.refused(f"there is no table {parts[-2]} here", location)
        return _column_of(text, source, name, location)
    here: NameScope | None = reach
    while here is not None:
        if name in here.merged:
            return here.merged[name]
        having = [source for source in here.sources if source.type_of(name) is not None]
        if len(having) > 1:
            raise text.refused(f"the column {name} is in more than one table", location)
        if having:
            return _column_of(text, having[0], name, location)
        here = here.above
    raise text.refused(f"there is no column {name}", location)


def _column_of(text: ViewText, source: Source, name: str, location: int) -> Expr:
    kind = source.type_of(name)
    if kind is None:
        raise text.refused(f"{source.alias} has no column {name}", location)
    if not kind.carried:
        raise uncarried(text, "a column", kind, location)
    return source.column(name, location)


def uncarried(text: ViewText, what: str, kind: SqlType, location: int) -> ViewRefused:
    """The error about a value that a view cannot have."""
    hint = "leave the column out; stores have it from the table itself"
    return text.refused(f"a view cannot carry {what} of type {kind}", location, hint=hint)


def whole_row(text: ViewText, source: Source, location: int) -> WholeRow:
    """A source by its name alone. :class:`cdc.views.syntax.ViewRefused` where a column of it cannot be carried."""
    if source.inlined:
        raise text.refused("a view has no whole rows of this query", location, hint="name its columns")
    found = WholeRow(type=SqlType("record", fields=source.columns), source=source, location=location)
    for name, kind in found.type.members():
        if not kind.carried:
            raise uncarried(text, f"the column {name}", kind, location)
    return found


def names_column(reach: NameScope | None, name: str) -> bool:
    """Whether a name without a table is one of a column."""
    while reach is not None:
        if name in reach.merged or any(source.type_of(name) is not None for source in reach.sources):
            return True
        reach = reach.above
    return False
