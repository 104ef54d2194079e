"""What a publication's row filter does to the stream."""

from __future__ import annotations

import pytest

from cdc.figures.capture_metrics import Health
from cdc.process.clock import SYSTEM_CLOCK
from cdc.wiring.pipeline import build_snapshot
from snapshot.source.ports import NoReport
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until


@pytest.mark.slow
def test_h46_entering_a_row_filter_inserts_and_leaving_deletes(pipeline: Pipeline) -> None:
    """Postgres turns such updates into inserts and deletes; a TRUNCATE knows no filter."""
    pipeline.execute(
        "create table t (id int primary key, tenant int)",
        "alter table t replica identity full",
        f"create publication {pipeline.settings.publication} for table t where (tenant <> 0)"
        " with (publish_via_partition_root = true)",
    )
    pipeline.prepare()
    with pipeline.capturing():
        pipeline.execute(
            "insert into t values (1, 0), (2, 7)",
            "update t set tenant = 7 where id = 1",
            "update t set tenant = 8 where id = 1",
            "update t set tenant = 0 where id = 2",
            "delete from t where id = 2",
        )
        pipeline.settle()
        assert pipeline.shorts("t") == ['c {"id":2}', 'c {"id":1}', 'u {"id":1}', 'd {"id":2}', '(d) {"id":2}']
        assert list(pipeline.compacted("t").values()) == [{"id": 1, "tenant": 8}]
        pipeline.execute("truncate t")
        pipeline.settle()
    assert pipeline.compacted("t") == {}


@pytest.mark.slow
def test_a_published_table_that_is_not_captured_has_any_shape(pipeline: Pipeline) -> None:
    """Their changes come, and no record is made of them: of a table without a key, and of one without columns."""
    pipeline.execute(
        f"create publication {pipeline.settings.publication} for all tables with (publish_via_partition_root = true)",
        "create schema aside",
        "create table aside.keyless (n int, t text)",
        "alter table aside.keyless replica identity full",
        "create table aside.bare ()",
    )
    pipeline.prepare("create table t (id int primary key, v text)")
    with pipeline.capturing():
        pipeline.execute(
            "insert into aside.keyless values (1, 'v'), (2, null)",
            "update aside.keyless set n = 3",
            "delete from aside.keyless",
            "insert into aside.bare default values",
            "insert into t values (1, 'v')",
        )
        pipeline.settle()
    assert pipeline.shorts("t") == ['c {"id":1}']


@pytest.mark.slow
def test_h187_a_filter_that_fails_has_the_way_back_of_the_manual(pipeline: Pipeline) -> None:
    """Postgres judges a change by the filter of its own time: one that is mended later does not help with it."""
    publication = pipeline.settings.publication
    pipeline.execute(
        "create table t (id int primary key, v int)",
        "alter table t replica identity full",
        f"create publication {publication} for table t where (100 / v > 0) with (publish_via_partition_root = true)",
    )
    pipeline.prepare()
    with pipeline.capturing() as capturing:
        figures, health = capturing.figures, Health(capturing.figures, SYSTEM_CLOCK)
        pipeline.execute("insert into t values (1, 5)")
        pipeline.settle()
        pipeline.execute("insert into t values (2, 0)", "insert into t values (3, 5)")
        begun_s = SYSTEM_CLOCK.monotonic()
        wait_until(lambda: figures.reconnects >= 3 and "it answers 22012" in health.ready()[1], 30)
        assert SYSTEM_CLOCK.monotonic() - begun_s > 1.5, "an opening is no progress: each try waits longer"
        pipeline.execute(f"alter publication {publication} set table t")
        before = figures.reconnects
        wait_until(lambda: figures.reconnects > before and "it answers 22012" in health.ready()[1], 60)
        assert pipeline.shorts("t") == ['c {"id":1}']
    pipeline.new_epoch()
    build_snapshot(pipeline.settings, NoReport(), workers=1).run()
    with pipeline.capturing():
        pipeline.execute("update t set v = 7 where id = 2")
        pipeline.settle()
    pipeline.assert_equal("t")


@pytest.mark.slow
def test_h348_a_filter_that_fails_quotes_no_value(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """Postgres's sentence has the value that it could not take for a name."""
    publication, secret = pipeline.settings.publication, "1kowalskasecret"
    pipeline.execute(
        "create table t (id int primary key, mail text)",
        "alter table t replica identity full",
        f"create publication {publication} for table t where (cardinality(parse_ident(mail)) > 0) "
        "with (publish_via_partition_root = true)",
    )
    pipeline.prepare()
    with pipeline.capturing() as capturing:
        figures, health = capturing.figures, Health(capturing.figures, SYSTEM_CLOCK)
        pipeline.execute(f"insert into t values (1, '{secret}')")
        wait_until(lambda: figures.reconnects >= 1 and "it answers 22023" in health.ready()[1], 30)
        assert secret not in health.ready()[1]
    assert not any(secret in str(vars(one)) for one in caplog.records)
