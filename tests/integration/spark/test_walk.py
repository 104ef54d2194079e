"""The way of a changed row through a sink is the one that ARCHITECTURE.md tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog
from tests.walks import Walk, named

Opened = Callable[[Settings, str], OpenSink]
VALUE = "a value that is followed"


@pytest.mark.slow
def test_a_changed_row_passes_the_files_of_the_page(
    pipeline: HandMadeLog, sinks: Sinks, opened: Opened, redis_url: str
) -> None:
    walk = Walk(VALUE, {})
    settings = pipeline.settings({"cache": {"kind": "redis", "url": redis_url}})
    with walk.watched(), sinks.running(settings) as running:
        pipeline.put([{"id": 1, "status": VALUE, "total": "1.00"}])
        pipeline.progress()
        store = opened(settings, "cache")
        running.until(lambda: pipeline.shown(store) == pipeline.rows["orders"])
    assert walk.files == named("Through a sink")
