"""Topics that Debezium fills: read, translated and applied by tasks, as by the driver."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.embedded import EmbeddedLog

Opened = Callable[[Settings, str], OpenSink]


@pytest.mark.parametrize("schemas", [True, False])
@pytest.mark.slow
def test_h133_stores_show_what_debeziums_topics_say(  # noqa: PLR0917 - fixtures
    kafka: str,
    topic_prefix: str,
    redis_url: str,
    warehouse: Path,
    sinks: Sinks,
    opened: Opened,
    schemas: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Keys that change again and again across slices, deletes and their tombstones."""
    caplog.set_level(logging.INFO, logger="spark")
    topics = EmbeddedLog(topic_prefix, kafka)
    topics.schemas = schemas
    topics.init()
    for turn in range(3):
        rows: list[dict[str, Any]] = [{"id": n, "status": f"{turn}", "total": f"{n}.50"} for n in range(300)]
        topics.put(rows)
        topics.put({"id": n} for n in range(turn, 300, 7))
    lsn = topics.progress()
    stores = {"cache": {"kind": "redis", "url": redis_url}, "warehouse": {"kind": "delta", "path": str(warehouse)}}
    settings = topics.settings(stores, driver_batch_rows=0, slice_bytes=16 * 1024)
    sinks.catch_up(settings)
    for name in stores:
        store = opened(settings, name)
        topics.assert_shown(store)
        mark = store.watermarks.read()
        assert mark is not None and (mark.lsn, mark.offsets) == (lsn, topics.offsets())
    slices = [vars(one)["sink"] for one in caplog.records if one.getMessage() == "batch_applied"]
    assert slices.count("cache") > 1
