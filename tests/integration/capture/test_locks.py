"""A table that somebody has locked: everything else goes on, and every command answers (H95)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cdc.record.state import FormState, find_all
from tests.integration.capture.later import same
from tests.integration.capture.pipeline import Pipeline
from tests.programs import RunCdc
from tests.waiting import wait_until

LOOKS = """select application_name || query from pg_stat_activity
where application_name like 'cdc%' and wait_event_type = 'Lock' and datname = current_database()"""
WALSENDER = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s"


@contextmanager
def locked(pipeline: Pipeline, *tables: str) -> Iterator[None]:
    """As by an ALTER that rewrites them; TRUNCATE takes indexes and TOAST tables too."""
    with pipeline.session() as session, session.transaction(force_rollback=True):
        session.execute(f"lock table {', '.join(tables)} in access exclusive mode".encode())
        session.execute(f"truncate {', '.join(tables)}".encode())
        yield


@pytest.mark.slow
def test_h95_a_locked_table_stops_no_other_and_no_command(pipeline: Pipeline, run_cdc: RunCdc) -> None:
    pipeline.document["snapshot"] = {"watch": "200ms"}
    pipeline.prepare(
        "create table locked (id int primary key, v text)",
        "create table tree (id int primary key) partition by range (id)",
        "create table leaf partition of tree for values from (0) to (1000)",
        "create table free (id int primary key)",
    )
    config = pipeline.config()
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into locked values (1, 'v')", "insert into tree values (1)")
        pipeline.settle()
        with locked(pipeline, "locked", "tree", "leaf"):
            # More than a look's interval: slot, publication and catalog have been looked at meanwhile.
            looked_s = capturing.figures.ticked_s
            wait_until(lambda: capturing.figures.ticked_s > looked_s + 5, 30)
            pipeline.execute("insert into free values (1)", "create table late (id int primary key)")
            pipeline.settle()
            assert capturing.figures.reconnects == 0
            assert pipeline.one(LOOKS) is None
            pipeline.one(WALSENDER, pipeline.slot)
            wait_until(lambda: capturing.figures.reconnects == 1 and capturing.streaming, 30)
            pipeline.execute("insert into free values (2)")
            pipeline.settle()
            assert capturing.figures.reconnects == 1
            # The new table is refused by check until init has published it, which asks for that table's lock alone.
            made = run_cdc("--config", config, "init", timeout_s=60)
            assert made.returncode == 0, made.stderr
            checked = run_cdc("--config", config, "check", timeout_s=60)
            assert checked.returncode == 0, checked.stdout + checked.stderr
    with locked(pipeline, "locked", "tree", "leaf"):
        run = pipeline.stream()
        pipeline.execute("insert into free values (3)")
        pipeline.settle()
        assert run.terminate() == 0
    pipeline.assert_equal("locked", "tree", "free")


@pytest.mark.slow
def test_h95_many_ddls_at_once_stop_nobody(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"watch": "100ms"}
    tables = [f"t{number}" for number in range(17)]
    pipeline.prepare(
        *(f"create table {table} (id int primary key)" for table in tables), "create table free (id int primary key)"
    )
    with pipeline.capturing() as capturing, pipeline.session() as owner:
        wait_until(lambda: len(find_all(pipeline.state(), FormState)) == 18, 30)
        with owner.transaction():
            for number in range(10):
                for table in tables:
                    owner.execute(f"alter table {table} add column c{number} int default {number}".encode())
                    owner.execute(f"insert into {table} (id) values ({number})".encode())
                pipeline.execute(f"insert into free values ({number})")
            pipeline.settle()
        # A default for rows from before the column is told by no event: those are read again.
        for table in ("free", "t0", "t16"):
            wait_until(lambda table=table: same(pipeline, table) is None, 60, table)  # type: ignore[misc,func-returns-value]
        assert capturing.figures.reconnects == 0
