"""The live catalog's facts about tables: which are captured, what stands in their way, and their shape.

Three questions: :func:`resolve_tables` (patterns to tables, with every reason to refuse one),
:func:`table_schema` (a table's shape now) and :class:`Catalog` (the shape behind a Relation message).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from cdc.capture.table_masks import MaskNotes, masks_of, rules_of
from cdc.process.errors import ConfigError
from cdc.process.sql_files import load
from cdc.record.schema import Column, Encoding, Identity, TableSchema
from cdc.record.topic_names import STREAM_SCHEMA, TableName, table_topic
from cdc.settings.mask_rules import Masks, require_masks
from cdc.settings.model import Settings
from connectors.postgres.encoding.encoder import Type, missing, resolve
from connectors.postgres.encoding.masked_rows import masked_shape, require_passed
from connectors.postgres.protocol.messages import Relation, RelationColumn
from connectors.postgres.server.table_problems import (
    CatalogRelation,
    Home,
    LeafRelation,
    TableProblem,
    elsewhere,
    key_faults,
    problems_of,
    read_keys,
    read_unsent,
    topic_problems,
    unlike_debezium,
    unlike_history,
    unlike_views,
)
from connectors.postgres.server.table_selection import (
    LeftOut,
    note_parts,
    read_homes,
    require_masked_tables,
    select,
    takes,
    unnamed,
)

Connection = psycopg.Connection[Any]

IDENTITIES = {"d": Identity.DEFAULT, "f": Identity.FULL, "i": Identity.INDEX, "n": Identity.NOTHING}


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedTable:
    """A table that the settings name.

    ``key``: names of the key's columns in key order, empty when there is none. ``leaves``: where its rows lie,
    itself unless it is partitioned. ``problems``: why it cannot be captured as it is. Empty when it can. ``children``:
    tables that inherit from it and whose rows are not among its own. ``generated``: such columns that the stream lacks.
    """

    oid: int
    table: TableName
    topic: str
    partitioned: bool
    identity: Identity
    key: tuple[str, ...]
    deferrable_key: bool
    leaves: tuple[LeafRelation, ...]
    problems: tuple[TableProblem, ...]
    children: tuple[TableName, ...] = ()
    generated: tuple[str, ...] = ()


class Survey(NamedTuple):
    """Every table the settings take, and what a wildcard met but a slot cannot deliver."""

    tables: list[CapturedTable]
    left_out: list[LeftOut]


def resolve_tables(
    conn: Connection, settings: Settings, missing: Callable[[ConfigError], None] | None = None
) -> list[CapturedTable]:
    """The tables that ``[source] tables`` and ``exclude`` name, by schema and name. See :func:`survey`."""
    return survey(conn, settings, missing).tables


def survey(conn: Connection, settings: Settings, missing: Callable[[ConfigError], None] | None = None) -> Survey:
    """Look at every table that the settings name.

    Partitions of a captured tree are not listed: their changes come under the topmost captured table. Raises
    ConfigError when a name or pattern meets nothing, or calls ``missing`` with it and goes on: a table that is gone
    hides no other. Everything else is a problem of its table.
    """
    relations = [CatalogRelation(**row._asdict()) for row in _rows(conn, "relations")]
    chosen, left_out = select(relations, settings.source.tables, settings.source.exclude, missing)
    oids = [r.oid for r in chosen]
    leaves: dict[int, list[LeafRelation]] = defaultdict(list)
    for row in _rows(conn, "leaves", oids=oids):
        leaf = row._asdict()
        leaves[leaf.pop("root")].append(LeafRelation(**leaf))
    tops = {oid: oid for oid in oids} | {leaf.oid: top for top, found in leaves.items() for leaf in found}
    access = {row.oid: row for row in _rows(conn, "access", oids=list(tops))}
    unsent, keys = read_unsent(conn, oids, settings.publication), read_keys(conn, oids)
    version, homes = conn.info.server_version, read_homes(conn, tops)
    notes = MaskNotes(rules_of(settings))
    note_parts(conn, notes)
    tables = []
    for relation in chosen:
        below = tuple(leaves[relation.oid])
        own = [relation.oid, *(leaf.oid for leaf in below)]
        lacking, home = unsent[relation.oid], homes.get(relation.oid, Home())
        unread, rights = {column.name for column in lacking}, [access[oid] for oid in own if oid in access]
        unasked = unnamed(home.children, settings.source)
        problems = [
            *elsewhere(relation.table, [homes[oid] for oid in own if oid in homes], unasked),
            *problems_of(relation, below, rights, unread),
            *key_faults(relation.table, keys[relation.oid], lacking, settings.publication, version),
        ]
        problems += unlike_views(relation.table) if settings.views else []
        problems += unlike_views(relation.table, STREAM_SCHEMA) if settings.streams else []
        asks = settings.source.kind == "debezium" or takes(str(relation.table), settings.history.tables, ())
        if asks or relation.oid in notes.parts or settings.tables.get(str(relation.table)):
            problems += [one for one in _shape_problems(conn, relation, settings, notes) if one not in problems]
        found = _captured(relation, below, problems, settings)
        generated = tuple(column.name for column in lacking if column.generated)
        tables.append(replace(found, children=home.children, generated=generated))
    require_masked_tables(settings, {str(table.table) for table in tables}, missing)
    return Survey(_with_topic_problems(tables, settings.name), left_out)


def _shape_problems(
    conn: Connection, relation: CatalogRelation, settings: Settings, notes: MaskNotes
) -> list[TableProblem]:
    """Why the table's masks cannot be kept, Debezium cannot have it, or it can have no history."""
    try:
        shape = captured_schema(conn, settings, relation.oid, topic="")
        require_masks(shape.table, notes.lacking(shape, lambda _: ()))
    except ConfigError as error:
        return [TableProblem(message=error.message, hint=error.hint or "")]
    history = takes(str(shape.table), settings.history.tables, ())
    return [*unlike_debezium(shape)] if settings.source.kind == "debezium" else [*unlike_history(shape)] * history


def table_schema(
    conn: Connection,
    oid: int,
    *,
    topic: str,
    encoding: Encoding,
    masks: Masks,
    publication: str | None = None,
    version: int = 0,
) -> TableSchema:
    """A table's shape as the publication delivers it, under its masks, from the catalog as it is now.

    Columns in attnum order: those of the publication's column list. Generated ones only where the publication
    carries them (PostgreSQL 18), as one will that does not exist yet. Raises ConfigError when the table is gone, its
    key is not in the stream, or its masks cannot be kept.
    """
    schema = _plain_schema(conn, oid, topic, encoding, publication, version)
    if schema is None:
        raise ConfigError(f"the table with oid {oid} is gone", hint="cdc check names the tables that are missing")
    return masked_shape(schema, masks)


def captured_schema(
    conn: Connection, settings: Settings, oid: int, *, topic: str, encoding: Encoding | None = None
) -> TableSchema:
    """The same of a table under the settings: their masks, publication, and encoding unless it is given. ConfigError
    as well where their key of masks cannot be read."""
    return table_schema(
        conn,
        oid,
        topic=topic,
        encoding=encoding or settings.log.encoding,
        masks=masks_of(settings),
        publication=settings.publication,
    )


def _plain_schema(
    conn: Connection, oid: int, topic: str, encoding: Encoding, publication: str | None, version: int = 0
) -> TableSchema | None:
    """The shape as the source has it, before any mask. None for a table that is gone. ConfigError where the stream does
    not carry its key."""
    found = _rows(conn, "relation", oid=oid)
    if not found:
        return None
    table = TableName(found[0].schema, found[0].name)
    unsent, key = read_unsent(conn, [oid], publication)[oid], read_keys(conn, [oid])[oid]
    for problem in key_faults(table, key, unsent, publication or "", conn.info.server_version):
        raise ConfigError(problem.message, hint=problem.hint)
    left_out = {column.name for column in unsent}
    delivered = [row for row in _rows(conn, "columns", oid=oid) if row.name not in left_out]
    types = read_types(conn, {row.type_oid for row in delivered})
    return TableSchema(
        table=table,
        topic=topic,
        version=version,
        oid=oid,
        encoding=encoding,
        identity=IDENTITIES[found[0].identity],
        deferrable_key=any(column.deferrable for column in key),
        columns=tuple(_columns(delivered, [column.name for column in key], types)),
    )


class KnownShapes(NamedTuple):
    """The log's knowledge of a table: its last shape, and of one with masks that which the stream has passed, see
    :func:`connectors.postgres.encoding.masked_rows.require_passed`."""

    latest: TableSchema | None = None
    passed: TableSchema | None = None


NOTHING_KNOWN = KnownShapes()


def from_relation(
    conn: Connection,
    message: Relation,
    *,
    topic: str,
    encoding: Encoding,
    masks: Masks,
    known: KnownShapes = NOTHING_KNOWN,
    publication: str | None = None,
) -> TableSchema:
    """The shape a Relation message announces, under the table's masks, at version 0.

    The message lacks attnum, nullability and the key's order. They are taken, column by column, from the live
    catalog, which may be newer than the stream, then from ``known``, the last shape seen: names,
    types and which columns there are always come from the message. A table that is gone still has a shape. Under FULL
    the message does not name the key: one that the catalog has no more is none. Raises ConfigError where the
    key is not in the stream, or its masks cannot be kept, or may not cover a column by the name that it had.
    """
    now = _plain_schema(conn, message.relation_oid, topic, encoding, publication)
    if known.passed is not None:
        require_passed(known.passed, message.relation_oid, [column.name for column in message.columns], now)
    sources = [s for s in (now, known.latest) if s is not None]
    types = read_types(conn, {c.type_oid for c in message.columns})
    printed = _type_names(conn, message.columns)
    key = _key_order(message, sources) if now is None or now.key or message.identity != Identity.FULL else []
    columns = []
    for place, column in enumerate(message.columns):
        like = _same_column(column, sources)
        kind, array, typmod = resolve(column.type_oid, column.typmod, types, keyed=column.name in key)
        columns.append(
            Column(
                name=column.name,
                attnum=like.attnum if like else 0,
                type=printed[place],
                type_oid=column.type_oid,
                kind=kind,
                array=array,
                typmod=typmod,
                nullable=like.nullable if like else True,
                key_position=key.index(column.name) if column.name in key else None,
                generated=like.generated if like else False,
            )
        )
    shape = TableSchema(
        table=TableName(message.schema, message.table),
        topic=topic,
        version=0,
        oid=message.relation_oid,
        encoding=encoding,
        identity=message.identity,
        deferrable_key=sources[0].deferrable_key if sources else False,
        columns=tuple(columns),
    )
    return masked_shape(shape, masks)


def read_types(conn: Connection, oids: set[int]) -> dict[int, Type]:
    """Rows of pg_type for these types and all they are made of."""
    types: dict[int, Type] = {}
    asked: set[int] = set()
    while wanted := missing(oids, types) - asked:
        asked |= wanted
        types |= {row.oid: Type(**row._asdict()) for row in _rows(conn, "types", oids=sorted(wanted))}
    return types


def _captured(
    relation: CatalogRelation, leaves: tuple[LeafRelation, ...], problems: list[TableProblem], settings: Settings
) -> CapturedTable:
    table = relation.table
    return CapturedTable(
        oid=relation.oid,
        table=table,
        topic=settings.source.topics.get(str(table)) or table_topic(settings.name, table),
        partitioned=relation.kind == "p",
        identity=IDENTITIES[relation.identity],
        key=tuple(relation.key),
        deferrable_key=relation.deferrable_key,
        leaves=leaves or (relation.as_leaf(),) if relation.kind != "p" else leaves,
        problems=tuple(problems),
    )


def _with_topic_problems(tables: list[CapturedTable], name: str) -> list[CapturedTable]:
    found = topic_problems(name, [(t.table, t.topic) for t in tables])
    return [replace(t, problems=t.problems + tuple(found.get(t.table, ()))) for t in tables]


def _columns(rows: Iterable[Any], key: list[str], types: Mapping[int, Type]) -> Iterator[Column]:
    for row in rows:
        kind, array, typmod = resolve(row.type_oid, row.typmod, types, keyed=row.name in key)
        yield Column(
            name=row.name,
            attnum=row.attnum,
            type=row.type,
            type_oid=row.type_oid,
            kind=kind,
            array=array,
            typmod=typmod,
            nullable=row.nullable,
            key_position=key.index(row.name) if row.name in key else None,
            generated=bool(row.generated),
        )


def _type_names(conn: Connection, columns: Sequence[RelationColumn]) -> list[str]:
    rows = _rows(conn, "type_names", oids=[c.type_oid for c in columns], typmods=[c.typmod for c in columns])
    return [row[1] for row in rows]


def _same_column(column: RelationColumn, sources: Sequence[TableSchema]) -> Column | None:
    """The same column as an earlier or later shape has it: same name, and the same type if one has it."""
    named = [c for s in sources for c in s.columns if c.name == column.name]
    typed = [c for c in named if c.type_oid == column.type_oid]
    return next(iter(typed or named), None)


def _key_order(message: Relation, sources: Sequence[TableSchema]) -> list[str]:
    """Key columns in key order. Under FULL the message flags every column, so only a shape can name them."""
    present = {c.name for c in message.columns}
    flagged = {c.name for c in message.columns if c.in_key}
    for shape in sources:
        names = [c.name for c in shape.key]
        if set(names) == flagged or (message.identity == Identity.FULL and names and set(names) <= present):
            return names
    if message.identity == Identity.FULL:
        return []
    return [c.name for c in message.columns if c.in_key]


def _rows(conn: Connection, name: str, **arguments: Any) -> list[Any]:
    query = load("connectors.postgres.server")[name]
    with conn.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(query.encode(), arguments or None).fetchall()
