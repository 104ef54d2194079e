"""A store that runs while partitions are added to a table's topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from cdc.process.errors import Exit
from connectors.kafka.clients import client_config
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.test_resets import holds, spark_section
from tests.integration.debezium.test_stores import SINK_S
from tests.programs import RunCdc, Spawn


@pytest.mark.slow
@pytest.mark.long
def test_h212_partitions_that_are_added_end_the_store(
    pipeline: Pipeline, tmp_path: Path, run_cdc: RunCdc, redis_url: str, spawn: Spawn
) -> None:
    """Debezium's producer writes to all there are: keys that move would show older rows."""
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
    assert sink.process.wait(SINK_S) == Exit.TOPIC, sink.stderr[-3000:]
    assert f"the topic {topic} was raised from 2 to 5 partitions" in sink.stderr
    assert "cdc connect resnapshot" in sink.stderr
