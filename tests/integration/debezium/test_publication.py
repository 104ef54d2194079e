"""Tables come to and leave a Debezium connector that runs: its publication is ours, and its capture goes on."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import sql

from cdc.checks.findings import Level
from cdc.process.errors import ConfigError
from connectors.debezium.checks import check_connect
from connectors.debezium.connector import Connector
from connectors.debezium.offsets import Streaming
from tests.integration.debezium.conftest import Pipeline


def connector_of(pipeline: Pipeline, tables: list[str], **debezium: Any) -> Connector:
    pipeline.document["source"]["tables"] = tables
    return pipeline.connector(**debezium)


FLAT = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.add.fields": "op,lsn,source.ts_ms",
    "transforms.unwrap.delete.tombstone.handling.mode": "tombstone",
}
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "readable": ({}, {}),
    "bare": ({}, {"schemas": False}),
    "flat": ({}, {"options": FLAT}),
}
"""What is generated otherwise for Postgres, as sections [log] and [debezium]."""


def rows(pipeline: Pipeline, table: str, count: int) -> dict[Any, Any]:
    """key -> newest row, once the topic holds so many records."""
    # The connector looks for signals now and then: half a minute may pass before it reads a table.
    return {bare(key)["id"]: row_of(value) for key, value in pipeline.arrived(table, count, 90)}


def bare(value: Any) -> Any:
    """Without the schema that it may carry."""
    return value["payload"] if isinstance(value, dict) and "payload" in value else value


def row_of(value: Any) -> Any:
    row = bare(value)
    if row is None:
        return None
    return row["after"] if "after" in row else {name: one for name, one in row.items() if not name.startswith("__")}


@pytest.mark.parametrize(
    "form", [name if name == "readable" else pytest.param(name, marks=pytest.mark.long) for name in FORMS]
)
@pytest.mark.slow
def test_a_table_comes_and_goes_while_capture_runs(pipeline: Pipeline, form: str) -> None:
    log, debezium = FORMS[form]
    pipeline.document["log"] |= log
    options = pipeline.document["debezium"]["options"] | debezium.get("options", {})
    pipeline.document["debezium"] |= debezium | {"options": options}
    pipeline.run("insert into a values (1, 'before')")
    assert connector_of(pipeline, ["public.a"]).deploy().added == ()
    pipeline.arrived("public.a", 1)

    pipeline.run(
        "create table c (id int primary key, v text, days date[])",
        "alter table c replica identity default",
        "insert into c values (1, 'old'), (2, 'old')",
    )
    with pytest.raises(ConfigError, match=r"public\.c: an update lacks a large value that did not change, in v, days"):
        connector_of(pipeline, ["public.a", "public.c"]).deploy()
    assert [one.level for one in check_connect(pipeline.settings()) if one.check == "identity"] == [Level.FAIL]
    pipeline.run("alter table c replica identity full")
    assert not [one for one in check_connect(pipeline.settings()) if one.check == "identity"]
    done = connector_of(pipeline, ["public.a", "public.c"]).deploy()
    assert (done.action, done.added) == ("updated", ("public.c",))
    assert done.snapshot
    assert rows(pipeline, "public.c", 2).keys() == {1, 2}
    pipeline.run("insert into c values (3, 'new')", "insert into a values (2, 'meanwhile')")
    assert rows(pipeline, "public.c", 3)[3] == {"id": 3, "v": "new", "days": None}
    assert rows(pipeline, "public.a", 2)[2]["v"] == "meanwhile"

    left = connector_of(pipeline, ["public.a"])
    assert left.deploy().action == "updated"
    pipeline.run("insert into c values (4, 'not captured')", "insert into a values (3, 'after')")
    assert rows(pipeline, "public.a", 3)[3]["v"] == "after"
    assert rows(pipeline, "public.c", 3).keys() == {1, 2, 3}

    streaming = left.streaming()
    assert streaming is not None
    assert streaming.good

    # A stopped connector goes on with its deployment.
    left.stop()
    assert left.deploy().status.runs
    pipeline.run("insert into a values (4, 'again')")
    assert rows(pipeline, "public.a", 4)[4]["v"] == "again"


@pytest.mark.slow
def test_a_partitioned_table_and_a_pattern_are_published(pipeline: Pipeline) -> None:
    pipeline.run(
        "create table p (id int primary key, v text) partition by range (id)",
        "create table p_low partition of p for values from (0) to (10)",
        "create table p_high partition of p for values from (10) to (20)",
    )
    connector_of(pipeline, ["public.p", "public.a*"]).deploy()
    pipeline.run("insert into a values (1, 'x')")
    pipeline.arrived("public.a", 1)
    pipeline.run("insert into p values (1, 'low'), (11, 'high')")
    assert rows(pipeline, "public.p", 2).keys() == {1, 11}

    # A table that a pattern meets later has no option of its own: only the publication lacks it.
    pipeline.run("create table a2 (id int primary key, v text)", "insert into a2 values (7, 'old')")
    done = connector_of(pipeline, ["public.p", "public.a*"]).deploy()
    assert (done.action, done.added) == ("unchanged", ("public.a2",))
    assert done.snapshot


def test_a_keyless_table_in_a_pattern_is_refused(pipeline: Pipeline) -> None:
    pipeline.run("create table anything (v text)")
    with pytest.raises(ConfigError, match=r"public\.anything has no key"):
        connector_of(pipeline, ["public.a*"]).deploy()
    found = pipeline.session.execute(
        "select count(*) from pg_publication where pubname = %s", [pipeline.settings().publication]
    )
    assert found.fetchone() == (0,)


@pytest.mark.slow
def test_an_older_publication_without_truncate_is_kept(pipeline: Pipeline) -> None:
    """Debezium made it so until now."""
    name = sql.Identifier(pipeline.settings().publication)
    pipeline.session.execute(
        sql.SQL("create publication {} for table a, b with (publish = 'insert, update, delete')").format(name)
    )
    assert connector_of(pipeline, ["public.a", "public.b"]).deploy().status.runs
    pipeline.run("insert into b values (1, 'x')")
    pipeline.arrived("public.b", 1)


@pytest.mark.long
def test_h116_running_alone_is_not_reading(pipeline: Pipeline) -> None:
    """By Debezium's own way the first added table stops all capture, and every state says RUNNING."""
    options = pipeline.document["debezium"]["options"] | {
        "publication.autocreate.mode": "filtered",
        "retriable.restart.connector.wait.ms": "10000",
    }
    connector_of(pipeline, ["public.a"], options=options).deploy()
    pipeline.run("insert into a values (1, 'x')", "create table c (id int primary key, v text)")
    pipeline.arrived("public.a", 1)
    broken = connector_of(pipeline, ["public.a", "public.c"], options=options)
    assert broken.deploy().status.runs
    assert broken.streaming() is Streaming.RESTARTS
    assert broken.status().runs

    repaired = connector_of(pipeline, ["public.a", "public.c"])
    assert repaired.deploy().added == ("public.c",)
    pipeline.run("insert into c values (1, 'x')")
    pipeline.arrived("public.c", 1, 40)
