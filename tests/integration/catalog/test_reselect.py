"""Values looked up in a real server's tables, which others alter, rename and inherit from meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from cdc.process.clock import SystemClock
from cdc.record.schema import Column, TableSchema
from cdc.record.tables_aside import CannotFollow, Cause
from connectors.postgres.assembly.pending_records import GONE, LATER, Selected, WantedRow
from connectors.postgres.protocol.messages import Omitted
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.reselect import PostgresReselect
from tests.golden.direct import settings_of
from tests.unit.connectors.postgres import written as w

LIMIT = 1 << 20


class Source:
    """The owner's session, and re-selects on one like capture's.

    ``meanwhile``: executed while one waits, at its last wait of ``waits``.
    """

    def __init__(self, owner: psycopg.Connection[tuple[object, ...]], session: Connection) -> None:
        self._owner = owner
        self._reselect = PostgresReselect(session, clock=SystemClock(), waiting=self._wait, row_limit=LIMIT)
        self.meanwhile: list[str] = []
        self.waits = 1

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self._owner.execute(statement.encode())

    def shape(self, name: str, *, key: str = "int4", doc: str = "text") -> TableSchema:
        """The table with the columns ``id`` and ``doc`` as it is now; their kinds as given."""
        found = self._owner.execute(
            "select attnum, atttypid::int8, attrelid::int8 from pg_attribute"
            " where attrelid = %s::regclass and attnum in (1, 2) order by attnum",
            [name],
        ).fetchall()
        columns: list[Column] = []
        for (attnum, type_oid, _), column in zip(found, (w.column("id", key, 0), w.column("doc", doc)), strict=True):
            columns.append(replace(column, attnum=int(str(attnum)), type_oid=int(str(type_oid))))
        return w.table(*columns, oid=int(str(found[0][2])), name=name)

    def docs(self, schema: TableSchema, *keys: bytes) -> Sequence[Selected]:
        row = self._owner.execute("select (pg_current_xact_id()::text)::int8").fetchone()
        assert row is not None
        wanted = [WantedRow(schema=schema, key=(key,), columns=(1,)) for key in keys]
        return self._reselect.rows(wanted, {int(str(row[0]))})

    def _wait(self) -> None:
        self.waits -= 1
        if self.waits <= 0:
            self.execute(*self.meanwhile)
            self.meanwhile.clear()


@pytest.fixture
def source(database: str) -> Iterator[Source]:
    settings = settings_of("s", database, "readable").source
    with psycopg.connect(database, autocommit=True) as owner, closing(connect(settings)) as conn:
        yield Source(owner, conn)


def test_h38_a_table_that_inherits_has_rows_of_its_own(source: Source) -> None:
    source.execute(
        "create table root (id int primary key, doc text)",
        "create table child () inherits (root)",
        "insert into root values (1, 'root')",
        "insert into child values (1, 'child'), (2, 'child')",
    )
    assert source.docs(source.shape("root"), b"1", b"2") == [(b"root",), GONE]


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("text", "repeat('x', n)"),
        ("jsonb", "jsonb_build_object('k', repeat('x', n - 9))"),
        ("bytea", "decode(repeat('ab', n / 2 - 1), 'hex')"),
        ("text", "(select string_agg(md5(g::text), '') from generate_series(1, n / 32) g)"),
    ],
)
def test_h58_a_text_too_large_for_its_topic_is_only_measured(source: Source, kind: str, made: str) -> None:
    source.execute(
        f"create table t (id int primary key, doc {kind})",
        f"insert into t select id, {made} from (values (1, {LIMIT}), (2, {LIMIT + 32}), (3, 64)) as v (id, n)",
        "insert into t values (4, null)",
    )
    fits, large, small, null = source.docs(source.shape("t", doc=kind), b"1", b"2", b"3", b"4")
    assert large == (Omitted(LIMIT + 32, b""),)
    texts = [one[0] for one in (fits, small) if isinstance(one, tuple)]
    assert [len(text) for text in texts if isinstance(text, bytes)] == [LIMIT, 64]
    assert null == (None,)


def test_h38_a_partitioned_table_is_asked_with_its_partitions(source: Source) -> None:
    source.execute(
        "create table tree (id int primary key, doc text) partition by range (id)",
        "create table low partition of tree for values from (0) to (10)",
        "insert into tree values (1, 'low')",
    )
    assert source.docs(source.shape("tree"), b"1") == [(b"low",)]


def test_h87_a_key_that_is_none_any_more_names_no_row(source: Source) -> None:
    source.execute("create table t (id int primary key, doc text)", "insert into t values (1, 'a'), (2, 'b')")
    schema = source.shape("t")
    assert source.docs(schema, b"1") == [(b"a",)]
    source.execute("alter table t drop constraint t_pkey", "insert into t values (1, 'again')")
    assert source.docs(schema, b"1", b"2") == [GONE, (b"b",)]


def test_w9_a_key_without_overlaps_is_matched_by_equality(source: Source) -> None:
    """Its index compares by &&, under which a row has as many matches as rows that it overlaps."""
    source.execute(
        "create table t (id int4range, doc text, at daterange, primary key (id, at without overlaps))",
        "insert into t values ('[1,5)', 'a', '[2025-01-01,)'), ('[2,6)', 'b', '[2025-01-01,)')",
    )
    schema = source.shape("t", key="int4range")
    assert source.docs(schema, b"[1,5)", b"[2,6)", b"[1,6)") == [(b"a",), (b"b",), GONE]


def test_h87_after_a_swap_by_renames_the_table_itself_is_asked(source: Source) -> None:
    source.execute(
        "create table old (id int primary key, doc text)",
        "create table new (id int primary key, doc text)",
        "insert into old values (1, 'old')",
        "insert into new values (1, 'new')",
    )
    schema = source.shape("old")
    assert source.docs(schema, b"1") == [(b"old",)]
    source.execute(
        "begin", "alter table old rename to gone", "alter table new rename to old", "alter table gone rename to new",
        "commit",
    )  # fmt: skip
    assert source.docs(schema, b"1") == [(b"old",)]
    source.execute("create schema other", "alter table new set schema other", "create table new (like old)")
    assert source.docs(schema, b"1") == [(b"old",)]


def test_h87_a_key_whose_label_was_renamed_is_gone_and_not_told(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.execute(
        "create type colour as enum ('secretred', 'green')",
        "create table t (id colour primary key, doc text)",
        "insert into t values ('secretred', 'r'), ('green', 'g')",
    )
    schema = source.shape("t", key="enum")
    assert source.docs(schema, b"secretred", b"green") == [(b"r",), (b"g",)]
    source.execute("alter type colour rename value 'secretred' to 'blue'")
    with caplog.at_level(logging.WARNING):
        assert source.docs(schema, b"secretred", b"green", b"blue") == [GONE, (b"g",), (b"r",)]
    assert [record.getMessage() for record in caplog.records] == ["reselect_key_refused"]
    assert not any("secretred" in str(vars(record)) for record in caplog.records)


def test_h69_a_key_whose_label_is_not_visible_yet_is_waited_for(source: Source) -> None:
    source.execute(
        "create type colour as enum ('red')",
        "create table t (id colour primary key, doc text)",
        "insert into t values ('red', 'r')",
    )
    schema = source.shape("t", key="enum")
    source.execute("begin", "alter type colour rename value 'red' to 'blue'")
    source.meanwhile.append("commit")
    source.waits = 3
    assert source.docs(schema, b"blue") == [(b"r",)]
    assert not source.meanwhile


def test_h72_a_value_that_is_not_visible_yet_is_waited_for(source: Source) -> None:
    source.execute("create table t (id int primary key, doc text)", "insert into t values (1, 'old')")
    schema = source.shape("t")
    source.execute("begin", "update t set doc = 'new' where id = 1")
    source.meanwhile.append("commit")
    source.waits = 3
    assert source.docs(schema, b"1") == [(b"new",)]
    assert not source.meanwhile


def test_h87_a_key_that_its_domain_refuses_is_gone(source: Source) -> None:
    source.execute(
        "create domain code as text",
        "create table t (id code primary key, doc text)",
        "insert into t values ('a', 'A'), ('bb', 'BB')",
    )
    schema = source.shape("t", key="text")
    source.execute("alter domain code add check (length(value) > 1) not valid")
    assert source.docs(schema, b"a", b"bb") == [GONE, (b"BB",)]


def test_h87_the_type_of_a_key_is_found_under_its_new_name(source: Source) -> None:
    source.execute(
        "create domain code as text",
        "create table t (id code primary key, doc text)",
        "insert into t values ('a', 'A')",
    )
    schema = source.shape("t", key="text")
    assert source.docs(schema, b"a") == [(b"A",)]
    source.execute("alter domain code rename to short", "create schema types", "alter domain short set schema types")
    assert source.docs(schema, b"a") == [(b"A",)]


@pytest.mark.parametrize("retyped", ["varchar", "varchar(5000)", "bpchar", "longer"])
def test_h87_a_text_retyped_to_another_string_type_is_found(source: Source, retyped: str) -> None:
    source.execute(
        "create domain longer as varchar",
        "create table t (id int primary key, doc text)",
        "insert into t values (1, 'wide')",
    )
    schema = source.shape("t")
    source.execute(f"alter table t alter doc type {retyped}")
    assert source.docs(schema, b"1") == [(b"wide",)]


@pytest.mark.parametrize("retyped", ["bytea using doc::bytea", "text[] using array[doc]", "json using to_json(doc)"])
def test_h87_a_text_retyped_to_something_else_is_not(source: Source, retyped: str) -> None:
    source.execute("create table t (id int primary key, doc text)", "insert into t values (1, 'wide')")
    schema = source.shape("t")
    source.execute(f"alter table t alter doc type {retyped}")
    assert source.docs(schema, b"1") == [GONE]


def test_h141_a_row_hidden_by_row_security_is_not_gone(source: Source, database: str) -> None:
    role = f"r{database.rpartition('dbname=')[2].split()[0]}"
    source.execute(
        "create table t (id int primary key, doc text)",
        "insert into t values (1, 'a'), (2, 'b')",
        "alter table t enable row level security",
        "create policy p on t using (id = 1)",
        f"create role {role}",
        f"grant select on t to {role}",
    )
    shape = source.shape("t")
    with closing(connect(settings_of("s", database, "readable").source)) as session:
        session.execute(f"set role {role}".encode())
        reselect = PostgresReselect(session, clock=SystemClock())
        with pytest.raises(CannotFollow, match="row-level security") as refused:
            reselect.rows([WantedRow(schema=shape, key=(b"2",), columns=(1,))], set())
        assert refused.value.cause is Cause.NOT_READABLE
    source.execute(f"drop owned by {role}", f"drop role {role}")


def test_h152_locked_tables_share_one_time_limit(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """Behind the first three that are locked no other is asked; a lock is logged once for each table."""
    caplog.set_level(logging.INFO, logger="connectors.postgres")
    names = [f"t{n}" for n in range(6)]

    def logged() -> list[str]:
        found = [vars(one)["table"] for one in caplog.records if one.getMessage() == "reselect_locked_out"]
        caplog.clear()
        return found

    settings = settings_of("s", database, "readable").source
    side = connect(settings, options={"lock_timeout": "50ms"})
    with psycopg.connect(database, autocommit=True) as owner, psycopg.connect(database) as locks, closing(side):
        source = Source(owner, side)
        for name in names:
            source.execute(f"create table {name} (id int primary key, doc text)", f"insert into {name} values (1, 'a')")
        shapes = [source.shape(name) for name in names]
        wanted = [WantedRow(schema=shape, key=(b"1",), columns=(1,)) for shape in shapes]
        reselect = PostgresReselect(side, clock=SystemClock())
        assert reselect.rows(wanted, set()) == [(b"a",)] * 6
        for _ in range(2):
            locks.execute(f"lock table {', '.join(names[1:])} in access exclusive mode")
            assert reselect.rows(wanted, set()) == [(b"a",), *[LATER] * 5]
            assert logged() == ["public.t1", "public.t2", "public.t3"]
            assert reselect.rows(wanted[::-1], set(), brief=True) == [LATER] * 6
            assert logged() == ["public.t5", "public.t4"], "the third was logged already"
            assert reselect.rows(wanted, set(), brief=True) == [(b"a",), *[LATER] * 5]
            assert logged() == []
            locks.rollback()
            assert reselect.rows(wanted, set()) == [(b"a",)] * 6


class PuttingOff(PostgresReselect):
    """Its standbys have received what was read when the test says so."""

    received = True

    def _kept_by_standbys(self, slot: str, seen: int, limit_s: float) -> bool:
        return self.received


def test_an_answer_that_was_put_off_says_as_of_when_it_is(database: str) -> None:
    """Its values are older than what the log has of another row meanwhile."""
    side = connect(settings_of("s", database, "readable").source)
    with psycopg.connect(database, autocommit=True) as owner, closing(side):
        source = Source(owner, side)
        source.execute("create table t (id int primary key, doc text)", "insert into t values (1, 'a'), (2, 'b')")
        shape = source.shape("t")
        late, soon = ([WantedRow(schema=shape, key=(key,), columns=(1,))] for key in (b"1", b"2"))
        reselect = PuttingOff(side, clock=SystemClock(), failover_slot="s")
        reselect.received = False
        assert reselect.rows(late, set(), brief=True) == [LATER]
        source.execute("insert into t values (3, 'c')")
        reselect.received = True
        assert reselect.rows(soon, set()) == [(b"b",)]
        newest = reselect.seen_lsn
        assert reselect.rows(late, set()) == [(b"a",)]
        assert reselect.seen_lsn < newest
