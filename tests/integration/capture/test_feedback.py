"""What the server hears from us, and when."""

from __future__ import annotations

import pytest

from cdc.process.clock import SYSTEM_CLOCK
from tests.conftest import Stack
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until


@pytest.mark.slow
def test_h3_idle_database_does_not_pin_wal(pipeline: Pipeline) -> None:
    """Nothing of ours changes, others write: the slot moves all the same."""
    pipeline.prepare("create table t (id int primary key)")
    with pipeline.capturing():
        before = pipeline.confirmed()
        pipeline.execute("create temporary table other as select g from generate_series(1, 100000) g")
        fence = int(pipeline.one("select pg_current_wal_flush_lsn() - '0/0'"))
        assert fence > before
        wait_until(lambda: pipeline.confirmed() >= fence, 15, pipeline.confirmed)
    assert pipeline.count("t") == 0


@pytest.mark.slow
def test_h12_stalled_broker_does_not_cost_the_session(pipeline: Pipeline, stack: Stack) -> None:
    """wal_sender_timeout is 3 s, the broker stands still for twice as long."""
    pipeline.prepare("create table t (id int primary key, v text)")
    pipeline.document["source"]["dsn"] += " options='-c wal_sender_timeout=3s'"
    run = pipeline.stream()
    with stack.paused("kafka"):
        pipeline.execute("insert into t select g, repeat('v', 500) from generate_series(1, 20000) g")
        SYSTEM_CLOCK.sleep(7)
        assert pipeline.one("select active from pg_replication_slots where slot_name = %s", pipeline.slot)
    pipeline.settle(60)
    assert pipeline.said(run, "reconnecting") is None
    pipeline.assert_equal("t")
    assert run.terminate() == 0


@pytest.mark.slow
def test_reader_sees_its_own_write_quickly_and_health_is_told(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key)")
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into t values (1)")
        token = int(pipeline.one("select pg_current_wal_insert_lsn() - '0/0'"))

        def reached() -> bool:
            progress = pipeline.progress()
            return progress is not None and progress.lsn >= token

        wait_until(reached, 10)
        assert capturing.figures.phase == "streaming"
        assert capturing.figures.transactions == 1
