"""What tests of masks share: the settings of masks, the masked values, and all that a pipeline wrote."""

from __future__ import annotations

import os
import re
from typing import Any

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName, schema_topic, state_topic
from cdc.settings.mask_rules import MaskKey
from connectors.kafka.compacted_topic import KafkaCompactedTopic, read_range
from connectors.kafka.schema_registry import SchemaRegistry
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until

KEY = "a key of masks that is long enough for the tests"
SENTINEL = "plainsentinel"
PLAIN = "openvalue"
TABLE = "create table t (id int primary key, mail text, note text)"
ROW = f"insert into t values (1, '{SENTINEL}', '{PLAIN}')"
# The server from which a snapshot's workers are forked keeps the environment of its start: in a run of all tests it has
# started before the first test here.
os.environ.setdefault("CDC_MASK_KEY", KEY)


def masked(pipeline: Pipeline, table: str, **rules: str) -> None:
    pipeline.document["source"]["mask_key"] = "env:CDC_MASK_KEY"
    pipeline.document.setdefault("tables", {})[f"public.{table}"] = {"columns": rules}


def aside(capturing: Any, words: str) -> None:
    """A table is set aside with these words."""
    asides = capturing.figures.asides
    wait_until(lambda: any(re.search(words, found.detail) for found in asides().values()), 30, asides)


def mac(text: str) -> str:
    return MaskKey(KEY).masked(text.encode()).decode()


def shape(pipeline: Pipeline, table: str) -> TableSchema:
    registry = SchemaRegistry(KafkaCompactedTopic(pipeline.settings.log, schema_topic(pipeline.name)))
    found = registry.latest(TableName("public", table))
    assert found is not None
    return found


def topics_text(pipeline: Pipeline) -> bytes:
    """Every record of every topic of the pipeline."""
    known = pipeline.topics()
    counts = {topic: made["partitions"] for topic, made in known.topics.items()}
    counts |= {state_topic(pipeline.name): 1, schema_topic(pipeline.name): 1}
    parts: list[bytes] = []
    for topic, count in counts.items():
        for partition in range(count):
            for message in read_range(pipeline.settings.log, topic, partition):
                key, value = message.key(), message.value()
                parts += [part for part in (key, value) if isinstance(part, bytes)]
                parts.append(repr(message.headers()).encode())
    return b"\n".join(parts)
