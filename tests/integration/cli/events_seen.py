"""What the log holds of a pipeline's requests, looked at in this process: each look by a command starts one."""

from __future__ import annotations

import orjson

from cdc.settings.model import load
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from tests.integration.cli.pipeline import Pipeline


def is_seen(pipeline: Pipeline, member: str, value: str) -> bool:
    """Whether capture has written a request with this value."""
    topic, log = f"{pipeline.document['name']}.outbox.Request", load(pipeline.config, {}).log
    facts = TopicAdmin(log).describe([topic])
    partitions = range(facts[topic].partitions if facts else 0)
    return any(
        orjson.loads(message.value() or b"{}").get(member) == value
        for partition in partitions
        for message in read_range(log, topic, partition)
    )
