"""The tables that the settings mean: patterns over the names of the catalog. Pure.

``schema.table`` names one table, ``*`` stands for any characters, and ``"schema"."table"`` in double quotes
(doubled inside) names one whose name holds a dot or a star.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cdc.errors import ConfigError
from cdc.settings import SourceSettings
from cdc.topic import IN_QUOTES, TableName, starred
from connectors.postgres.problems import CatalogRelation


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
