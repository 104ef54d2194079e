"""A schema of pgsync as texts of views: what ``cdc view import`` writes. Pure.

After pgsync's ``schema.json`` (its README, "Schema", ``pgsync/node.py`` and ``pgsync/transform.py``): a tree of tables,
each tied to its parent by a foreign key, directly or through one more table. A node becomes a subquery, and a list of
nodes a ``json_agg``. A note says what is left out, or where it stands instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc.process.errors import ConfigError
from cdc.process.sql_files import quote_identifier, quote_literal
from cdc.process.untrusted_text import quoted

_ARROWS = re.compile(r"(#>>|#>|->>|->)")
_TEXTS = ("text", "varchar", "bpchar", "name")
_TAKEN = ("database", "index", "nodes")
_NOTES = {
    "plugins": "pgsync's plugins {} are not taken over: [views.{}] post names one function for each document",
    "setting": "the index's settings go into [sinks.search] settings, by table",
    "mapping": "the mapping goes into [sinks.search] mappings, by table: json columns have their shape's already",
    "mappings": "the mapping goes into [sinks.search] mappings, by table: json columns have their shape's already",
    "routing": "routing by {} is left out: a document is found by its key on any shard",
    "pipeline": "the ingest pipeline {} is left out: what it computes is written in the text, or in post",
}
"""Members of a document, and what stands in their place."""
_MOST_NESTED = 50
_CONCAT = {"columns!": [str], "destination!": str}
_KEYS = {"child!": [str], "parent!": [str]}
_RELATIONSHIP = {"through_tables": [str], "foreign_key": _KEYS}
_TRANSFORM = {"rename": {}, "replace": {}, "concat": (_CONCAT,)}
_NODE: dict[str, Any] = {"table!": str, "schema": str, "label": str, "columns": [str], "base_tables": [str]}
_NODE |= {"transform": _TRANSFORM, "relationship": _RELATIONSHIP, "children": [_NODE]}
"""The form of a node. A member with ``!`` has to be there. In a tuple: one, or a list of them."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the source. ``columns``: each with its kind (:mod:`cdc.wire.types`). ``key``: of its primary key."""

    schema: str
    name: str
    columns: Mapping[str, str]
    key: Sequence[str]

    @property
    def full(self) -> str:
        """``schema.name``."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """``columns`` of ``table`` refer to ``target_columns`` of ``target``. Tables are ``schema.name``."""

    table: str
    columns: Sequence[str]
    target: str
    target_columns: Sequence[str]


@dataclass(frozen=True, slots=True)
class ImportedView:
    """A view's name and text, and what the person who moves should know, each a sentence."""

    name: str
    sql: str
    notes: Sequence[str]


class ImportRefused(ConfigError):
    """A schema of pgsync cannot be written as a view."""


def imported(
    document: Mapping[str, Any],
    tables: Mapping[str, SourceTable],
    keys: Sequence[ForeignKey],
    reserved: Collection[str] = (),
) -> ImportedView:
    """One document of a schema as a view. ``tables``: by ``schema.name``. ``keys``: all foreign keys between them.
    ``reserved``: words that Postgres takes for names in quotes alone. All names are quoted without any.

    ImportRefused where a table or column is not there, it is not clear how two tables are tied, or a member is missing
    or of another kind.
    """
    name = str(document.get("index") or document.get("database") or "view")
    text = _Writer(tables, keys, frozenset(reserved))
    nodes = document.get("nodes")
    if not isinstance(nodes, Mapping):
        raise ImportRefused(f"the schema of {name} has no nodes", hint="it is a document of pgsync's schema.json")
    _require(_NODE, nodes, "nodes", f"the schema of {name}")
    try:
        sql = text.root(nodes)
    except ValueError as failure:  # a text with a NUL
        raise ImportRefused(f"the schema of {name}: {quoted(failure)}", hint="Postgres holds none") from None
    for member, value in document.items():
        note = _NOTES.get(member)
        if note is not None and value:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            text.notes.append(note.format(shown if isinstance(shown, str) else "", name))
        elif note is None and member not in _TAKEN:
            text.notes.append(f"{member} is left out")
    return ImportedView(re.sub(r"[^a-z0-9_]", "_", name.lower()), sql, tuple(dict.fromkeys(text.notes)))


def _require(form: Any, value: object, place: str, whose: str) -> None:
    """ImportRefused where a value is not of a form, with its place."""
    wanted = ""
    if isinstance(form, tuple):
        _require([*form] if isinstance(value, list) else form[0], value, place, whose)
    elif isinstance(form, dict):
        wanted = "" if isinstance(value, Mapping) else "an object"
        members: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        for name, of in form.items() if not wanted else ():
            member = name.removesuffix("!")
            found = members.get(member)
            if found or member != name:
                _require(of, found, f"{place}.{member}", whose)
    elif isinstance(form, list):
        wanted = "" if isinstance(value, list) else "a list"
        if place.count(".children") > _MOST_NESTED:
            raise ImportRefused(f"{whose} is nested more than {_MOST_NESTED} deep", hint="see its children")
        for number, one in enumerate(value) if isinstance(value, list) else ():
            _require(form[0], one, f"{place}[{number}]", whose)
    elif not _is_name(value):
        wanted = "a text"
    if wanted:
        raise ImportRefused(f"{whose} lacks {wanted} at {place}", hint="see pgsync's own description of schema.json")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


@dataclass(slots=True)
class _Writer:
    """Writes one view. ``aliases``: those that are taken."""

    tables: Mapping[str, SourceTable]
    keys: Sequence[ForeignKey]
    reserved: Collection[str]
    notes: list[str] = field(default_factory=list)
    aliases: set[str] = field(default_factory=set)

    def root(self, node: Mapping[str, Any]) -> str:
        table = self._table(node)
        alias = self._alias(table.name)
        members = dict(self._members(node, table, alias))
        shown = list(members.values())
        for column in reversed(table.key):
            if f"{alias}.{self._named(column)}" not in shown:
                members = {column: f"{alias}.{self._named(column)}", **members}
                self.notes.append(f"{column} is added: it is in the key of {table.full}, and so in the document's")
        lines = ",\n".join(f"  {value}{self._as(name, value)}" for name, value in members.items())
        return f"select\n{lines}\nfrom {self._sql(table)} {alias}\n"

    def _members(self, node: Mapping[str, Any], table: SourceTable, alias: str) -> Iterator[tuple[str, str]]:
        """Names and expressions of a node's members: its columns, what is made of them, and its children."""
        transform = node.get("transform") or {}
        own: dict[str, str] = {}
        for text in node.get("columns") or table.columns:
            name, value = self._column(str(text), table, alias)
            for old, new in _of(transform, "replace").get(name, {}).items():
                value = f"replace({value}, {quote_literal(str(old))}, {quote_literal(str(new))})"
            shown = _of(transform, "rename").get(name, name)
            if not _is_name(shown):
                raise ImportRefused(f"{table.full} renames {name} to what is no name", hint="name a text")
            own[shown] = value
        yield from own.items()
        concat = transform.get("concat") or []
        for made in [concat] if isinstance(concat, Mapping) else concat:
            yield str(made["destination"]), self._concat(made, own)
        for other in transform:
            if other == "move":
                self.notes.append("move is left out: pgsync reads it and does nothing with it")
            elif other == "mapping":
                self.notes.append("types of transform.mapping go into [sinks.search] mappings, by table")
            elif other not in ("rename", "replace", "concat"):
                raise ImportRefused(f"a transform {other} is not known", hint="rename, replace and concat are")
        for child in node.get("children") or ():
            yield str(child.get("label") or child["table"]), self._child(child, table, alias)

    def _column(self, text: str, table: SourceTable, alias: str) -> tuple[str, str]:
        """A column, or a path into a JSON column: ``doc->x->0->y`` is named ``doc_x_0_y``."""
        first, *rest = [part.strip() for part in _ARROWS.split(text)]
        if first not in table.columns:
            raise ImportRefused(f"{table.full} has no column {first}", hint=f"it has {', '.join(table.columns)}")
        value = f"{alias}.{self._named(first)}"
        for arrow, step in zip(rest[::2], rest[1::2], strict=True):
            value += f" {arrow} {step if step.isdigit() else quote_literal(step)}"
        name = "_".join([first, *(re.sub(r"[{}]", "", step) for step in rest[1::2])])
        return name, value

    def _concat(self, made: Mapping[str, Any], own: Mapping[str, str]) -> str:
        self.notes.append("concat leaves NULL and '' out, as pgsync does. pgsync also leaves 0 and false out")
        parts = [
            f"nullif(({own[name]})::text, '')" if name in own else quote_literal(str(name)) for name in made["columns"]
        ]
        return f"concat_ws({quote_literal(str(made.get('delimiter', '')))}, {', '.join(parts)})"

    def _child(self, node: Mapping[str, Any], parent: SourceTable, above: str) -> str:
        table = self._table(node)
        alias = self._alias(table.name)
        relation = node.get("relationship") or {}
        label = str(node.get("label") or node["table"])
        if relation.get("type") not in ("one_to_one", "one_to_many"):
            raise ImportRefused(
                f"the node {label} has no relationship", hint='its type is "one_to_one" or "one_to_many"'
            )
        tables, condition, order, single = self._tied(relation, table, alias, parent, above)
        members = dict(self._members(node, table, alias))
        many = relation["type"] == "one_to_many"
        ordered = ", ".join(order)
        if relation.get("variant") == "scalar":
            if len(members) != 1:
                raise ImportRefused(f"the scalar {label} has {len(members)} columns", hint="name one in its columns")
            (value,) = members.values()
        else:
            pairs = ", ".join(f"{quote_literal(name)}, {value}" for name, value in members.items())
            value = f"json_build_object({pairs})"
        if many:
            return f"(select json_agg({value} order by {ordered}) from {tables} where {condition})"
        limit = "" if single else f" order by {ordered} limit 1"
        return f"(select {value} from {tables} where {condition}{limit})"

    def _tied(
        self, relation: Mapping[str, Any], table: SourceTable, alias: str, parent: SourceTable, above: str
    ) -> tuple[str, str, list[str], bool]:
        """FROM, WHERE, the order, and whether it is one row at most."""
        throughs = relation.get("through_tables") or []
        if len(throughs) > 1:
            raise ImportRefused(f"{table.full} has {len(throughs)} through tables", hint="pgsync takes one, too")
        order = self._order(table, alias)
        if not throughs:
            pairs = self._pairs(relation.get("foreign_key"), table, parent)
            condition = self._equal(alias, above, pairs)
            return f"{self._sql(table)} {alias}", condition, order, {own for own, _ in pairs} >= set(table.key) > set()
        through = self._table({"table": throughs[0]}, table.schema)
        middle = self._alias(through.name)
        joined = self._equal(alias, middle, self._pairs(None, table, through))
        condition = self._equal(middle, above, self._pairs(None, through, parent))
        return (
            f"{self._sql(through)} {middle} join {self._sql(table)} {alias} on {joined}",
            condition,
            [*order, *self._order(through, middle)],
            False,
        )

    def _pairs(
        self, stated: Mapping[str, Any] | None, table: SourceTable, parent: SourceTable
    ) -> list[tuple[str, str]]:
        """Pairs of equal columns of a table and its parent."""
        if stated:
            own, theirs = stated["child"], stated["parent"]
            if len(own) != len(theirs):
                said = f"the foreign key of {table.full} names {len(own)} columns of it and {len(theirs)} of its parent"
                raise ImportRefused(said, hint="child and parent name as many columns")
            return list(zip(own, theirs, strict=True))
        found = list(self._known(table.full, parent.full))
        if len(found) != 1:
            said = "no foreign key ties" if not found else f"{len(found)} foreign keys tie"
            raise ImportRefused(
                f"{said} {table.full} and {parent.full}",
                hint='name the columns: "relationship": {"foreign_key": {"child": [...], "parent": [...]}}',
            )
        return found[0]

    def _known(self, own: str, other: str) -> Iterator[list[tuple[str, str]]]:
        for key in self.keys:
            if (key.table, key.target) == (own, other):
                yield list(zip(key.columns, key.target_columns, strict=True))
            elif (key.target, key.table) == (own, other):
                yield list(zip(key.target_columns, key.columns, strict=True))

    def _table(self, node: Mapping[str, Any], schema: str = "public") -> SourceTable:
        name = str(node.get("table"))
        full = name if "." in name else f"{node.get('schema') or schema}.{name}"
        found = self.tables.get(full)
        if found is None and node.get("base_tables"):
            over = ", ".join(map(str, node["base_tables"]))
            raise ImportRefused(f"{name} is a view of Postgres over {over}", hint="put the tables into the schema")
        if found is None:
            raise ImportRefused(f"the source has no table {full}", hint="names are schema.table, public by default")
        return found

    def _sql(self, table: SourceTable) -> str:
        name = self._named(table.name)
        return name if table.schema == "public" else f"{self._named(table.schema)}.{name}"

    def _named(self, name: str) -> str:
        plain = self.reserved and re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in self.reserved
        return name if plain else quote_identifier(name)

    def _order(self, table: SourceTable, alias: str) -> list[str]:
        """A total order of a table's rows. Text is ordered by its bytes, which no server's locale changes."""
        if not table.key:
            raise ImportRefused(f"{table.full} has no primary key", hint="rows are put into an order by it")
        endings = (' collate "C"' if table.columns[column] in _TEXTS else "" for column in table.key)
        return [f"{alias}.{self._named(c)}{ending}" for c, ending in zip(table.key, endings, strict=True)]

    def _equal(self, alias: str, other: str, pairs: Sequence[tuple[str, str]]) -> str:
        return " and ".join(f"{alias}.{self._named(own)} = {other}.{self._named(theirs)}" for own, theirs in pairs)

    def _as(self, name: str, value: str) -> str:
        return "" if value.partition(".")[2] == self._named(name) else f" as {self._named(name)}"

    def _alias(self, name: str) -> str:
        letter = next((c for c in name.lower() if c.isascii() and c.isalpha()), "t")
        number = 1
        while (alias := letter if number == 1 else f"{letter}{number}") in self.aliases:
            number += 1
        self.aliases.add(alias)
        return alias


def _of(transform: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found = transform.get(kind) or {}
    return {name: value for name, value in found.items() if kind == "rename" or isinstance(value, Mapping)}
