"""Records whose time Spark's own reader cannot take: brokers before 4.0 let anybody write any."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ re-exports without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.test_spark_queries import Opened, row

FAR_MS = 2**62
"""In microseconds it is more than 64 bits hold."""


def allow_any_time(pipeline: HandMadeLog) -> None:
    """As a broker before 4.0 does."""
    entry = ConfigEntry("message.timestamp.after.max.ms", str(2**63 - 1), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, pipeline.topic(), incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    for done in client.incremental_alter_configs([resource]).values():
        done.result(30)


@pytest.mark.slow
def test_h390_a_time_that_spark_cannot_take_stops_no_store(
    pipeline: HandMadeLog, sinks: Sinks, opened: Opened, all_stores: dict[str, Any]
) -> None:
    allow_any_time(pipeline)
    pipeline.put(row(number) for number in range(10))
    pipeline.time_ms = FAR_MS
    pipeline.put([row(3, "far")])
    pipeline.time_ms = 0
    pipeline.put(row(number, "paid") for number in range(5))
    lsn = pipeline.progress()
    settings = pipeline.settings({"cache": all_stores["cache"], "reports": all_stores["reports"]}, driver_batch_rows=0)
    sinks.catch_up(settings)
    for name in ("cache", "reports"):
        store = opened(settings, name)
        pipeline.assert_shown(store)
        mark = store.watermarks.read()
        assert mark is not None and mark.lsn == lsn
