"""A table that is taken out of a sink's tables on a real log, and named again, early and late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cdc.settings import Settings
from sinks.port import OpenSink
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


def test_h479_a_table_taken_out_and_named_again(
    pipeline: HandMadeLog, sinks: Sinks, redis_url: str, opened: Callable[[Settings, str], OpenSink]
) -> None:
    """Early it is read anew, and shows what it should. Late it is held, and the rows that went stay until a rebuild."""
    fed = {
        text: pipeline.settings({"cache": {"kind": "redis", "url": redis_url, "tables": tables}})
        for text, tables in (("both", BOTH), ("others", OTHERS))
    }
    store = opened(fed["both"], "cache")
    for table in pipeline.tables:
        pipeline.put([order(number, "first") for number in range(6)], table=table)
    pipeline.progress()
    sinks.catch_up(fed["both"])
    for late in (False, True):
        pipeline.put([{"id": 2 + late}, order(5, f"late {late}")])
        pipeline.put([order(1, f"late {late}")], table="others")
        lsn = pipeline.progress()
        sinks.catch_up(fed["others"])
        mark = store.watermarks.read()
        assert mark is not None
        assert (mark.lsn, list(mark.left), mark.held) == (lsn, [pipeline.topic("orders")], {})
        pipeline.assert_shown(store, "others")
        if late:
            left = {topic: replace(one, since_ms=1) for topic, one in mark.left.items()}
            store.watermarks.write(replace(mark, left=left))
        before = pipeline.shown(store)
        sinks.catch_up(fed["both"])
        mark = store.watermarks.read()
        assert mark is not None and mark.lsn == lsn
        if late:
            assert pipeline.shown(store) == before != pipeline.rows["orders"]
            assert "may have missed some" in mark.held[pipeline.topic("orders")].reason
        else:
            pipeline.assert_shown(store)
            assert (mark.left, mark.held) == ({}, {})
