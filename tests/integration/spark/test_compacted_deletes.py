"""Debezium's topics that the broker has compacted while the sinks were away: of a deleted row the tombstone is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.settings.model import Settings
from connectors.kafka.compacted_topic import read_range
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.embedded import EmbeddedLog
from tests.integration.spark.test_frames_as_of import set_config
from tests.waiting import wait_until

Opened = Callable[[Settings, str], OpenSink]
ROWS, KEPT = 60, 4


def deletes_left(topics: EmbeddedLog) -> int:
    """How many records of deletes the topic still has."""
    partitions = range(topics.partitions)
    found = (message.value() for p in partitions for message in read_range(topics.log, topics.topic(), p))
    return sum(b'"op":"d"' in (value or b"") for value in found)


@pytest.mark.slow
def test_h570_rows_deleted_while_the_sinks_were_away(
    kafka: str, topic_prefix: str, redis_url: str, warehouse: Path, sinks: Sinks, opened: Opened
) -> None:
    """The newest rows of each partition: the few that are left of it lie below them all."""
    topics = EmbeddedLog(topic_prefix, kafka)
    topics.init()
    topics.put({"id": n, "status": "new", "total": "1.50"} for n in range(ROWS))
    topics.progress()
    stores = {"cache": {"kind": "redis", "url": redis_url}, "warehouse": {"kind": "delta", "path": str(warehouse)}}
    # A batch ends anywhere: behind a tombstone there may be no other record to say how high it stood.
    settings = topics.settings(stores, driver_batch_rows=0, max_offsets_per_trigger=14)
    sinks.catch_up(settings)
    topics.put({"id": n} for n in range(KEPT, ROWS))
    set_config(topics, segment_ms="100", min_cleanable_dirty_ratio="0.001", min_compaction_lag_ms="0")

    def compacted() -> bool:
        # Each makes a newer segment: the last one is never compacted.
        topics.put([{"id": 1000 + n, "status": "young", "total": "1.00"} for n in range(8)])
        return deletes_left(topics) == 0

    wait_until(compacted, 120)
    set_config(topics, segment_ms="600000", min_compaction_lag_ms="600000")
    topics.progress()
    sinks.catch_up(settings)
    for name in stores:
        topics.assert_shown(opened(settings, name))
