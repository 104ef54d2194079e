"""Looks at the source wait for nobody: every statement that is one, while each captured table is locked (H95)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.process.errors import SourceError
from cdc.process.sql_files import load
from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import Settings, parse
from connectors.operate.snapshot import SnapshotSource
from connectors.postgres.protocol.messages import Relation, RelationColumn
from connectors.postgres.server.catalog_facts import read_publication, read_source
from connectors.postgres.server.catalog_shapes import from_relation, survey, table_schema
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.publication import ensure_publication
from snapshot.source.inspection import sizes

ROOT = Path(__file__).parents[3]

SCHEMA = """
create schema s;
create type s.mood as enum ('x', 'y');
create type s.pair as (a int, m s.mood);
create domain s.price as numeric(10,2);
create table s.wide (id int primary key, doc text, m s.mood, p s.pair[], c s.price,
                     g int generated always as (id * 2) stored);
create table s.filtered (id int primary key, doc text);
create table s.listed (id int primary key, doc text, hidden text);
create table s.tree (id int, region text, primary key (region, id)) partition by list (region);
create table s.tree_eu partition of s.tree for values in ('eu') partition by range (id);
create table s.tree_eu_low partition of s.tree_eu for values from (0) to (100);
create table s.tree_us partition of s.tree for values in ('us');
insert into s.wide select n, repeat('x', 10000), 'x' from generate_series(1, 9) n;
create publication looks for table s.wide, s.filtered where (id > 5), s.listed (id, doc), s.tree
    with (publish_via_partition_root = true);
"""

LOOKS = {
    ("connectors.postgres.server", "queries.sql"): {
        "relations", "access", "leaves", "columns", "unsent", "relation", "key", "types", "type_names", "children",
        "readable", "parts",
    },
    ("connectors.postgres.server", "facts.sql"): {
        "server", "system_identifier", "wal_lsn", "timeline", "noted_timeline", "slot", "publication", "published",
        "publishing", "named", "transactions", "hidden",
    },
    ("connectors.postgres.server", "outbox.sql"): {"columns", "open_functions"},
    ("connectors.postgres.server", "rows.sql"): {
        "shape", "snapshot", "insert_lsn", "kept_lsn", "nudge", "newest_xid", "ended", "mark", "estimate",
    },
    ("connectors.postgres.server", "stream.sql"): {
        "try_lock", "holders", "written_lsn", "take_xid", "see", "timeout", "gss_encrypted", "token",
    },
    ("snapshot.source", "queries.sql"): {
        "leaves", "size_lock_timeout", "insert_lsn", "links", "types", "slot_holder", "blockers", "prepared",
        "cut_time", "take_lock", "share_lock", "give_lock_back", "lock_holders", "see", "kept_lsn", "nudge",
        "fingerprint", "columns", "key_types",
    },
    ("connectors.session", "queries.sql"): {"snapshot", "brief", "identities", "written", "partition"},
    ("connectors.views", "queries.sql"): {
        "table_statistics", "column_statistics", "columns", "foreign_keys", "reserved",
    },
    ("connectors.debezium", "queries.sql"): {"incomparable_keys", "long_columns", "primary_keys", "reading"},
    ("connectors.operate", "queries.sql"): {"sizes"},
}  # fmt: skip
"""Statements that ask about tables, or about nothing that is locked."""

READINGS_AND_CHANGES = {
    ("connectors.postgres.server", "rows.sql"): {
        "column", "rows", "filter", "columns_now", "copy_rows", "copy_keys", "copy_view", "copy_view_keys",
        "copy_view_where",
    },
    ("connectors.postgres.server", "stream.sql"): {
        "drop_slot", "start", "lock_timeout", "create", "create_18", "add", "via_root", "every_operation",
        "drop_publication",
    },
    ("connectors.postgres.server", "queries.sql"): {"session", "hypertable", "pg_dist_partition"},
    ("snapshot.source", "queries.sql"): {
        "begin_read", "lock_table", "lock_leaf", "leaf_form", "columns_seen", "columns_now", "copy_blocks", "sizes",
        "row_filters", "create_slot", "create_slot_alone", "import_snapshot", "keep_slot", "keep_on_standbys",
        "drop_slot", "end_session", "export_cut", "read_keys", "canonical_keys", "check_condition",
    },
    ("connectors.session", "queries.sql"): {"probe"},
    ("connectors.debezium", "queries.sql"): {"has_rows"},
}  # fmt: skip
"""Statements that read rows under the table's lock, with a lock timeout, such as change something, and those of
extensions, which the test's server lacks."""

OF_OTHERS = {"cdc/demo", "sinks/sql", "sinks/warehouse"}
"""Folders of statements that no captured Postgres is asked."""


@dataclass(frozen=True, slots=True)
class Place:
    """A database under locks. ``session`` gives up where it would have to wait for a lock."""

    dsn: str
    settings: Settings
    session: Connection


@contextmanager
def locked(dsn: str) -> Iterator[None]:
    """Every table, partition, index and TOAST table of the database is locked, as by an ALTER that rewrites it."""
    with psycopg.connect(dsn) as owner:
        tables = owner.execute(
            "select string_agg(oid::regclass::text, ', ') from pg_class"
            " where relnamespace = 's'::regnamespace and relkind in ('r', 'p')"
        ).fetchone()
        assert tables
        # TRUNCATE locks indexes and TOAST tables too.
        owner.execute(f"lock table {tables[0]} in access exclusive mode".encode())
        owner.execute(f"truncate {tables[0]}".encode())
        yield
        owner.rollback()


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(SCHEMA)
    settings = parse(
        {
            "name": "looks",
            "source": {"dsn": database, "tables": ["s.*"], "publication": "looks"},
            "log": {"bootstrap_servers": "none"},
        }
    )
    with closing(connect(settings.source, options={"lock_timeout": "1ms"})) as session, locked(database):
        yield Place(database, settings, session)


def test_every_statement_is_a_look_or_none() -> None:
    kept = {
        (str(path.relative_to(ROOT).parent).replace("/", "."), path.name)
        for package in ("cdc", "connectors", "sinks", "snapshot", "spark")
        for path in (ROOT / package).rglob("*.sql")
        if str(path.relative_to(ROOT).parent) not in OF_OTHERS
    }
    assert kept == LOOKS.keys() | READINGS_AND_CHANGES.keys()
    for place in LOOKS.keys() | READINGS_AND_CHANGES.keys():
        looks, others = LOOKS.get(place, set()), READINGS_AND_CHANGES.get(place, set())
        assert load(*place).keys() == looks | others, place
        assert not looks & others


def test_h95_no_look_waits_for_a_table_that_is_locked(place: Place) -> None:
    oids = [row[0] for row in place.session.execute(
        "select oid::int8 from pg_class where relnamespace = 's'::regnamespace and relkind in ('r', 'p')"
    )]  # fmt: skip
    assert len(oids) == 7
    types = [row[0] for row in place.session.execute("select distinct atttypid::int8 from pg_attribute")]
    values: dict[str, Any] = {
        "publication": "looks", "slot": "looks", "tops": oids, "age_s": 1.0, "oids": oids, "pid": 1,
        "typmods": [-1] * len(oids), "xid": "1", "space": 1, "number": 1, "class": 1, "tables": ["s.wide"],
        "schemas": ["s"], "names": ["wide"], "marks": ["rds"],
    }  # fmt: skip
    of_oid = ("oid", "root", "leaf")
    for (package, file), names in LOOKS.items():
        for name in sorted(names):
            statement = load(package, file)[name]
            each = types if name == "types" and package == "connectors.postgres.server" else oids
            for oid in each if any(f"%({name})s" in statement for name in of_oid) else [0]:
                arguments = {**values, **dict.fromkeys(of_oid, oid), "oids": each, "typmods": [-1] * len(each)}
                with place.session.transaction(force_rollback=True):
                    used = {key: value for key, value in arguments.items() if f"%({key})s" in statement}
                    place.session.execute(statement.encode(), used or None)


def test_h95_what_the_looks_are_made_into_waits_for_nobody(place: Place) -> None:
    found = survey(place.session, place.settings)
    assert [table.table.table for table in found.tables] == ["filtered", "listed", "tree", "wide"]
    assert [leaf.table.table for leaf in found.tables[2].leaves] == ["tree_eu_low", "tree_us"]
    assert read_source(place.session, place.settings).publication is not None
    for table in found.tables:
        shape = table_schema(
            place.session, table.oid, topic="t", encoding="readable", masks=NO_MASKS, publication="looks"
        )
        columns = tuple(
            RelationColumn(name=c.name, type_oid=c.type_oid, typmod=-1, in_key=c.key_position is not None)
            for c in shape.columns
        )
        message = Relation(
            relation_oid=table.oid, schema="s", table=table.table.table, identity=shape.identity, columns=columns
        )
        again = from_relation(
            place.session, message, topic="t", encoding="readable", masks=NO_MASKS, publication="looks"
        )
        assert [c.name for c in again.columns] == [c.name for c in shape.columns]
    assert not ensure_publication(place.session, "looks", found.tables), "nothing is to be changed"


def test_h95_sizes_that_cannot_be_had_now_are_not_known(place: Place) -> None:
    oid = survey(place.session, place.settings).tables[3].oid
    assert sizes(place.session, [oid]) == {}
    with closing(SnapshotSource(place.settings).session("other")) as unlimited:
        assert sizes(unlimited, [oid]) == {}


PUBLISHED = (
    "all tables",
    "table s.wide, s.filtered where (id > 5), s.listed (id, doc)",
    "table s.tree",
    "table s.tree, s.tree_us",
    "table s.tree_eu",
    "table s.tree_us, only public.heir",
    "table s.wide, tables in schema public",
    "tables in schema s",
    "tables in schema parts",
)


def test_h95_the_published_tables_are_those_of_the_view(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(SCHEMA)
        owner.execute("create table public.heir () inherits (s.wide); create unlogged table public.fleeting (a int)")
        owner.execute("create schema parts; create table parts.asia partition of s.tree for values in ('asia')")
        owner.execute("create view public.looked as select 1 as one")
        for what, via_root in product(PUBLISHED, (True, False)):
            made = f"create publication p for {what} with (publish_via_partition_root = {via_root})"
            owner.execute(made.encode())
            view = owner.execute(
                "select schemaname, tablename, rowfilter is not null from pg_publication_tables where pubname = 'p'"
            ).fetchall()
            found = read_publication(owner, "p")
            assert found is not None
            assert {(t.schema, t.table, t in found.filtered) for t in found.tables} == set(view), made
            assert found.sent.keys() == found.tables
            assert all(sent.born for sent in found.sent.values())
            owner.execute("drop publication p")


def test_h96_every_way_to_change_a_publication_leaves_its_trace(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(SCHEMA)

        def born(publication: str) -> dict[str, str]:
            found = read_publication(owner, publication)
            assert found is not None
            return {table.table: sent.born for table, sent in found.sent.items()}

        owner.execute("create publication schemas for tables in schema s with (publish_via_partition_root = true)")
        for publication, there, back in [
            ("looks", "drop table s.wide", "add table s.wide"),
            ("looks", "set (publish = 'insert')", "set (publish = 'insert, update, delete, truncate')"),
            ("looks", "drop table s.tree", "add table s.tree"),
            ("looks", "set table s.listed", "set table s.wide, s.filtered where (id > 5), s.listed (id, doc), s.tree"),
            ("schemas", "drop tables in schema s", "add tables in schema s"),
        ]:
            before = born(publication)
            for change in (there, back):
                owner.execute(f"alter publication {publication} {change}".encode())
            after = born(publication)
            assert after.keys() == before.keys()
            table = next(name for name in ("wide", "tree") if name in there or name == "tree")
            assert after[table] != before[table], there
        assert "tree_us" not in after


@pytest.mark.slow
def test_h95_a_publication_change_that_has_to_wait_is_given_up(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("create schema s; create table s.a (id int primary key); create publication looks")
    settings = parse(
        {"name": "looks", "source": {"dsn": database, "tables": ["s.*"]}, "log": {"bootstrap_servers": "none"}}
    )
    with closing(connect(settings.source)) as session:
        tables = survey(session, settings).tables
        with locked(database), pytest.raises(SourceError, match="one of the tables is locked"):
            ensure_publication(session, "looks", tables)
