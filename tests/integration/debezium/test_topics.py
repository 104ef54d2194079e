"""``[source.topics]`` on the real Connect: each table in its topic, and no topic that lacks the rows of its table."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from cdc.errors import ConfigError, Exit
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import read_range
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


def test_h196_one_topic_of_two_tables_is_refused(pipeline: Pipeline, run_cdc: RunCdc, tmp_path: Path) -> None:
    pipeline.document["source"]["topics"] = {"public.a": "own.x", "public.b": "own.x"}
    settings = pipeline.toml(tmp_path)
    for command in (["config", "lint"], ["check"], ["connect", "deploy"]):
        done = run_cdc("--config", settings, *command)
        assert done.returncode == Exit.CONFIG, (command, done.stdout, done.stderr)
        assert "the tables public.a and public.b would share the topic own.x" in done.stdout + done.stderr
    with pytest.raises(ConfigError, match="would share the topic"):
        pipeline.connector().deploy()


def test_a_deploy_resumes_a_stopped_connector_it_changes(pipeline: Pipeline) -> None:
    pipeline.connector().deploy()
    pipeline.connector().stop()
    options = pipeline.document["debezium"]["options"] | {"poll.interval.ms": "30"}
    done = pipeline.connector(options=options).deploy()
    assert (done.action, done.status.runs) == ("updated", True)
