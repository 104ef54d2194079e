"""``[source.topics]`` on the real Connect: each table in its topic, and no topic that lacks the rows of its table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from cdc.errors import ConfigError, Exit
from connectors.connect.connector_epochs import read_epochs
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import read_range
from tests.integration.debezium.asked_again import read_or_told
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.test_resets import holds, spark_section
from tests.programs import RunCdc, Spawn
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


def test_h196_chained_and_swapped_topics_stay_apart(pipeline: Pipeline) -> None:
    """In a chain a router would meet the topic that the one before it made, and in a swap each the other's."""
    name = pipeline.document["name"]
    pipeline.run("create table c (id int primary key)", "create table d (id int primary key)")
    pipeline.run("insert into a values (1)", "insert into b values (1), (2)", "insert into c values (1)")
    pipeline.run("insert into d values (1), (5)")
    pipeline.document["source"] |= {
        "tables": ["public.a", "public.b", "public.c", "public.d"],
        "topics": {
            "public.a": f"{name}.public.b",
            "public.b": f"{name}.other",
            "public.c": f"{name}.public.d",
            "public.d": f"{name}.public.c",
        },
    }
    pipeline.connector().deploy()
    pipeline.run("insert into a values (7)", "delete from b where id = 2", "insert into c values (8)")
    hold(
        pipeline,
        {
            f"{name}.public.b": {("a", 1), ("a", 7)},
            f"{name}.other": {("b", 1)},
            f"{name}.public.d": {("c", 1), ("c", 8)},
            f"{name}.public.c": {("d", 1), ("d", 5)},
        },
    )
    names = TopicAdmin(pipeline.settings().log).names()
    assert f"{name}.public.a" not in names


@pytest.fixture
def moving(pipeline: Pipeline, run_cdc: RunCdc, tmp_path: Path) -> Callable[[str], Path]:
    """A pipeline of one table with three rows in the topic ``NAME.x``, deployed. Gives the settings for another."""
    name = pipeline.document["name"]

    def settings(topic: str) -> Path:
        pipeline.document["source"] |= {"tables": ["public.a"], "topics": {"public.a": f"{name}.{topic}"}}
        return pipeline.toml(tmp_path)

    pipeline.run("insert into a select i, 'v' from generate_series(1, 3) i")
    first = settings("x")
    assert run_cdc("--config", first, "connect", "deploy").returncode == 0
    hold(pipeline, {f"{name}.x": {("a", 1), ("a", 2), ("a", 3)}})
    return settings


def test_h197_a_changed_topic_is_refused_until_it_is_filled(
    pipeline: Pipeline, moving: Callable[[str], Path], run_cdc: RunCdc
) -> None:
    name = pipeline.document["name"]
    changed = moving("y")
    said = f"the rows of public.a are in the topic {name}.x, and the settings name {name}.y"
    for command in (["check"], ["connect", "deploy"]):
        done = run_cdc("--config", changed, *command)
        assert done.returncode == Exit.CONFIG, done.stdout + done.stderr
        assert said in done.stdout + done.stderr
        assert f'put it back: [source.topics] "public.a" = "{name}.x"' in done.stderr
        assert "cdc connect offsets --reset, then cdc connect deploy" in done.stderr
    assert f"{name}.y" not in TopicAdmin(pipeline.settings().log).names()
    found = run_cdc("--config", changed, "diff")
    assert found.returncode == Exit.DIFFERENCE
    assert f"topics: {said}" in found.stdout
    assert "is not made yet" not in found.stdout

    back = run_cdc("--config", moving("x"), "connect", "deploy")
    assert back.returncode == 0, back.stderr
    assert "unchanged" in back.stderr

    changed = moving("y")
    pipeline.run("delete from a where id = 2")
    assert run_cdc("--config", changed, "connect", "offsets", "--reset", "--yes").returncode == 0
    assert said not in run_cdc("--config", changed, "check").stdout
    done = run_cdc("--config", changed, "connect", "deploy")
    assert done.returncode == 0, done.stderr
    pipeline.run("insert into a values (9)")
    hold(pipeline, {f"{name}.y": {("a", 1), ("a", 3), ("a", 9)}})
    assert read_epochs(pipeline.settings()).latest == 2

    again = run_cdc("--config", moving("x"), "connect", "deploy")
    assert again.returncode == Exit.CONFIG
    assert f"public.a would use the topic {name}.x, which holds records from before" in again.stderr


def test_h197_offsets_outlive_a_connector_removed_by_hand(
    pipeline: Pipeline, moving: Callable[[str], Path], run_cdc: RunCdc
) -> None:
    """The one that is made in its place would go on behind the rows, though nobody can ask for its offsets before."""
    connector = pipeline.connector()
    connector.stop()
    wait_until(lambda: bool(connector.offsets()), 30, "offsets are stored")
    connector.client.delete(connector.name)
    name, changed = pipeline.document["name"], moving("y")
    done = run_cdc("--config", changed, "connect", "deploy")
    assert done.returncode == Exit.CONFIG, done.stderr
    assert "cdc connect offsets --reset" in done.stderr
    assert run_cdc("--config", changed, "connect", "offsets", "--reset", "--yes").returncode == 0
    assert run_cdc("--config", changed, "connect", "deploy").returncode == 0
    hold(pipeline, {f"{name}.y": {("a", 1), ("a", 2), ("a", 3)}})


def test_h211_the_name_put_back_behind_a_refusal_is_taken(
    pipeline: Pipeline, moving: Callable[[str], Path], run_cdc: RunCdc
) -> None:
    """The refused deploy had to make the connector to ask for its offsets. Its routers have never moved a row."""
    connector = pipeline.connector()
    connector.stop()
    wait_until(lambda: bool(connector.offsets()), 30, "offsets are stored")
    connector.client.delete(connector.name)
    name = pipeline.document["name"]
    assert run_cdc("--config", moving("y"), "connect", "deploy").returncode == Exit.CONFIG
    back = run_cdc("--config", moving("x"), "connect", "deploy")
    assert back.returncode == 0, back.stderr
    pipeline.run("insert into a values (4)")
    hold(pipeline, {f"{name}.x": {("a", 1), ("a", 2), ("a", 3), ("a", 4)}})
    assert read_epochs(pipeline.settings()).latest == 1


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
        assert done.signal, done

        def read() -> bool:
            # An incremental snapshot goes on with the log.
            pipeline.run(f"update {table} set v = 'w' where id = 1")
            assert rows(pipeline, f"{name}.public.{table}") == wanted
            return True

        read_or_told(pipeline, table, read)

    joins("b", {("b", 1), ("b", 2)})
    pipeline.run("insert into a values (2)")
    joins("a", {("a", 1), ("a", 2)})


def test_h196_one_topic_of_two_tables_is_refused(pipeline: Pipeline, run_cdc: RunCdc, tmp_path: Path) -> None:
    pipeline.document["source"]["topics"] = {"public.a": "own.x", "public.b": "own.x"}
    settings = pipeline.toml(tmp_path)
    for command in (["config", "lint"], ["check"], ["connect", "deploy"]):
        done = run_cdc("--config", settings, *command)
        assert done.returncode == Exit.CONFIG, (command, done.stdout, done.stderr)
        assert "the tables public.a and public.b would share the topic own.x" in done.stdout + done.stderr
    with pytest.raises(ConfigError, match="would share the topic"):
        pipeline.connector().deploy()


@pytest.mark.slow
def test_h197_stores_follow_a_table_to_its_new_topic(
    pipeline: Pipeline, moving: Callable[[str], Path], redis_url: str, run_cdc: RunCdc, spawn: Spawn, tmp_path: Path
) -> None:
    """The one that had its rows loses what was deleted meanwhile, and one that is built from the log has them all."""
    cache = {"sinks__cache": {"kind": "redis", "url": redis_url}, "spark": spark_section(tmp_path)}
    moving("x")
    first = pipeline.toml(tmp_path, **cache)
    name = pipeline.document["name"]
    sink = spawn("cdc", "--config", first, "sink")
    holds(sink, redis_url, name, "public.a", {1, 2, 3})
    assert sink.terminate() == 0

    pipeline.run("delete from a where id = 2")
    moving("y")
    other = {"kind": "redis", "url": redis_url, "prefix": f"{name}new"}
    changed = pipeline.toml(tmp_path, **cache, sinks__other=other)
    assert run_cdc("--config", changed, "connect", "offsets", "--reset", "--yes").returncode == 0
    assert run_cdc("--config", changed, "connect", "deploy").returncode == 0
    pipeline.run("insert into a values (9)")
    sink = spawn("cdc", "--config", changed, "sink")
    holds(sink, redis_url, name, "public.a", {1, 3, 9})
    holds(sink, redis_url, f"{name}new", "public.a", {1, 3, 9})
    assert sink.terminate() == 0
    assert "keeps rows of" not in run_cdc("--config", changed, "diff").stdout
