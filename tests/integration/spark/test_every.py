"""A sink that rests between its batches: the others do not wait for it, and an end does not either."""

from __future__ import annotations

import logging

import pytest

from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.stores import FaultyStore, connecting
from tests.integration.spark.test_life import rows

REST_S = 600.0


@pytest.mark.slow
def test_h444_a_store_that_rests_holds_up_no_other_and_no_end(
    pipeline: HandMadeLog, sinks: Sinks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    every = {"left": {"every_s": REST_S}, "right": {}, "third": {}}
    settings = pipeline.settings(
        {
            name: {"kind": "redis", "url": "redis://127.0.0.1:1/0", "prefix": name, **more}
            for name, more in every.items()
        }
    )
    stores = {name: FaultyStore() for name in every}
    pipeline.put(rows(0, 3))
    lsn = pipeline.progress()
    with sinks.running(settings, connect=connecting(stores)) as running:
        opened = {name: store.open() for name, store in stores.items()}
        for store in opened.values():
            running.until(lambda one=store: len(pipeline.shown(one)) == 3)  # type: ignore[misc]
        left = opened["left"]
        running.until(lambda: (left.watermarks.read() or pytest.fail("none")).lsn >= lsn)
        for last in (6, 9, 12):
            pipeline.put(rows(last - 3, last))
            running.until(lambda last=last: len(pipeline.shown(opened["right"])) == last)  # type: ignore[misc]
        assert len(pipeline.shown(left)) == 3, "it rests"
        running.stop()
    applied = [vars(one)["sink"] for one in caplog.records if one.getMessage() == "batch_applied"]
    assert applied.count("left") == 1 and applied.count("right") >= 4
    sinks.catch_up(settings, connect=connecting(stores))
    for store in opened.values():
        pipeline.assert_shown(store)
