"""The tables that the settings mean, tables whose rows are stored elsewhere, and masks that name no table."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cdc.capture.table_masks import MaskNotes
from cdc.process.errors import ConfigError
from cdc.process.sql_files import load
from cdc.record.topic_names import IN_QUOTES, TableName, starred
from cdc.settings.model import Settings, SourceSettings
from connectors.postgres.server.connections import Connection
from connectors.postgres.server.table_problems import CatalogRelation, Home


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A table that a wildcard met and that a slot cannot deliver. Reported, not refused."""

    table: TableName
    reason: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """One entry of ``tables`` or ``exclude``."""

    text: str
    table: TableName | None
    expression: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """ConfigError when it is neither ``schema.table`` nor a pattern of that form."""
        quoted = IN_QUOTES.fullmatch(text)
        if quoted:
            table = TableName(quoted[1].replace('""', '"'), quoted[2].replace('""', '"'))
            return cls(text, table, re.compile(re.escape(str(table)), re.DOTALL))
        if "." not in text.strip("."):
            raise ConfigError(
                f'[source] tables: "{text}" names no schema', hint=f'write it with its schema: "public.{text}"'
            )
        return cls(text, None, starred(text))

    @property
    def wild(self) -> bool:
        """Whether it is a pattern for several tables."""
        return self.table is None and "*" in self.text

    def takes(self, table: TableName) -> bool:
        """Whether it names this table."""
        return self.names(str(table)) if self.table is None else table == self.table

    def names(self, text: str) -> bool:
        """The same of a table of which only ``schema.table`` is known: the dot that parts it is not known."""
        return self.expression.fullmatch(text) is not None


def select(
    relations: Sequence[CatalogRelation],
    tables: Iterable[str],
    exclude: Iterable[str],
    missing: Callable[[ConfigError], None] | None = None,
) -> tuple[list[CatalogRelation], list[LeftOut]]:
    """The tables that the patterns mean, and what wildcards left out.

    Partitions whose tree is taken are not listed themselves. ConfigError when an entry meets no table. With ``missing``
    that is told there, and all others are found.
    """
    barred = [Pattern.parse(text) for text in exclude]
    candidates = [r for r in relations if not any(p.takes(r.table) for p in barred)]
    exact: dict[int, CatalogRelation] = {}
    wild: dict[int, CatalogRelation] = {}
    for pattern in (Pattern.parse(text) for text in tables):
        met = [r for r in candidates if pattern.takes(r.table)]
        if not met:
            error = _meets_nothing(pattern, relations, barred)
            if missing is None:
                raise error
            missing(error)
        (wild if pattern.wild else exact).update((r.oid, r) for r in met)
    left_out = [out for r in wild.values() if r.oid not in exact for out in _undelivered(r)]
    unfit = {out.table for out in left_out}
    taken = exact | {oid: r for oid, r in wild.items() if r.table not in unfit and r.kind not in ("v", "m")}
    chosen = [r for r in taken.values() if not any(a in taken for a in r.ancestors)]
    return sorted(chosen, key=lambda r: r.table), left_out


def takes(table: str, tables: Iterable[str], exclude: Iterable[str]) -> bool:
    """Whether the settings name a table, as ``schema.table``.

    >>> takes("public.orders", ["public.*"], ["public.audit"]), takes("public.audit", ["public.*"], ["public.audit"])
    (True, False)
    """
    barred = any(Pattern.parse(text).names(table) for text in exclude)
    return not barred and any(Pattern.parse(text).names(table) for text in tables)


def unnamed(tables: Iterable[TableName], settings: SourceSettings) -> list[TableName]:
    """Those of the tables that the settings neither take nor exclude."""
    patterns = [Pattern.parse(text) for text in (*settings.tables, *settings.exclude)]
    return [table for table in tables if not any(pattern.takes(table) for pattern in patterns)]


def _undelivered(relation: CatalogRelation) -> Iterable[LeftOut]:
    if relation.kind == "f":
        yield LeftOut(table=relation.table, reason="it is a foreign table")
    elif relation.persistence == "u":
        yield LeftOut(table=relation.table, reason="it is unlogged")
    elif relation.kind in ("r", "p") and not relation.has_columns:
        yield LeftOut(table=relation.table, reason="it has no columns")


def _meets_nothing(pattern: Pattern, relations: Sequence[CatalogRelation], barred: Sequence[Pattern]) -> ConfigError:
    if any(pattern.takes(r.table) for r in relations):
        return ConfigError(f'[source] exclude leaves nothing of "{pattern.text}"', hint="take the entry out of one")
    if pattern.wild:
        return ConfigError(f'[source] tables: "{pattern.text}" meets no table', hint="check schema and database")
    close = difflib.get_close_matches(pattern.text, [str(r.table) for r in relations], n=1)
    hint = f'did you mean "{close[0]}"?' if close else "check schema, name and database; names are case-sensitive"
    return ConfigError(f"the table {pattern.text} does not exist", hint=hint)


def kept(tables: Sequence[TableName], patterns: Sequence[str]) -> list[TableName]:
    """Those of the tables that one of the patterns takes, as a sink's ``tables`` name them. All of them without any."""
    taking = [Pattern.parse(text) for text in patterns]
    return [table for table in tables if not taking or any(pattern.takes(table) for pattern in taking)]


def keeps_some(patterns: Sequence[str], tables: Iterable[str]) -> bool:
    """Whether a sink with these ``tables`` takes one of the tables, of which only ``schema.table`` is known.

    >>> keeps_some(["public.o*"], ["public.lines"]), keeps_some([], ["public.lines"]), keeps_some([], [])
    (False, True, False)
    """
    taking = [Pattern.parse(text) for text in patterns]
    return any(not taking or any(one.names(table) for one in taking) for table in tables)


_SQL = load("connectors.postgres.server")
_SPREAD = {
    "hypertable": "a hypertable of TimescaleDB, whose rows are in chunks",
    "pg_dist_partition": "distributed by Citus, which has its rows in shards",
}


def read_homes(conn: Connection, oids: Iterable[int]) -> Mapping[int, Home]:
    """Of each of these tables whose rows are not all in itself or its partitions, where they are."""
    wanted = {"oids": list(oids)}
    children: dict[int, list[TableName]] = defaultdict(list)
    for oid, schema, name in conn.execute(_SQL["children"].encode(), wanted).fetchall():
        children[oid].append(TableName(schema, name))
    spread: dict[int, str] = {}
    for (notes,) in conn.execute(_SQL["readable"].encode()).fetchall():
        spread |= {oid: _SPREAD[notes] for (oid,) in conn.execute(_SQL[notes].encode(), wanted).fetchall()}
    return {oid: Home(spread.get(oid, ""), tuple(children[oid])) for oid in {*children, *spread}}


def unnamed_children(conn: Connection, oids: Iterable[int], source: SourceSettings) -> Mapping[int, list[TableName]]:
    """Of each of these tables, those that inherit from it and that the settings do not mention."""
    return {oid: unnamed(home.children, source) for oid, home in read_homes(conn, oids).items()}


def note_parts(conn: Connection, notes: MaskNotes) -> None:
    """Note the relations that are parts of tables with masks now, or of relations that were: by PARTITION OF, ATTACH or
    INHERITS, and the tables of which such a one is a partition. Asks nothing where there are none.

    Raises LogError and psycopg.Error.
    """
    tables, known = notes.masks.tables, notes.parts
    if not tables and not known:
        return
    found: dict[str, set[int]] = defaultdict(set)
    rows = conn.execute(_SQL["parts"].encode(), {"tables": sorted(tables), "oids": sorted(known)}).fetchall()
    for of, name, oid in rows:
        for table in {*known.get(of, ()), *({name} & tables.keys())}:
            found[table].add(oid)
    notes.saw(found)


def require_masked_tables(
    settings: Settings, captured: Collection[str], missing: Callable[[ConfigError], None] | None
) -> None:
    """ConfigError where masks are set for a table that is not captured, or ``missing`` called with it: its name is
    likely to be meant for another one, which would be written as it is."""
    for name in sorted(settings.tables.keys() - captured):
        error = ConfigError(
            f'[tables."{name}"] is no captured table',
            hint="name it as [source] tables does, a partitioned table by its own name and not by its partitions'",
        )
        if missing is None:
            raise error
        missing(error)
