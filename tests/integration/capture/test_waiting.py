"""A table that is locked while values of its rows are to be read waits alone: all others flow (H95)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cdc.process.crash_points import CRASH_EXIT
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until

TABLES = (
    "create table t (id int primary key, doc text, n int)",
    "alter table t alter doc set storage external",
    "create table free (id int primary key)",
    "insert into t select n, repeat('x', 5000), 0 from generate_series(1, 3) n",
)


# More than a table's records take of memory, behind the update that lacks its values.
MANY = "insert into t select n, repeat('y', 1000), 0 from generate_series(10, 25000) n"


@contextmanager
def locked(pipeline: Pipeline, *more: str) -> Iterator[None]:
    """An update whose values are to be re-selected, and an ACCESS EXCLUSIVE lock that came before the re-select.

    ``more``: statements of the update's transaction, behind it.
    """
    with pipeline.session() as writer, pipeline.session() as owner:
        pid = owner.info.backend_pid
        with writer.transaction():
            writer.execute("update t set n = n + 1")
            for statement in more:
                writer.execute(statement.encode())
            owner.execute("begin")
            owner.pgconn.send_query(b"lock table t in access exclusive mode")
            # In line before the re-select, so that it has the lock before it.
            wait_until(lambda: pipeline.one("select count(*) from pg_locks where pid = %s and not granted", pid), 20)
        wait_until(lambda: not pipeline.one("select count(*) from pg_locks where pid = %s and not granted", pid), 20)
        try:
            yield
        finally:
            owner.pgconn.get_result()
            owner.pgconn.get_result()
            owner.execute("rollback")


@pytest.mark.slow
def test_h95_the_other_tables_flow_while_one_is_locked(pipeline: Pipeline) -> None:
    pipeline.prepare_with_rows(*TABLES)
    with pipeline.capturing() as capturing:
        before = pipeline.settle()
        with locked(pipeline):
            wait_until(lambda: bool(capturing.figures.waiting()), 30, "t waits")
            later = pipeline.fence()
            pipeline.execute("insert into free values (1)", "insert into free values (2)")
            wait_until(lambda: pipeline.count("free") == 2, 20, "the others flow")
            assert pipeline.count("t") == 3, "the rows of the snapshot"
            assert capturing.figures.waiting() == {"public.t": 3}
            after = pipeline.progress()
            assert after is not None
            assert before <= after.lsn <= later
            assert pipeline.confirmed() <= later
        pipeline.settle()
        assert capturing.figures.reconnects == 0
    pipeline.assert_equal("t", "free")


@pytest.mark.slow
@pytest.mark.parametrize("waits", [False, True])
def test_h95_h115_a_stop_is_heard_behind_a_lock(pipeline: Pipeline, waits: bool) -> None:
    """While the values of a row are asked for, and once its table waits. What it waited with comes again."""
    pipeline.prepare_with_rows(*TABLES)
    run = pipeline.stream()
    asked = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'cdc%' "
        "and datname = current_database()"
    )
    with locked(pipeline):
        if waits:
            wait_until(lambda: "table_waits" in run.stderr, 30)
        else:
            wait_until(lambda: pipeline.one(asked), 30)
        assert run.terminate() == 0, run.stderr
    assert "Traceback" not in run.stderr
    with pipeline.capturing():
        pipeline.settle()
    pipeline.assert_equal("t", "free")


@pytest.mark.parametrize("point", ["table_waits", "waiting_spilled", "table_follows"])
@pytest.mark.slow
def test_h95_killed_while_a_table_waits_nothing_is_lost(pipeline: Pipeline, point: str) -> None:
    pipeline.prepare_with_rows(*TABLES)
    run = pipeline.stream(CDC_CRASH_AT=point)
    with locked(pipeline, *([MANY] if point == "waiting_spilled" else [])):
        pipeline.execute("insert into free values (1)")
        if point != "table_follows":
            assert run.wait(60) == CRASH_EXIT
        else:
            wait_until(lambda: pipeline.count("free") == 1, 30, "the others flow")
    assert run.wait(60) == CRASH_EXIT
    with pipeline.capturing():
        pipeline.settle()
    pipeline.assert_equal("t", "free")
    pipeline.assert_ordered("t")
