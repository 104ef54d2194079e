"""What a stopped sink comes back to: topics cut below its place, and a checkpoint that was garbled."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ re-exports without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from cdc.process.errors import Exit, TopicError
from cdc.settings.model import Settings
from connectors.kafka.topic_problems import cut_problems
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.test_life import Opened, cached, rows
from tests.waiting import wait_until

__all__ = ["cached"]


def cut(pipeline: HandMadeLog) -> None:
    """Take every record away but the last of each partition, as retention does where somebody set it."""
    topic = pipeline.topic()
    client = AdminClient({"bootstrap.servers": pipeline.log.bootstrap_servers})

    def policy(value: str) -> None:
        entry = ConfigEntry("cleanup.policy", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for done in client.incremental_alter_configs([resource]).values():
            done.result(30)

    policy("compact,delete")
    ends = pipeline.admin.end_offsets({topic: pipeline.partitions})[topic]
    places = [TopicPartition(topic, number, end - 1) for number, end in ends.items() if end]

    def deleted() -> bool:
        # A broker that is busy takes a policy later than it says so, and refuses to delete until then.
        try:
            return all(done.result(30) is not None for done in client.delete_records(places).values())
        except KafkaException as refused:
            assert refused.args[0].code() == KafkaError.POLICY_VIOLATION
            return False

    wait_until(deleted, 20, "the records are deleted")
    policy("compact")


@pytest.mark.slow
def test_a_topic_cut_below_a_stopped_sink_is_refused(
    pipeline: HandMadeLog, sinks: Sinks, redis_url: str, opened: Opened
) -> None:
    cached = pipeline.settings({"cache": {"kind": "redis", "url": redis_url}})
    pipeline.put(rows(0, 20))
    sinks.catch_up(cached)
    pipeline.put([{"id": n} for n in range(10)])
    pipeline.put(rows(20, 60))
    counts = {pipeline.topic(): pipeline.partitions}
    assert cut_problems(pipeline.admin.first_offsets(counts), "a reading") == []
    cut(pipeline)
    with pytest.raises(TopicError, match="records are gone from the topics that have not been read yet") as refused:
        sinks.catch_up(cached)
    assert refused.value.exit == Exit.TOPIC
    before = opened(cached, "cache").watermarks.read()
    with pytest.raises(TopicError):
        sinks.catch_up(cached)
    assert opened(cached, "cache").watermarks.read() == before, "it claims nothing of what it has not read"
    [said] = cut_problems(pipeline.admin.first_offsets(counts), "a reading")
    assert said.topic == pipeline.topic(), "cdc check says which, as the hint has it (hazard H166)"


@pytest.mark.slow
def test_h84_a_garbled_checkpoint_changes_nothing(
    pipeline: HandMadeLog, sinks: Sinks, cached: Settings, opened: Opened, tmp_path: Path
) -> None:
    pipeline.put(rows(0, 20))
    sinks.catch_up(cached)
    garbled = [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert garbled
    for number, path in enumerate(garbled):
        path.write_bytes((b"", b"\0" * 64, b"v1\n{", path.read_bytes()[:5])[number % 4])
    pipeline.put(rows(10, 40, "paid"))
    sinks.catch_up(cached)
    pipeline.assert_shown(opened(cached, "cache"))
