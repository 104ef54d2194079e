"""One chunk's transaction against everything that moves rows without a change to be seen (H71)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from cdc.process.errors import ConfigError, Exit
from cdc.settings.mask_rules import NO_MASKS
from cdc.wiring import open_source
from connectors.postgres.server.catalog_shapes import table_schema
from snapshot.first.row_writer import ChunkTask, CutLost, read_chunk
from snapshot.first.slot_creation import open_cut
from snapshot.source.ports import Session
from snapshot.source.read_transaction import Changed, LockTimeout, copy_out
from tests.integration.snapshot.pipeline import Pipeline
from tests.waiting import wait_until

TABLE = (
    "create table t (id int primary key, a int, b int)",
    "insert into t select g, g, -g from generate_series(1, 1000) g",
)


@pytest.fixture
def session(pipeline: Pipeline) -> Iterator[Session]:
    with closing(pipeline.edges().source.session("test", lock_timeout_s=0.5)) as session:
        yield session


@contextmanager
def cut(pipeline: Pipeline) -> Iterator[str]:
    with closing(open_cut(pipeline.edges().source)) as holder:
        yield holder.cut.snapshot


def row_count(session: Session, chunk: ChunkTask) -> int:
    count = sum(len(lines) for lines in read_chunk(session, chunk))
    session.execute(b"commit")
    return count


@pytest.mark.parametrize(
    "statements",
    [
        ["vacuum full t"],
        ["cluster t using t_pkey"],
        ["alter table t alter a type bigint"],
        ["alter table t alter a type int using a * 2"],
        ["truncate t"],
        ["drop table t"],
        ["drop table t", *TABLE],
        ["alter table t drop column b"],
        ["alter table t rename column b to c"],
        [
            "alter table t rename column a to x",
            "alter table t rename column b to a",
            "alter table t rename column x to b",
        ],
        ["alter table t drop column b", "alter table t add column b int"],
        ["alter table t set unlogged"],
        ["alter table t rename to u"],
    ],
    ids=lambda statements: "; ".join(statements)[:60],
)
def test_h71_a_table_that_changed_behind_the_cut_is_not_read(
    pipeline: Pipeline, session: Session, statements: list[str]
) -> None:
    pipeline.execute(*TABLE)
    with cut(pipeline) as snapshot:
        chunk = pipeline.task(session, snapshot)
        pipeline.execute(*statements)
        with pytest.raises(Changed):
            row_count(session, chunk)


def test_h71_a_type_changed_before_the_cut_is_read_in_a_new_plan(pipeline: Pipeline, session: Session) -> None:
    """``varchar`` to ``text`` rewrites nothing, so the file is the planned one."""
    pipeline.execute("create table v (id int primary key, v varchar)", "insert into v values (1, 'x')")
    planned = pipeline.task(session, "", "v")
    pipeline.execute("alter table v alter v type text")
    with cut(pipeline) as snapshot, pytest.raises(Changed, match="another column v"):
        row_count(session, replace(planned, cut=replace(planned.cut, snapshot=snapshot)))


def test_h86_a_partition_that_was_detached_is_not_read(pipeline: Pipeline, session: Session) -> None:
    pipeline.execute(
        "create table p (id int primary key) partition by range (id)",
        "create table p_1 partition of p for values from (0) to (9)",
        "insert into p values (1)",
    )
    with cut(pipeline) as snapshot:
        root = pipeline.one("select 'p'::regclass::oid::int8")
        schema = table_schema(session, root, topic="x", encoding="readable", masks=NO_MASKS, version=1)
        chunk = replace(pipeline.task(session, snapshot, "p_1"), schema=schema)
        assert row_count(session, chunk) == 1
        pipeline.execute("alter table p detach partition p_1")
        with pytest.raises(Changed, match="no partition of the table"):
            row_count(session, chunk)


def test_a_row_filter_that_fails_is_refused_without_a_value(pipeline: Pipeline, session: Session) -> None:
    pipeline.execute(*TABLE)
    with cut(pipeline) as snapshot:
        chunk = replace(pipeline.task(session, snapshot), condition="(1 / (a - 5) > 0)")
        with pytest.raises(ConfigError, match=r"public\.t cannot be read: Postgres answers 22012") as refusal:
            row_count(session, chunk)
    assert refusal.value.exit == Exit.CONFIG


def test_h71_without_the_check_the_whole_table_would_be_lost(pipeline: Pipeline, session: Session) -> None:
    """What the check is for: the rewritten rows belong to a transaction that the cut does not see."""
    pipeline.execute(*TABLE)
    with cut(pipeline) as snapshot:
        pipeline.execute("alter table t alter a type int using a * 2")
        session.execute(b"begin isolation level repeatable read")
        session.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
        found = session.execute(b"select count(*) from public.t").fetchone()
        session.rollback()
    assert found == (0,)


def test_what_does_not_move_rows_is_read(pipeline: Pipeline, session: Session) -> None:
    pipeline.execute(*TABLE)
    with cut(pipeline) as snapshot:
        chunk = pipeline.task(session, snapshot)
        pipeline.execute(
            "alter table t add column later int default 7",
            "create index on t (a)",
            "update t set a = 0 where id <= 10",
            "delete from t where id > 990",
            "insert into t select g from generate_series(2000, 2100) g",
            "vacuum t",
        )
        assert row_count(session, chunk) == 1000, "the cut is older than all of it"


def test_h71_the_lock_precedes_the_snapshot_and_bars_a_rewrite(pipeline: Pipeline, session: Session) -> None:
    pipeline.execute(*TABLE)
    with cut(pipeline) as snapshot:
        lines = read_chunk(session, pipeline.task(session, snapshot))
        first = next(lines)
        with pipeline.session() as other:
            other.execute("set lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("vacuum full t")
        assert len(first) + sum(len(block) for block in lines) == 1000


def test_a_cut_whose_holder_is_gone_is_lost(pipeline: Pipeline, session: Session) -> None:
    pipeline.execute(*TABLE)
    with cut(pipeline) as snapshot:
        chunk = pipeline.task(session, snapshot)
        assert row_count(session, chunk) == 1000
    # The server ends the session a moment after it was closed here.
    wait_until(lambda: pipeline.one(f"select pg_stat_file('pg_snapshots/{snapshot}', true) is null"), 10)
    with pytest.raises(CutLost):
        row_count(session, chunk)


def test_h19_a_cut_whose_holder_has_just_ended_is_lost_too(pipeline: Pipeline, session: Session) -> None:
    """The file outlives the transaction for a moment. Here for longer: as a copy that nobody removes."""
    pipeline.execute(*TABLE)
    left = "0000000A-0000000A-1"
    with cut(pipeline) as snapshot:
        chunk = pipeline.task(session, left)
        folder = pipeline.one("select current_setting('data_directory') || '/pg_snapshots/'")
        pipeline.execute(
            f"copy (select line from string_to_table(rtrim(pg_read_file('{folder}{snapshot}'), e'\\n'), e'\\n') line)"
            f" to '{folder}{left}'"
        )
        assert row_count(session, chunk) == 1000
    # The holder's session ends on the server a moment after it was closed here; its own file goes at the very end.
    wait_until(lambda: pipeline.one(f"select pg_stat_file('{folder}{snapshot}', true) is null"), 10)
    with pytest.raises(CutLost, match="could not import"):
        row_count(session, chunk)


def test_a_locked_table_is_not_waited_for_without_end(pipeline: Pipeline, session: Session) -> None:
    pipeline.execute(*TABLE)
    with cut(pipeline) as snapshot, psycopg.connect(pipeline.dsn) as other:
        chunk = pipeline.task(session, snapshot)
        other.execute("lock table t in access exclusive mode")
        with pytest.raises(LockTimeout):
            row_count(session, chunk)
        other.rollback()
        session.rollback()
        assert row_count(session, chunk) == 1000


def test_rights_on_columns_alone_are_enough(pipeline: Pipeline, session: Session) -> None:
    """LOCK TABLE wants a right on the whole table; then the reading itself locks, and is checked all the same."""
    pipeline.execute(*TABLE)
    name = f"r{pipeline.name}"
    with cut(pipeline) as snapshot:
        chunk = pipeline.task(session, snapshot)
        pipeline.execute(f"create role {name}", f"grant select (id, a, b) on t to {name}")
        try:
            session.execute(f"set role {name}".encode())
            assert row_count(session, chunk) == 1000
            pipeline.execute("vacuum full t")
            with pytest.raises(Changed):
                row_count(session, chunk)
            session.rollback()
            pipeline.execute(f"revoke select (b) on t from {name}")
            with pytest.raises(ConfigError, match="cannot be read"):
                row_count(session, chunk)
        finally:
            session.rollback()
            session.execute(b"reset role")
            pipeline.execute(f"drop owned by {name}", f"drop role {name}")


def test_ranges_meet_without_gap_or_overlap(pipeline: Pipeline, session: Session) -> None:
    pipeline.execute("create table t (id int primary key)", "insert into t select generate_series(1, 5000)")
    blocks = pipeline.one("select pg_relation_size('t') / 8192")
    read: list[bytes] = []
    with cut(pipeline) as snapshot:
        whole = pipeline.task(session, snapshot)
        for low in range(blocks):
            high = low + 1 if low < blocks - 1 else None
            part = replace(whole, chunk=replace(whole.chunk, low=low, high=high))
            read += [line for lines in read_chunk(session, part) for line in lines]
            session.execute(b"commit")
    assert sorted(map(int, read)) == list(range(1, 5001))


def test_lines_come_in_blocks_of_bounded_size(pipeline: Pipeline) -> None:
    with closing(open_source(pipeline.settings)) as session:
        sizes = [len(block) for block in copy_out(session, b"copy (select generate_series(1, 2500)) to stdout")]
        assert sizes == [1000, 1000, 500]
        wide = [
            len(b) for b in copy_out(session, b"copy (select repeat('x', 600000) from generate_series(1, 5)) to stdout")
        ]
        assert wide == [2, 2, 1]
        assert list(copy_out(session, b"copy (select 1 where false) to stdout")) == []


def test_a_copy_that_fails_midway_leaves_the_session_usable(pipeline: Pipeline) -> None:
    with closing(open_source(pipeline.settings)) as session:
        lines = copy_out(session, b"copy (select 1 / (3000 - g) from generate_series(1, 5000) g) to stdout")
        assert len(next(lines)) == 1000
        with pytest.raises(psycopg.errors.DivisionByZero):
            list(lines)
        assert session.execute(b"select 1").fetchone() == (1,)
        with pytest.raises(psycopg.errors.SyntaxError):
            list(copy_out(session, b"copy nonsense"))
        assert session.execute(b"select 1").fetchone() == (1,)
