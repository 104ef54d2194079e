"""A table that is taken out of a sink's tables on a real log, and named again, early and late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cdc.record.progress import Watermark
from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog

BOTH, OTHERS = ["public.*"], ["public.others"]


@pytest.fixture
def pipeline(kafka: str, topic_prefix: str) -> HandMadeLog:
    made = HandMadeLog(topic_prefix, kafka, tables=("orders", "others"))
    made.init()
    return made


def order(number: int, status: str) -> dict[str, Any]:
    return {"id": number, "status": status, "total": "1.00"}


@pytest.mark.slow
def test_h479_a_table_taken_out_and_named_again(
    pipeline: HandMadeLog, sinks: Sinks, redis_url: str, opened: Callable[[Settings, str], OpenSink]
) -> None:
    """Early it is read anew, late it is filled anew: it shows what it should."""
    fed = {
        text: pipeline.settings({"cache": {"kind": "redis", "url": redis_url, "tables": tables}})
        for text, tables in (("both", BOTH), ("others", OTHERS))
    }
    store, topic = opened(fed["both"], "cache"), pipeline.topic("orders")

    def shows(which: str, lsn: int, *wanted: str) -> Watermark:
        """Run it until it claims the LSN, and its watermark speaks of these topics."""

        def reached() -> Watermark | None:
            mark = store.watermarks.read()
            return mark if mark and mark.lsn == lsn and {*wanted} <= mark.offsets.keys() - mark.held.keys() else None

        with sinks.running(fed[which]) as running:
            found = running.until(reached)
            assert found is not None
            return found

    for table in pipeline.tables:
        pipeline.put([order(number, "first") for number in range(6)], table=table)
    lsn = pipeline.progress()
    shows("both", lsn)
    for late in (False, True):
        pipeline.put([{"id": 2 + late}, order(5, f"late {late}")])
        pipeline.put([order(1, f"late {late}")], table="others")
        lsn = pipeline.progress()
        mark = shows("others", lsn)
        assert mark.held == {}
        pipeline.assert_shown(store, "others")
        if late:
            [shape] = [one for one in pipeline.shapes.values() if one.topic == topic]
            place = store.places.read(shape)
            assert place is not None
            store.places.lead([(shape, replace(place, level_ms=1))])
            store.places.finish()
        mark = shows("both", lsn, topic)
        pipeline.assert_shown(store)
        assert mark.held == {}
