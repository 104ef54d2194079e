"""A settings file for a database that is there, and the rights that capture needs of it: ``cdc config new``.

The choice of tables, why the others are not taken, and the texts of both files. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc.process.sql_files import quote_identifier, quote_literal
from cdc.record.schema import Identity
from cdc.record.server_facts import PLAIN, Provider
from cdc.record.topic_names import TableName

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


_COMMENT_COLUMN = 40
_BOUNDS = "nosuperuser nocreatedb nocreaterole nobypassrls connection limit 32"
"""Of the role. A capture holds five sessions and one a window, a first snapshot four and one a worker, ``cdc verify``
two. Each other command holds one or two."""


def settings_text(proposal: Proposal) -> str:
    """The settings file. :func:`tomllib.loads` makes :meth:`Proposal.document` of it."""
    document = proposal.document()
    source = document["source"]
    lines = [
        f"# A pipeline for the database {_word(proposal.found.database)}, proposed by cdc config new.",
        "# cdc config example prints every setting with its default.",
        f"name = {_toml(document['name'])}",
        "",
        "[source]",
        f"dsn = {_toml(source['dsn'])}",
        f"password = {_toml(source['password'])}",
        *_listed("tables", proposal.entries()),
    ]
    if "exclude" in source:
        lines += _listed("exclude", proposal.excluded())
    lines += ["", "[log]", f"bootstrap_servers = {_toml(document['log']['bootstrap_servers'])}"]
    for name, sink in document.get("sinks", {}).items():
        lines += ["", f"[sinks.{name}]", *(f"{key} = {_toml(value)}" for key, value in sink.items())]
    return "\n".join(lines) + "\n"


def rights_text(proposal: Proposal, *, generated_columns: bool = False) -> str:
    """SQL that makes a role for capture with the rights that it needs and no others, and the publication.

    ``generated_columns``: whether the server can send stored generated columns (PostgreSQL 18).
    """
    role, tables = quote_identifier(proposal.role), [one.table for one in proposal.taken]
    leaves = [leaf for one in proposal.taken for leaf in one.leaves if leaf != one.table]
    options = ["publish = 'insert, update, delete, truncate'", "publish_via_partition_root = true"]
    options += ["publish_generated_columns = stored"] if generated_columns else []
    provider = proposal.found.provider
    owners = ", ".join(sorted({_word(one.owner) for one in proposal.taken if one.owner}))
    attributes = " ".join(filter(None, ("login", provider.attribute, _BOUNDS)))
    lines = [
        f"-- The rights of capture in the database {_word(proposal.found.database)} on {provider.name}, proposed by",
        f"-- cdc config new. Run it as a role that owns the tables{owners and f' ({owners})'} or is its member,",
        f"-- and may make roles and publications. {provider.password.format(role=_word(proposal.role))}",
        "-- The password goes into CDC_SOURCE_PASSWORD where Headrace runs.",
        "do $$ begin",
        f"  if not exists (select from pg_catalog.pg_roles where rolname = {quote_literal(proposal.role)}) then",
        f"    create role {role} {attributes};",
        "  end if;",
        "end $$;",
        *([] if provider.attribute else [provider.right.format(role=role)]),
        "-- With it cdc check sees how long other roles' transactions are open, and the role sees their queries, too.",
        "do $$ begin",
        f"  grant {provider.statistics} to {role};",
        "exception when insufficient_privilege then",
        f"  raise notice '{provider.statistics} is not yours to grant: cdc check will say what it cannot see';",
        "end $$;",
        f"grant connect on database {quote_identifier(proposal.found.database)} to {role};",
        *(f"grant usage on schema {quote_identifier(schema)} to {role};" for schema in schemas_of(proposal.taken)),
        *(f"grant select on table {_name(table)} to {role};" for table in sorted({*tables, *leaves})),
        *_later(proposal, role),
    ]
    if tables:
        lines += _publication(f"cdc_{proposal.name}", tables, ", ".join(options))
    return "\n".join(lines) + "\n"


def _later(proposal: Proposal, role: str) -> Iterator[str]:
    """The right to read what comes later: partitions, and tables of a schema that a pattern takes."""
    places = {
        (quote_identifier(one.owner), quote_identifier(name.schema))
        for one in proposal.taken
        for name in (one.table, *one.leaves)
        if one.owner and (one.partitioned or name.schema in proposal.patterns())
    }
    if places:
        yield "-- Partitions and tables that come later are read, too."
    for owner, schema in sorted(places):
        yield f"alter default privileges for role {owner} in schema {schema} grant select on tables to {role};"


def _publication(name: str, tables: Sequence[TableName], options: str) -> Iterator[str]:
    """Run again it adds the tables that are new, and takes none away: a table that leaves it is captured no more."""
    known, named = quote_literal(name), quote_identifier(name)
    listed = ",\n    ".join(quote_literal(_name(table)) for table in tables)
    quote = "$publication$"
    while quote in listed:
        quote = f"$_{quote[1:]}"
    yield f"do {quote}"
    yield "declare one text;"
    yield "begin"
    yield f"  if not exists (select from pg_catalog.pg_publication where pubname = {known}) then"
    yield f"    create publication {named} with ({options});"
    yield "  end if;"
    yield f"  for one in select missing from unnest(array[\n    {listed}\n  ]) missing where not exists ("
    yield "    select from pg_catalog.pg_publication p left join pg_catalog.pg_publication_rel r on r.prpubid = p.oid"
    yield f"    where p.pubname = {known} and (p.puballtables or r.prrelid = missing::pg_catalog.regclass)"
    yield "  ) loop"
    yield f"    execute 'alter publication ' || {quote_literal(named)} || ' add table ' || one;"
    yield "  end loop;"
    yield f"end {quote};"


def _listed(name: str, entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"{name} = ["
    for text, meaning in entries:
        yield f"  {_toml(text) + ',':<{_COMMENT_COLUMN}}  # {_word(meaning)}"
    yield "]"


def _toml(value: Any) -> str:
    """A value as TOML. Its basic strings are those of JSON, but for DEL."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _word(text: str) -> str:
    """Words of a comment on one line."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _name(table: TableName) -> str:
    return f"{quote_identifier(table.schema)}.{quote_identifier(table.table)}"
