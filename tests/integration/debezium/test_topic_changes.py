"""A store that runs while partitions are added to a table's topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import client_config
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.test_resets import holds, spark_section
from tests.programs import RunCdc, Spawn


@pytest.mark.slow
def test_h212_partitions_that_are_added_are_read(
    pipeline: Pipeline, tmp_path: Path, run_cdc: RunCdc, redis_url: str, spawn: Spawn
) -> None:
    """Debezium's producer writes to all there are, so that most keys move to another one."""
    name = pipeline.document["name"]
    config = pipeline.toml(
        tmp_path,
        sinks__cache={"kind": "redis", "url": redis_url, "tables": ["public.*"]},
        spark=spark_section(tmp_path),
    )
    pipeline.run("insert into a select i, 's' || i % 7, i from generate_series(1, 20) i")
    deployed = run_cdc("--config", config, "connect", "deploy")
    assert deployed.returncode == 0, deployed.stderr
    sink = spawn("cdc", "--config", config, "sink")
    holds(sink, redis_url, name, "public.a", set(range(1, 21)))
    topic = f"{name}.public.a"
    settings = pipeline.settings().log
    client = AdminClient(client_config(settings))
    for done in client.create_partitions([NewPartitions(topic, 5)]).values():
        done.result()
    pipeline.connector().restart(failed_only=False)
    pipeline.run(
        "update a set v = 'more' where id <= 10",
        "delete from a where id > 15",
        "insert into a select i, 'new', i from generate_series(30, 40) i",
    )
    holds(sink, redis_url, name, "public.a", {*range(1, 16), *range(30, 41)})
    ends = TopicAdmin(settings).end_offsets({topic: 5})[topic]
    assert sum(ends[partition] > 0 for partition in (2, 3, 4)) > 1
    verified = run_cdc("--config", config, "verify", "--timeout", "60", "--json")
    assert verified.returncode == 0, verified.stderr
    assert sink.terminate() == 0, sink.stderr
