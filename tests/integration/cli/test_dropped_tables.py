"""What ``cdc status`` and ``cdc check`` say of a captured table that was dropped, and of one that got a child."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from cdc.process.errors import Exit
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

GONE = "public.t is gone from the source: its topic and its rows in the stores stay"


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.t", "public.kept"]},
        "log": {"bootstrap_servers": kafka, "partitions": 1},
        "capture": {"http_address": ""},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql("create table t (id int primary key)", "create table kept (id int primary key)")
    return made


def status(pipeline: Pipeline) -> dict[str, object]:
    return dict(orjson.loads(pipeline.cdc("status", "--json").stdout))


def failures(pipeline: Pipeline) -> dict[str, str]:
    """What check fails of, and the fix."""
    findings = orjson.loads(pipeline.cdc("check", "--json").stdout)
    return {one["message"]: one["fix"] for one in findings if one["level"] == "fail"}


@pytest.mark.slow
def test_y10_a_dropped_table_is_said_until_it_is_left_out(pipeline: Pipeline, spawn: Spawn) -> None:
    pipeline.begin()
    run = spawn("cdc", "--config", pipeline.config, "run")
    wait_until(lambda: not status(pipeline)["passed"], 60, lambda: str(status(pipeline)["passed"]) + run.stderr)
    pipeline.sql("drop table t")
    done = pipeline.cdc("status")
    assert (done.returncode, GONE in done.stdout) == (Exit.DIFFERENCE, True), done.stdout
    found = status(pipeline)
    assert found["passed"] == [GONE]
    assert found["tables"] == {"following": 1, "others": {}}
    (fix,) = failures(pipeline).values()
    assert fix == 'take it out of [source] tables, or add it to exclude: "public.t"; then start cdc run again'
    assert_refused(pipeline.cdc("init"), Exit.CONFIG, "the table public.t does not exist")
    wait_until(lambda: GONE in run.stderr, 60, lambda: run.stderr)
    pipeline.sql("insert into kept values (1)")
    pipeline.document["source"]["tables"] = ["public.kept"]
    assert run.terminate() == Exit.OK, run.stderr
    again = spawn("cdc", "--config", pipeline.config, "run")
    wait_until(lambda: not status(pipeline)["passed"], 60, lambda: str(status(pipeline)["passed"]) + again.stderr)
    assert failures(pipeline) == {}


@pytest.mark.slow
def test_w3_a_child_of_a_running_table_is_said_by_both(pipeline: Pipeline, spawn: Spawn) -> None:
    pipeline.begin()
    run = spawn("cdc", "--config", pipeline.config, "run")
    wait_until(lambda: not status(pipeline)["passed"], 60, lambda: str(status(pipeline)["passed"]) + run.stderr)
    pipeline.sql("create table c (primary key (id)) inherits (t)")
    said = "public.t has rows in tables that inherit from it and are not captured: public.c"
    assert status(pipeline)["passed"] == [said]
    assert list(failures(pipeline)) == [said]
    assert_refused(pipeline.cdc("init"), Exit.CONFIG, said, "name them in [source] tables")
    pipeline.document["source"]["tables"] = ["public.t", "public.c", "public.kept"]
    pipeline.good("init")
    assert "public.t is captured without the rows of public.c" in pipeline.cdc("check").stdout
