"""The two files of ``cdc config new``, as text. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cdc.proposal.proposed import Proposal, schemas_of
from cdc.sql import quote_identifier, quote_literal
from cdc.topic import TableName

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
