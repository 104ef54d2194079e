"""What Spark's source keeps of the records that it has read, in the driver's heap."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.process.errors import Exit
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.test_carried_rows import Opened
from tests.programs import Spawn

PARTITIONS, KEYS = 60, 600
ROWS = 30_000
"""As many to each partition as a poll of Kafka's client brings, 500."""


@pytest.mark.slow
@pytest.mark.long
def test_h391_records_that_were_read_do_not_stay_in_the_heap(
    kafka: str, topic_prefix: str, redis_url: str, spawn: Spawn, opened: Opened, tmp_path: Path
) -> None:
    """Spark kept the last poll of each partition for five minutes: of sixty partitions more than the heap holds."""
    log = HandMadeLog(topic_prefix, kafka, partitions=PARTITIONS)
    log.init()
    rows = ({"id": number % KEYS, "status": f"{number} " + "x" * 30_000, "total": "1.00"} for number in range(ROWS))
    log.put(rows)
    lsn = log.progress()
    sinks = {"cache": {"kind": "redis", "url": redis_url}}
    options = {"checkpoint": str(tmp_path / "checkpoints"), "driver_memory": "512m", "driver_batch_rows": 0}
    config = tmp_path / "cdc.toml"
    config.write_text(log.toml(sinks, **options), encoding="utf-8")
    program = spawn("cdc", "--config", config, "sink", "--until-caught-up")
    assert program.wait(120) == Exit.OK, program.stderr
    assert "sink_starts_again" not in program.stderr
    mark = opened(log.settings(sinks), "cache").watermarks.read()
    assert mark is not None and mark.lsn == lsn


@pytest.mark.slow
@pytest.mark.long
def test_h394_large_first_records_do_not_come_whole(
    pipeline: HandMadeLog, redis_url: str, spawn: Spawn, opened: Opened, tmp_path: Path
) -> None:
    """Nothing was known of their size, so they were taken for small: Spark's JVM ended, and again at each start."""
    pipeline.put({"id": n % KEYS, "status": f"{n} " + "x" * 120_000, "total": "1.00"} for n in range(6_000))
    lsn = pipeline.progress()
    sinks = {"cache": {"kind": "redis", "url": redis_url}}
    options = {"checkpoint": str(tmp_path / "checkpoints"), "driver_memory": "512m"}
    config = tmp_path / "cdc.toml"
    config.write_text(pipeline.toml(sinks, **options), encoding="utf-8")
    program = spawn("cdc", "--config", config, "sink", "--until-caught-up")
    assert program.wait(120) == Exit.OK, program.stderr
    mark = opened(pipeline.settings(sinks), "cache").watermarks.read()
    assert mark is not None and mark.lsn == lsn


@pytest.mark.slow
def test_h392_a_heap_that_spark_refuses_is_told_in_a_sentence(
    pipeline: HandMadeLog, redis_url: str, spawn: Spawn, tmp_path: Path
) -> None:
    config = tmp_path / "cdc.toml"
    options = {"checkpoint": str(tmp_path / "checkpoints"), "driver_memory": "256m"}
    config.write_text(pipeline.toml({"cache": {"kind": "redis", "url": redis_url}}, **options), encoding="utf-8")
    program = spawn("cdc", "--config", config, "sink", "--until-caught-up")
    assert program.wait(60) == Exit.CONFIG, program.stderr
    assert "INVALID_DRIVER_MEMORY" in program.stderr
