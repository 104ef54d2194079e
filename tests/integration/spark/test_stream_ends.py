"""A stream whose driver ends before, within and behind the transaction of a batch, again and again."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.views.known_views import BatchNote
from cdc.wiring.streams import compare_stream
from connectors.streams.stream_topics import KafkaStreamOutput
from spark.streams.ports import StreamOutput
from spark.streams.stream_query import RunningStream
from spark.streams.stream_rows import StreamRecord
from spark.streams.stream_runner import covers
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.handmade_events import HandMadeEvents
from tests.waiting import wait_until

ENDS = int(os.environ.get("CDC_STREAM_ENDS", "3"))
"""``CDC_STREAM_ENDS=50`` makes a hundred."""


class Ended(Exception):
    """The driver is gone."""


class EndingOutput:
    """An output whose driver ends at a batch: before its transaction, within it, or behind it."""

    def __init__(self, output: StreamOutput, where: str) -> None:
        assert isinstance(output, KafkaStreamOutput)
        self._output = output
        self._where = where

    def last(self) -> BatchNote | None:
        return self._output.last()

    def put(self, records: Sequence[StreamRecord], note: BatchNote) -> None:
        if self._where == "before":
            raise Ended
        if self._where == "within":
            self._output.transact(records, lambda _: self._end())
        self._output.put(records, note)
        if self._where == "behind":
            raise Ended

    def _end(self) -> None:
        raise Ended

    def close(self) -> None:
        self._output.close()


def has_ended(stream: RunningStream) -> bool:
    """Whether its query is over."""
    return not stream.active


@pytest.mark.parametrize("mode", ["update", "append"])
def test_e8_e9_every_event_counts_once_over_many_ends(
    spark_session: SparkSession, pipeline: HandMadeLog, tmp_path: Path, mode: str
) -> None:
    made, draw = HandMadeEvents(pipeline, tmp_path / "stream"), random.Random(7)
    settings = made.settings(mode=mode)
    second, wrote = 0.0, 0
    for number in range(ENDS):
        for _ in range(draw.randrange(1, 6)):
            second, wrote = second + draw.random() * 30, wrote + 1
            made.request(
                second, draw.choice("ab"), old_s=draw.choice([0, 1, 30, 59, 61, 3600]), partition=draw.randrange(2)
            )
        made.cut()
        over = partial(EndingOutput, where=("before", "within", "behind")[number % 3])
        with made.running(spark_session, settings, over) as stream:
            wait_until(partial(has_ended, stream), 90)
            assert stream.failure() is not None, number
    made.request(second, "z")
    ends = made.cut(second + 600)
    with made.running(spark_session, settings) as stream:
        made.settle(stream, ends)
        assert stream.last is not None
        assert covers(stream.last.cuts, ends)
    comparison = compare_stream(spark_session, settings, "traffic")
    assert comparison.is_clean, list(comparison.sentences("traffic"))
    assert comparison.events + comparison.set_apart == wrote + 1
    if mode == "append":
        assert sum(row[2] for row in made.rows(settings)) == comparison.events
