"""``[source.topics]`` on the real Connect: each table in its topic, and no topic that lacks the rows of its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from cdc.process.errors import ConfigError, Exit
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from tests.integration.debezium.conftest import Pipeline
from tests.programs import RunCdc
from tests.waiting import wait_until


def rows(pipeline: Pipeline, topic: str) -> set[tuple[str, int]]:
    """(table, id) of the newest record of each key in a topic, by the records' own word."""
    settings = pipeline.settings()
    facts = TopicAdmin(settings.log).describe([topic])
    found: dict[tuple[str, int], bool] = {}
    for partition in range(facts[topic].partitions if facts else 0):
        for message in read_range(settings.log, topic, partition):
            value = orjson.loads(message.value() or b"null")
            if value is not None:
                payload = value["payload"]
                key = orjson.loads(message.key() or b"null")["id"]
                found[(payload["source"]["table"], key)] = payload["op"] != "d"
    return {place for place, lives in found.items() if lives}


def hold(pipeline: Pipeline, wanted: dict[str, set[tuple[str, int]]]) -> None:
    """Wait until the topics hold these rows, and no others."""

    def equal() -> bool:
        assert {topic: rows(pipeline, topic) for topic in wanted} == wanted
        return True

    wait_until(equal, 60, "the topics hold their tables' rows")


@pytest.mark.slow
def test_h197_a_changed_topic_is_refused_until_it_is_put_back(
    pipeline: Pipeline, run_cdc: RunCdc, tmp_path: Path
) -> None:
    name = pipeline.document["name"]

    def settings(topic: str) -> Path:
        pipeline.document["source"] |= {"tables": ["public.a"], "topics": {"public.a": f"{name}-{topic}"}}
        return pipeline.toml(tmp_path)

    pipeline.run("insert into a select i, 'v' from generate_series(1, 3) i")
    first = settings("x")
    assert run_cdc("--config", first, "connect", "deploy").returncode == 0
    hold(pipeline, {f"{name}-x": {("a", 1), ("a", 2), ("a", 3)}})
    changed = settings("y")
    said = f"public.a has the topic {name}-x, and the settings name {name}-y"
    for command in (["check"], ["connect", "deploy"]):
        done = run_cdc("--config", changed, *command)
        assert done.returncode == Exit.CONFIG, done.stdout + done.stderr
        assert said in done.stdout + done.stderr
        assert f'put it back: [source.topics] "public.a" = "{name}-x"' in done.stderr
    assert f"{name}-y" not in TopicAdmin(pipeline.settings().log).names()
    found = run_cdc("--config", changed, "diff")
    assert found.returncode == Exit.DIFFERENCE
    assert f"topics: {said}" in found.stdout
    assert "is not made yet" not in found.stdout

    back = run_cdc("--config", settings("x"), "connect", "deploy")
    assert back.returncode == 0, back.stderr
    assert "unchanged" in back.stderr


@pytest.mark.slow
def test_a_deploy_resumes_a_stopped_connector_it_changes(pipeline: Pipeline) -> None:
    pipeline.connector().deploy()
    pipeline.connector().stop()
    options = pipeline.document["debezium"]["options"] | {"poll.interval.ms": "30"}
    done = pipeline.connector(options=options).deploy()
    assert (done.action, done.status.runs) == ("updated", True)


@pytest.mark.slow
def test_h197_a_published_table_that_joins_is_read(pipeline: Pipeline, database: str) -> None:
    """One of a publication for all tables, and one that left the settings, was passed over, and comes back."""
    pipeline.run("insert into a values (1)", "insert into b values (1), (2)")
    source: dict[str, Any] = pipeline.document["source"]
    source["tables"] = ["public.a"]
    with psycopg.connect(database, autocommit=True) as session:
        publication = pipeline.settings().publication
        session.execute(f"create publication {publication} for all tables with (publish_via_partition_root)".encode())
    pipeline.connector().deploy()
    name = pipeline.document["name"]

    def joins(table: str, wanted: set[tuple[str, int]]) -> None:
        source["tables"] = [f"public.{table}"]
        done = pipeline.connector().deploy()
        assert done.added == (f"public.{table}",), done
        assert done.snapshot, done

        def read() -> bool:
            # An incremental snapshot goes on with the log.
            pipeline.run(f"update {table} set v = 'w' where id = 1")
            assert rows(pipeline, f"{name}.public.{table}") == wanted
            return True

        wait_until(read, 60, f"{table} was read")

    joins("b", {("b", 1), ("b", 2)})
    pipeline.run("insert into a values (2)")
    joins("a", {("a", 1), ("a", 2)})


@pytest.mark.slow
def test_h196_one_topic_of_two_tables_is_refused(pipeline: Pipeline, run_cdc: RunCdc, tmp_path: Path) -> None:
    pipeline.document["source"]["topics"] = {"public.a": "own.x", "public.b": "own.x"}
    settings = pipeline.toml(tmp_path)
    for command in (["config", "lint"], ["check"], ["connect", "deploy"]):
        done = run_cdc("--config", settings, *command)
        assert done.returncode == Exit.CONFIG, (command, done.stdout, done.stderr)
        assert "the tables public.a and public.b would share the topic own.x" in done.stdout + done.stderr
    with pytest.raises(ConfigError, match="would share the topic"):
        pipeline.connector().deploy()
