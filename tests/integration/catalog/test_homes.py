"""Tables whose rows are not in themselves: parents of others, and what TimescaleDB and Citus spread.

The extensions are not here: their catalogs are made by hand, with the columns that their own scripts give them.
"""

from __future__ import annotations

import psycopg
import pytest

from connectors.postgres.server.catalog_facts import read_publication
from connectors.postgres.server.catalog_shapes import survey
from connectors.postgres.server.publication import ensure_publication
from tests.integration.catalog.test_catalog import settings_for
from tests.integration.catalog.test_key_columns import Source, source

__all__ = ["source"]
PARENT = "create table p (id int primary key, v text)"
CHILD = "create table {0} (primary key (id)) inherits (p)"
HYPERTABLE = """
create table _timescaledb_catalog.hypertable (
    id serial primary key, schema_name name not null, table_name name not null,
    associated_schema_name name not null, associated_table_prefix name not null, num_dimensions smallint not null,
    chunk_sizing_func_schema name not null, chunk_sizing_func_name name not null, chunk_target_size bigint not null,
    compression_state smallint not null default 0, compressed_hypertable_id integer, status int not null default 0)
"""
DISTRIBUTED = """
create table pg_catalog.pg_dist_partition (
    logicalrelid regclass not null, partmethod "char" not null, partkey text,
    colocationid integer default 0 not null, repmodel "char" default 'c' not null, autoconverted boolean default false)
"""


def takes(source: Source, *tables: str, exclude: tuple[str, ...] = ()) -> None:
    source.settings = settings_for(source.settings.source.dsn, *tables, exclude=exclude)


def test_w3_a_parent_is_refused_while_a_child_is_not_named(source: Source) -> None:
    source.execute(PARENT, "create schema old", CHILD.format("old.c"), "create table old.d () inherits (old.c)")
    ((message, hint),) = source.problems()
    assert message == "public.p has rows in tables that inherit from it and are not captured: old.c, old.d"
    assert hint.startswith("name them in [source] tables, as tables of their own, or in [source] exclude")
    takes(source, "public.p", "old.c", exclude=("old.d",))
    assert source.problems() == []
    (child, parent) = survey(source.session, source.settings).tables
    assert [str(one.table) for one in (child, parent)] == ["old.c", "public.p"]
    assert [str(one) for one in parent.children] == ["old.c", "old.d"]


def test_w3_a_child_is_published_only_where_it_is_captured(source: Source) -> None:
    """Without a key its updates and deletes would fail in the application."""
    source.execute(PARENT, "create table c () inherits (p)", "insert into c values (1, 'a')")
    takes(source, "public.p", exclude=("public.c",))
    name = source.settings.publication
    assert ensure_publication(source.session, name, survey(source.session, source.settings).tables)
    found = read_publication(source.session, name)
    assert found is not None
    assert {str(table) for table in found.tables} == {"public.p"}
    source.execute("update p set v = 'b'", "delete from p")


def test_w3_a_hypertable_is_refused_before_its_first_chunk(source: Source) -> None:
    source.execute(
        "create table events (at timestamptz primary key)", "create table plain (id int primary key)",
        "create schema _timescaledb_catalog", HYPERTABLE,
        "insert into _timescaledb_catalog.hypertable values (1, 'public', 'events', 'i', 'h', 1, 'f', 'f', 0)",
    )  # fmt: skip
    ((message, hint),) = source.problems()
    assert message == (
        "public.events is a hypertable of TimescaleDB, whose rows are in chunks: "
        "their changes do not come under its name"
    )
    assert hint == 'leave it out: [source] exclude = ["public.events"]'


def test_w3_a_role_that_may_not_ask_timescale_still_sees_chunks(source: Source) -> None:
    source.execute(
        "create table events (at timestamptz primary key)", "create schema _timescaledb_catalog", HYPERTABLE,
        "create schema _timescaledb_internal", "create table _timescaledb_internal.c1 () inherits (events)",
    )  # fmt: skip
    ((message, _),) = source.problems()
    assert message.endswith("not captured: _timescaledb_internal.c1")


@pytest.mark.parametrize("kind", ["plain", "partition"])
def test_w3_a_table_that_citus_distributes_is_refused(source: Source, kind: str) -> None:
    source.execute(
        "create table t (id int primary key) partition by list (id)",
        "create table t_1 partition of t for values in (1)",
    )
    with psycopg.connect(source.settings.source.dsn, autocommit=True) as owner:
        owner.execute("set allow_system_table_mods = on")
        owner.execute(DISTRIBUTED.encode())
        owner.execute(
            "insert into pg_catalog.pg_dist_partition values (%s::regclass, 'h')", ["t" if kind == "plain" else "t_1"]
        )
    ((message, _),) = source.problems()
    assert message.startswith("public.t is distributed by Citus, which has its rows in shards")


def test_w9_a_table_that_the_publication_excepts_is_not_sent(source: Source) -> None:
    """PostgreSQL 19's ``for all tables except``: a row of pg_publication_rel says so, in a column made by hand here."""
    source.execute(
        "create table a (id int primary key)", "create table b (id int primary key)",
        "create table t (id int primary key) partition by list (id)",
        "create table t_1 partition of t for values in (1)",
        "create publication {p} for all tables with (publish_via_partition_root = false)",
        "create schema shadow",
        "create table shadow.pg_publication_rel (oid oid, prpubid oid, prrelid oid, prqual text, prattrs int2vector,"
        " prexcept bool)",
        "insert into shadow.pg_publication_rel select 1, oid, 'b'::regclass, null, null, true from pg_publication",
        "insert into shadow.pg_publication_rel select 2, oid, 't'::regclass, null, null, true from pg_publication",
    )  # fmt: skip
    source.session.execute("set search_path = shadow, pg_catalog")
    found = read_publication(source.session, source.settings.publication)
    assert found is not None
    sent = {str(table) for table in found.tables}
    assert "public.a" in sent
    assert not sent & {"public.b", "public.t", "public.t_1"}
