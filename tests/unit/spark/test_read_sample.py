"""Bytes of all records, and commit times of some that stand for all."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.clock import ManualClock
from cdc.record.progress import Watermark
from spark.figures.sink_metrics import SinkFigures
from spark.records.source import RECORD_SCHEMA, ReadSample, read_sample, spread
from spark.stores.apply import Outcome
from spark.stores.store_figures import BeatCount, note_outcome, reached_of
from spark.stores.watermark import Beat


def records(count: int, op: bytes = b"u") -> pa.Table:
    sources = [{"source": {"name": "s", "ts_ms": 1000 + number}} for number in range(count)]
    rows = [{"key": b"k", "value": orjson.dumps(source), "op": op} for source in sources]
    return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)


@given(st.integers(1, 500), st.integers(1, 20))
def test_places_are_spread_over_all_and_end_with_the_last(count: int, most: int) -> None:
    found = list(spread(count, most))
    assert found == sorted(set(found)) and found[-1] == count - 1
    assert len(found) == min(count, most)


def test_a_sample_stands_for_all_records() -> None:
    found = read_sample(records(80))
    values: list[Any] = records(80).column("value").to_pylist()
    assert found.size_bytes == sum(1 + len(value) for value in values)
    assert [count for _, count in found.commits] == [10] * 8
    assert found.commits[-1] == (1079, 10)
    assert ReadSample.of(orjson.loads(orjson.dumps(found))) == found
    assert found + ReadSample(1, ((5, 2),)) == ReadSample(found.size_bytes + 1, (*found.commits, (5, 2)))


@given(st.integers(1, 60))
def test_a_sample_leaves_no_record_out(count: int) -> None:
    assert sum(number for _, number in read_sample(records(count)).commits) == count


def test_rows_of_snapshots_and_tombstones_are_no_fresh_changes() -> None:
    assert read_sample(records(3, b"r")).commits == ()
    gone = pa.Table.from_pylist([{"key": b"k", "value": None, "op": b"d"}], schema=RECORD_SCHEMA)
    assert read_sample(gone) == ReadSample(1)
    assert read_sample(RECORD_SCHEMA.empty_table()) == ReadSample()


def test_a_fill_counts_and_says_nothing_of_freshness() -> None:
    clock, figures = ManualClock(), SinkFigures()
    now_ms, now_s = clock.now_ns() / 1e6, clock.monotonic()
    outcome = Outcome(records=4, read=ReadSample(100, ((int(now_ms) - 2000, 4),)))
    note_outcome(figures, outcome, now_ms, now_s, int(now_ms) - 1999)
    assert (figures.records, figures.mean_bytes(), figures.freshness.recent(now_s)) == (4, 25, None)
    note_outcome(figures, outcome, now_ms, now_s, int(now_ms) - 2000)
    beats, beat = BeatCount(), Beat(1, 64, int(now_ms) - 500)
    assert beats.shown(beat, Watermark(epoch=1, lsn=63)) is None, "it does not show yet"
    assert beats.shown(beat, Watermark(epoch=1, lsn=64)) == beat
    beats.note(figures, beat, now_ms, now_s)
    assert beats.shown(beat, Watermark(epoch=1, lsn=64)) is None, "once"
    beats.begun_ms = int(now_ms)
    older = Beat(1, 64, int(now_ms) - 1)
    assert beats.shown(older, Watermark(epoch=1, lsn=64)) is None, "it came while nobody fed the store"
    assert figures.freshness.recent(now_s) == (2, 2, 5)
    assert figures.freshness.tallies["heartbeat"].count == 1


def test_a_fill_has_read_no_more_than_there_was() -> None:
    assert reached_of({"t": {0: 30}}, {"t": {0: 10, 1: 5}}) == (10, 15)
