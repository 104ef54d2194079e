"""The choice of tables: those that are taken, and why the others are not. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc.checks.providers import PLAIN, Provider
from cdc.schema import Identity
from cdc.topic import TableName

MANY_TABLES = 12
"""A schema with more tables than this is taken by a pattern."""

_BOOKKEEPING = frozenset({
    "_prisma_migrations", "alembic_version", "ar_internal_metadata", "databasechangelog", "databasechangeloglock",
    "django_migrations", "flyway_schema_history", "goose_db_version", "knex_migrations", "knex_migrations_lock",
    "schema_migrations", "spatial_ref_sys",
})  # fmt: skip
"""Tables that frameworks and extensions keep for themselves, by their usual names."""
_PLAIN = re.compile(r"[^.*\"]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """One table of the database.

    ``rows``: about, by the planner's statistics, None where there are none. ``size_bytes``, ``toast_bytes``: on disk,
    with all partitions. ``leaves``: the tables that hold its rows. ``owner``: the role that makes its partitions.
    ``problems``: why it cannot be captured as it is.
    """

    table: TableName
    key: tuple[str, ...]
    identity: Identity
    rows: int | None = None
    size_bytes: int = 0
    toast_bytes: int = 0
    leaves: tuple[TableName, ...] = ()
    partitioned: bool = False
    owner: str = ""
    problems: tuple[str, ...] = ()

    @property
    def left_out(self) -> str:
        """Why the table is not taken, empty where it is."""
        if self.table.table in _BOOKKEEPING:
            return "kept by a framework for itself"
        return self.problems[0].removeprefix(f"{self.table} ") if self.problems else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDatabase:
    """A database as its catalog describes it. ``dsn``: how capture reaches it, without a password.

    ``undelivered``: tables that no slot delivers, with the reason. ``faults``: what the server itself lacks, each with
    its cure. ``provider``: whose server it is.
    """

    database: str
    dsn: str
    tables: Sequence[FoundTable]
    undelivered: Mapping[TableName, str] = field(default_factory=dict)
    faults: tuple[tuple[str, str], ...] = ()
    provider: Provider = PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A pipeline for the database. ``sinks``: name -> the settings of a store."""

    name: str
    role: str
    found: FoundDatabase
    bootstrap_servers: str
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def taken(self) -> list[FoundTable]:
        """The tables that are followed, by name."""
        return sorted((one for one in self.found.tables if not one.left_out), key=lambda one: one.table)

    @property
    def not_taken(self) -> list[tuple[TableName, str]]:
        """The others, with the reason, by name."""
        others = {one.table: one.left_out for one in self.found.tables if one.left_out}
        return sorted({**self.found.undelivered, **others}.items())

    def entries(self) -> list[tuple[str, str]]:
        """``[source] tables``: each entry, and what it means in words."""
        patterns = self.patterns()
        schemas = {one.table.schema for one in self.taken}
        counts = {schema: sum(one.table.schema == schema for one in self.taken) for schema in schemas}
        wide = [(f"{schema}.*", f"{counts[schema]} tables, and those that come") for schema in sorted(patterns)]
        single = [(entry(one.table), described(one)) for one in self.taken if one.table.schema not in patterns]
        return [*wide, *single]

    def excluded(self) -> list[tuple[str, str]]:
        """``[source] exclude``: each entry with its reason. Only what a pattern would take."""
        patterns = self.patterns()
        return [
            (entry(one.table), one.left_out)
            for one in sorted(self.found.tables, key=lambda one: one.table)
            if one.left_out and one.table.schema in patterns
        ]

    def document(self) -> dict[str, Any]:
        """The settings as the file has them."""
        excluded = [entry for entry, _ in self.excluded()]
        source: dict[str, Any] = {
            "dsn": self.found.dsn,
            "password": "env:CDC_SOURCE_PASSWORD",
            "tables": [entry for entry, _ in self.entries()],
            **({"exclude": excluded} if excluded else {}),
        }
        return {
            "name": self.name,
            "source": source,
            "log": {"bootstrap_servers": self.bootstrap_servers},
            **({"sinks": {name: dict(sink) for name, sink in self.sinks.items()}} if self.sinks else {}),
        }

    def patterns(self) -> set[str]:
        """Schemas of many tables, where a pattern can name them."""
        schemas = [one.table.schema for one in self.taken]
        return {name for name in schemas if schemas.count(name) > MANY_TABLES and _PLAIN.fullmatch(name)}


def entry(table: TableName) -> str:
    """The table as ``[source] tables`` names it.

    >>> entry(TableName("public", "orders")), entry(TableName("public", "a.b"))
    ('public.orders', '"public"."a.b"')
    """
    if _PLAIN.fullmatch(table.schema) and _PLAIN.fullmatch(table.table):
        return f"{table.schema}.{table.table}"
    return ".".join(f'"{part.replace(chr(34), chr(34) * 2)}"' for part in table)


def described(found: FoundTable) -> str:
    """Rows, size and key of a table in words.

    >>> described(FoundTable(table=TableName("public", "orders"), key=("id",), identity=Identity.DEFAULT, rows=1200))
    'about 1,200 rows, key id'
    """
    words = [f"about {found.rows:,} rows"] if found.rows is not None else ["never analyzed"]
    if found.size_bytes:
        words.append(size(found.size_bytes))
    words.append(f"key {', '.join(found.key)}" if found.key else "no key")
    if found.toast_bytes:
        words.append(f"{size(found.toast_bytes)} out of line")
    if found.identity is Identity.FULL:
        words.append("sends whole rows")
    return ", ".join(words)


def size(count_bytes: int) -> str:
    """
    >>> size(800), size(1_500_000), size(3 * 1024**3)
    ('800 B', '1.4 MB', '3.0 GB')
    """
    amount = float(count_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


def pipeline_name(database: str) -> str:
    """A name for the pipeline of a database, of the letters that one may have.

    >>> pipeline_name("My Shop"), pipeline_name("2024"), pipeline_name("")
    ('my_shop', 'cdc_2024', 'cdc')
    """
    cleaned = re.sub(r"[^a-z0-9_]+", "_", database.lower()).strip("_")[:40]
    return cleaned if cleaned[:1].isalpha() else f"cdc_{cleaned}".rstrip("_")


def schemas_of(tables: Iterable[FoundTable]) -> list[str]:
    """The schemas in which the tables and their partitions stand."""
    return sorted({name.schema for one in tables for name in (one.table, *one.leaves)})
