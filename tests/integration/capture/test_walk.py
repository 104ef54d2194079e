"""The ways of a changed row and of a request through capture are those that ARCHITECTURE.md tells."""

from __future__ import annotations

import pytest

from cdc.cli.app import run
from tests.integration.capture.pipeline import Pipeline
from tests.walks import Walk, named

VALUE = "a value that is followed"


@pytest.mark.slow
def test_a_changed_row_passes_the_files_of_the_page(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)")
    walk = Walk(VALUE, {"<row>": "connectors/postgres/encoding/compiled.py"})
    with walk.watched(), pipeline.capturing():
        # Of its first row a table's functions are made.
        pipeline.execute("insert into t values (1, 'first')")
        pipeline.settle()
        pipeline.execute(f"update t set v = '{VALUE}'")
        pipeline.settle()
    assert walk.files == named("Through capture")
    assert len(walk.files) <= 10


@pytest.mark.slow
def test_a_request_passes_the_files_of_the_page(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)")
    walk = Walk(VALUE, {})
    command = ["--config", str(pipeline.config()), "snapshot", "public.t", "--where", f"v <> '{VALUE}'"]
    with walk.watched(), pipeline.capturing():
        with walk.watched_here():
            assert run(command) == 0
        pipeline.settle()
    assert walk.files == named("Through a request")
    assert len(walk.files) == 12
