"""The meaning of a name in a SELECT: the sources that are in reach, inside and outside of a subquery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.views.sql_types import SqlType, type_of
from cdc.views.syntax import ViewRefused, ViewText
from cdc.views.terms import Expr, Select, Source, WholeRow


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
