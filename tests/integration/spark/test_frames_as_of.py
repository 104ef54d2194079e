"""A table as of an LSN, out of a topic that a real broker has compacted."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc.record.position import Lsn
from connectors.kafka.compacted_topic import read_range
from pyspark_headrace import current_rows
from tests.integration.spark.handmade import HandMadeLog
from tests.waiting import wait_until

_HOUR_MS = 3_600_000
KEYS = 20


def shown(session: SparkSession, pipeline: HandMadeLog, lsn: int) -> dict[int, str]:
    """The table as of an LSN: id -> status."""
    reader = session.read.format("headrace").option("bootstrap_servers", pipeline.bootstrap_servers)
    reader = reader.option("pipeline", pipeline.name).option("table", "public.orders").option("as_of", str(Lsn(lsn)))
    return {row.id: row.status for row in current_rows(reader.load()).collect()}


def set_config(pipeline: HandMadeLog, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, pipeline.topic(), incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(10)


def write(pipeline: HandMadeLog, status: str, ago_ms: int, keys: range = range(KEYS)) -> int:
    """Rows, as old as told. The LSN behind them."""
    pipeline.time_ms = time.time_ns() // 1_000_000 - ago_ms
    pipeline.put({"id": number, "status": status, "total": "1"} for number in keys)
    pipeline.time_ms = 0
    return pipeline.progress()


def values_of(pipeline: HandMadeLog) -> list[bytes]:
    return [
        message.value() or b""
        for partition in range(pipeline.partitions)
        for message in read_range(pipeline.log, pipeline.topic(), partition)
    ]


@pytest.mark.slow
def test_h169_a_compacted_table_is_read_or_refused(spark_session: SparkSession, pipeline: HandMadeLog) -> None:
    set_config(pipeline, segment_ms="100", min_cleanable_dirty_ratio="0.001", min_compaction_lag_ms="600000")
    first = write(pipeline, "first", 2 * _HOUR_MS)
    second = write(pipeline, "second", _HOUR_MS)

    def gone() -> bool:
        # Each makes a newer segment: the last one is never compacted.
        write(pipeline, "young", 0, range(1000, 1010))
        return not any(b'"first"' in value for value in values_of(pipeline))

    wait_until(gone, 120)
    third = write(pipeline, "third", 0, range(5))
    with pytest.raises(PySparkException) as failed:
        shown(spark_session, pipeline, first)
    words = str(failed.value)
    assert f"public.orders cannot be read as of {Lsn(first)}: the log is compacted" in words
    oldest = Lsn.parse(words.partition("the oldest LSN that is possible now is ")[2].partition(";")[0])
    assert first < oldest <= second
    assert shown(spark_session, pipeline, oldest) == dict.fromkeys(range(KEYS), "second")
    now = shown(spark_session, pipeline, third)
    assert {now[number] for number in range(5)} == {"third"}
    assert {now[number] for number in range(5, KEYS)} == {"second"}
    with pytest.raises(PySparkException, match="the log holds the source up to"):
        shown(spark_session, pipeline, third + 8)
