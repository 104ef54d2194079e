"""What the source's owner does to tables and publication while capture runs, and keys that PostgreSQL 18 brought."""

from __future__ import annotations

import pytest

from cdc.process.errors import CdcError
from cdc.record.tables_aside import Cause
from cdc.wiring.pipeline import prepare_pipeline
from tests.integration.capture.later import ask, over, same
from tests.integration.capture.pipeline import Pipeline
from tests.integration.capture.test_aside import aside, follows, is_aside
from tests.waiting import wait_until

PAIRS = "create table t (a int, b int, v text not null, primary key (a, b))"
FREE = "create table free (id int primary key)"


@pytest.mark.slow
def test_w2_a_list_that_loses_the_key_sets_the_table_aside(pipeline: Pipeline) -> None:
    pipeline.prepare_with_rows(PAIRS, FREE, "insert into t values (1, 1, 'x')")
    publication = pipeline.settings.publication
    with pipeline.capturing():
        pipeline.transaction(
            f'alter publication "{publication}" drop table only t',
            f'alter publication "{publication}" add table t (a, v)',
        )
        pipeline.execute("insert into t values (1, 2, 'y'), (1, 3, 'z')", "insert into free values (1)")
        is_aside(pipeline, Cause.CHANGED)
        state = aside(pipeline)
        assert state is not None
        assert f"the publication {publication} leaves out b, a part of the key of public.t" in state.detail
        pipeline.settle()
        assert pipeline.count("free") == 1
        assert pipeline.count("t") == 1, "no row came under half a key"
        with pytest.raises(CdcError, match="leaves out b, a part of the key"):
            prepare_pipeline(pipeline.settings)
        pipeline.transaction(
            f'alter publication "{publication}" drop table only t',
            f'alter publication "{publication}" add table only t',
        )
        follows(pipeline)
    assert len(pipeline.compacted("t")) == 3


@pytest.mark.slow
def test_w3_a_child_that_comes_later_is_said_its_parent_flows(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.document["source"] |= {"tables": ["public.p", "public.late"]}
    pipeline.prepare_with_rows(
        "create table p (id int primary key)",
        "create table c (id int primary key)",
        "create table late (id int primary key)",
    )
    with pipeline.capturing() as capturing:
        pipeline.execute("alter table late inherit p", "alter table c inherit p", "insert into p values (1)")
        said = "public.p has rows in tables that inherit from it and are not captured: public.c"
        wait_until(lambda: _said(caplog, said), 60, lambda: caplog.text)
        pipeline.settle()
        assert pipeline.count("p") == 1
        assert aside(pipeline, "public.p") is None
        assert not capturing.figures.not_followed


@pytest.mark.slow
def test_y10_a_dropped_table_is_logged_and_not_set_aside(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    pipeline.prepare_with_rows("create table t (id int primary key)", FREE, "insert into t values (1)")
    with pipeline.capturing():
        pipeline.execute("drop table t")
        wait_until(lambda: _said(caplog, "public.t is gone from the source"), 60, lambda: caplog.text)
        pipeline.execute("insert into free values (1)")
        pipeline.settle()
        assert pipeline.count("free") == 1
        assert aside(pipeline) is None
        pipeline.execute("create table t (id int primary key)")


@pytest.mark.slow
def test_y16_a_renamed_and_a_dropped_column_are_named(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    pipeline.prepare("create table t (id int primary key, a int, b int)")
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 1, 1)")
        pipeline.execute("alter table t rename a to c", "alter table t drop column b", "insert into t values (2, 2)")
        pipeline.settle()
    left = [record.__dict__ for record in caplog.records if record.getMessage() == "column_left"]
    assert {one["table"] for one in left} == {"public.t"}
    assert [(one["column"], one["now"]) for one in left] == [("a", "c"), ("b", "")]


def _said(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return any(words in str(record.__dict__.get("why", "")) for record in caplog.records)


@pytest.mark.slow
def test_w9_a_key_without_overlaps_is_captured_and_read_again(pipeline: Pipeline) -> None:
    if int(pipeline.one("select current_setting('server_version_num')::int")) < 180000:
        pytest.skip("WITHOUT OVERLAPS is new in PostgreSQL 18")
    pipeline.prepare_with_rows(
        "create table t (room int4range, during tsrange, v text not null, doc text,"
        " primary key (room, during without overlaps))",
        "alter table t alter column doc set storage external",
        "insert into t select int4range(n, n + 5), '[2025-01-01,2025-02-01)', 'x', repeat('d' || n, 3000)"
        " from generate_series(1, 6) n",
    )
    with pipeline.capturing():
        # What an update leaves out is looked up by the key, which overlaps those of its neighbours.
        pipeline.execute("update t set v = 'y' where lower(room) < 4", "delete from t where lower(room) = 6")
        pipeline.execute("update t set during = '[2025-01-01,2025-03-01)' where lower(room) = 2")
        pipeline.settle()
        same(pipeline)
        assert over(pipeline, ask(pipeline)).state == "done"
        pipeline.settle()
    same(pipeline)
