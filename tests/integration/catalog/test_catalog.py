"""The live catalog: which tables are captured, and that a table has one shape whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.record.schema import Identity, TableSchema
from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import Settings, parse
from cdc.wire.types import CATALOG_KINDS, FIXED
from connectors.postgres.protocol.messages import Relation
from connectors.postgres.protocol.pgoutput import decode
from connectors.postgres.server.catalog_shapes import CapturedTable, KnownShapes, from_relation, survey, table_schema
from connectors.postgres.server.connections import connect
from tests.golden.direct import frames, make_slot

SCHEMA = """
create schema s;
create type s.mood as enum ('x');
create domain s.price as numeric(10,2);
create domain s.ts3 as timestamp(3);
create table s."Mixed ""Case" (
    "Id" int not null, b text not null, "we'ird" s.price[], at s.ts3, m s.mood, ms s.mood[], v int2vector,
    g int generated always as ("Id" * 2) stored, primary key (b, "Id")
);
create table s.by_index (a int not null, b int not null, c text, unique (b, a) include (c));
alter table s.by_index replica identity using index by_index_b_a_c_key;
create table s.def (id int primary key deferrable, t text);
alter table s.def replica identity full;
create table s.gone (id int primary key, dropped text, kept text);
alter table s.gone drop column dropped;
create table s.p (id int, region text, v text, primary key (region, id)) partition by list (region);
create table s.p_eu partition of s.p for values in ('eu');
create table s.p_us (v text, id int not null, region text not null);
alter table s.p attach partition s.p_us for values in ('us');
create table s.no_key (a int);
create unlogged table s.fleeting (id int primary key);
create view s.looked as select 1 as id;
"""
TABLES = ('Mixed "Case', "by_index", "def", "gone", "p")


def settings_for(dsn: str, *tables: str, exclude: tuple[str, ...] = ()) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"dsn": dsn, "tables": list(tables), "exclude": list(exclude)},
            "log": {"bootstrap_servers": "none"},
        }
    )


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(SCHEMA)
    with closing(connect(settings_for(database, "s.*").source)) as session:
        yield session


def by_name(conn: psycopg.Connection[Any], settings: Settings) -> dict[str, CapturedTable]:
    return {table.table.table: table for table in survey(conn, settings).tables}


def test_a_wildcard_takes_every_table_and_names_obstacles(conn: psycopg.Connection[Any], database: str) -> None:
    found = survey(conn, settings_for(database, "s.*"))
    tables = {table.table.table: table for table in found.tables}
    assert set(tables) == {*TABLES, "no_key"}
    assert [name for name, table in tables.items() if table.problems] == ["no_key"]
    assert [(out.table.table, out.reason) for out in found.left_out] == [("fleeting", "it is unlogged")]
    assert tables['Mixed "Case'].key == ("b", "Id")
    assert tables['Mixed "Case'].topic == "shop.s.Mixed__Case"
    assert (tables["by_index"].key, tables["by_index"].identity) == (("b", "a"), Identity.INDEX)
    assert tables["def"].deferrable_key
    assert [leaf.table.table for leaf in tables["p"].leaves] == ["p_eu", "p_us"]
    assert [leaf.table.table for leaf in tables["gone"].leaves] == ["gone"]


def test_columns_are_those_the_publication_delivers(conn: psycopg.Connection[Any], database: str) -> None:
    oid = by_name(conn, settings_for(database, "s.*"))['Mixed "Case'].oid

    def columns(publication: str | None) -> list[str]:
        shape = table_schema(conn, oid, topic="t", encoding="readable", masks=NO_MASKS, publication=publication)
        return [column.name for column in shape.columns]

    usual = ["Id", "b", "we'ird", "at", "m", "ms", "v"]
    conn.execute('create publication plain for table s."Mixed ""Case"')
    conn.execute('create publication few for table s."Mixed ""Case" (b, "Id", m)')
    assert columns(None) == columns("plain") == usual
    assert columns("few") == ["Id", "b", "m"]
    if conn.info.server_version >= 180000:
        assert columns("none yet") == [*usual, "g"], "as cdc init makes it"
        conn.execute('create publication more for table s."Mixed ""Case" with (publish_generated_columns = stored)')
        assert columns("more") == [*usual, "g"]


def test_types_are_resolved_through_domains(conn: psycopg.Connection[Any], database: str) -> None:
    oid = by_name(conn, settings_for(database, "s.*"))['Mixed "Case'].oid
    shape = table_schema(conn, oid, topic="t", encoding="readable", masks=NO_MASKS)
    kinds = {c.name: (c.type, c.kind, c.array, c.precision, c.key_position) for c in shape.columns}
    assert kinds == {
        "Id": ("integer", "int4", False, None, 1),
        "b": ("text", "text", False, None, 0),
        "we'ird": ("s.price[]", "numeric", True, 10, None),
        "at": ("s.ts3", "timestamp", False, 3, None),
        "m": ("s.mood", "enum", False, None, None),
        "ms": ("s.mood[]", "enum", True, None, None),
        "v": ("int2vector", "other", False, None, None),
    }


def test_values_of_one_length_are_those_that_postgres_says(conn: psycopg.Connection[Any]) -> None:
    found = conn.execute(
        "select typname from pg_type where typnamespace = 'pg_catalog'::regnamespace and typname = any(%s::text[])"
        " and typlen > 0",
        (list(CATALOG_KINDS),),
    )
    assert {name.decode() if isinstance(name, bytes) else name for (name,) in found} | {"enum"} == FIXED


def announced(conn: psycopg.Connection[Any], database: str) -> dict[int, Relation]:
    """The Relation messages of one change of every table."""
    conn.execute(
        'create publication p for table s."Mixed ""Case", s.by_index, s.def, s.gone, s.p'
        " with (publish_via_partition_root = true)"
    )
    settings = settings_for(database, "s.*")
    with closing(connect(settings.source, replication=True)) as stream:
        make_slot(stream, "s")
        conn.execute("""insert into s."Mixed ""Case" ("Id", b) values (1, 'b')""")
        conn.execute("insert into s.by_index values (1, 2, 'c')")
        conn.execute("insert into s.def values (1, 'x')")
        conn.execute("insert into s.gone values (1, 'x')")
        conn.execute("insert into s.p values (1, 'us', 'v'), (2, 'eu', 'v')")
        conn.execute("select pg_logical_emit_message(false, 'golden-end', '')")
        messages = [decode(frame[25:]) for frame in frames(stream, "s", "p")]
    return {m.relation_oid: m for m in messages if isinstance(m, Relation)}


def test_h51_the_streams_shape_is_the_catalogs(conn: psycopg.Connection[Any], database: str) -> None:
    relations = announced(conn, database)
    tables = by_name(conn, settings_for(database, "s.*", exclude=("s.no_key",)))
    for table in tables.values():
        now = table_schema(conn, table.oid, topic=table.topic, encoding="readable", masks=NO_MASKS, publication="p")
        streamed = from_relation(
            conn, relations[table.oid], topic=table.topic, encoding="readable", masks=NO_MASKS, publication="p"
        )
        assert streamed == now, "snapshot and stream would write different versions"
        assert [c.name for c in now.key] == list(table.key)


def test_h51_the_message_tells_a_shape_older_than_the_catalog(conn: psycopg.Connection[Any], database: str) -> None:
    relation = next(r for r in announced(conn, database).values() if r.table == "gone")
    known = table_schema(conn, relation.relation_oid, topic="t", encoding="readable", masks=NO_MASKS)
    conn.execute("alter table s.gone drop column kept, add column later int, alter column id type bigint")

    def shape(known: TableSchema | None) -> TableSchema:
        return from_relation(conn, relation, topic="t", encoding="readable", masks=NO_MASKS, known=KnownShapes(known))

    assert shape(known) == known
    assert [(c.name, c.kind, c.key_position) for c in shape(None).columns] == [
        ("id", "int4", 0),
        ("kept", "text", None),
    ]
    conn.execute("drop table s.gone")
    assert shape(known) == known
    assert [c.name for c in shape(None).columns] == ["id", "kept"]


def test_h27_h42_what_a_role_may_not_see(conn: psycopg.Connection[Any], database: str) -> None:
    role = f"reader_{conn.info.dbname}"
    conn.execute(f"create role {role} login password 'x'")
    try:
        conn.execute("create table s.guarded (id int primary key)")
        conn.execute("alter table s.guarded enable row level security")
        conn.execute(f"grant select on s.guarded to {role}")
        conn.execute(f"grant select (id, t) on s.def to {role}")
        conn.execute(f"grant usage on schema s to {role}")
        conn.execute(f"grant select (id, kept) on s.gone to {role}")
        conn.execute(f"grant select (region, id) on s.p, s.p_eu, s.p_us to {role}")
        conn.execute("alter table s.gone add secret text")
        dsn = make_conninfo(database, user=role, password="x")
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute("set row_security = off")
            settings = settings_for(dsn, "s.guarded", "s.def", "s.p", "s.gone", "s.by_index")

            def hints() -> dict[str, list[str]]:
                tables = by_name(session, settings)
                return {name: [problem.hint for problem in table.problems] for name, table in tables.items()}

            found = hints()
            listed = "   or leave them out of the publication, by a column list"
            assert found["guarded"] == [f'alter role "{role}" bypassrls;']
            assert found["def"] == []
            assert found["by_index"] == [f'grant select on "s"."by_index" to "{role}";']
            assert found["gone"] == [f'grant select ("secret") on "s"."gone" to "{role}";{listed}']
            assert found["p"] == [
                f'grant select ("v") on "s"."{name}" to "{role}";{listed}' for name in ("p", "p_eu", "p_us")
            ]
            conn.execute(
                f"create publication {settings.publication} for table s.gone (id, kept), s.p (region, id)"
                " with (publish_via_partition_root = true)"
            )
            assert (hints()["gone"], hints()["p"]) == ([], [])
            conn.execute(f"revoke usage on schema s from {role}")
            assert hints()["def"] == [f'grant usage on schema "s" to "{role}";']
    finally:
        conn.execute(f"drop owned by {role}")
        conn.execute(f"drop role {role}")
