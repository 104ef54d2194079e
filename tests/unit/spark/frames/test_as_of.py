"""When a compacted log can say what a table was: the rule against a model of Kafka's cleaner."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import UsageError
from cdc.record.position import Lsn, Position
from cdc.record.progress import Progress
from cdc.wire.records import RecordColumns
from spark.frames.as_of import AsOf, oldest_possible, safe_lag_ms
from spark.frames.frame import FrameTask, as_of_plan, read_share, spans_of
from spark.frames.frame_columns import FrameColumns
from spark.frames.options import FrameOptions
from tests.memory_frames import MemoryFrameLog
from tests.memory_log import ManualClock, MemoryReading
from tests.unit.spark.frames.changes import TOPIC, change, joined, shape

LAG_MS = 100_000
NOW_MS = 10_000_000


def read_as_of(
    lots: list[RecordColumns], lsn: int, *, held: int, length: int = 0, later_ms: int = 0
) -> list[dict[str, Any]]:
    """The changes below an LSN, read ``later_ms`` after they were planned."""
    clock = ManualClock(NOW_MS * 1_000_000)
    lots = [joined(*lots)] if lots else []
    log = MemoryFrameLog(
        [shape()], lots, compaction_lag_ms=LAG_MS, last=Progress(epoch=1, lsn=held), lengths={TOPIC: {0: length}}
    )
    options = FrameOptions(servers="k", pipeline="shop", tables=("public.orders",), as_of=Lsn(lsn))
    reading = MemoryReading(tuple(lots))
    ends, asked = as_of_plan(options, log.find(options.tables), log, reading, clock)
    task = FrameTask(FrameColumns.of(shape()), (shape(),), options, reading)
    batches = []
    for batch in read_share(task, spans_of({}, ends), asked, reading.open(), clock):
        batches.append(batch)
        clock.advance(later_ms / 1000)
    return [row for batch in batches for row in batch.to_pylist()]


def test_what_is_above_is_left_out() -> None:
    young = NOW_MS - 10
    lots = [change(n, {"id": n, "status": "a"}, time_ms=young) for n in range(4)]
    assert [row["id"] for row in read_as_of(lots, 24, held=100)] == [0, 1]


def test_h169_an_old_record_above_is_refused() -> None:
    old, young = NOW_MS - 2 * LAG_MS, NOW_MS - 10
    lots = [change(0, {"id": 0}, time_ms=old), change(1, {"id": 1}, time_ms=old), change(2, {"id": 2}, time_ms=young)]
    with pytest.raises(UsageError) as refused:
        read_as_of(lots, 16, held=100)
    assert "public.orders cannot be read as of 0/10: the log is compacted" in refused.value.message
    assert "the oldest LSN that is possible now is 0/18" in refused.value.hint
    assert [row["id"] for row in read_as_of(lots, 0x18, held=100)] == [0, 1]


def test_h169_a_record_that_ages_while_it_is_read_is_refused() -> None:
    nearly = NOW_MS - safe_lag_ms(LAG_MS) + 500
    lots = [change(0, {"id": 0}, time_ms=nearly - 5), change(1, {"id": 1}, time_ms=nearly)]
    assert len(read_as_of(lots, 16, held=100)) == 1
    with pytest.raises(UsageError, match="cannot be read as of 0/10"):
        read_as_of(lots, 16, held=100, later_ms=1000)


def test_h169_a_delete_that_is_forgotten_counts() -> None:
    # Offset 1 was a delete, gone since: what it deleted is gone as well.
    old, young = NOW_MS - 20 * LAG_MS, NOW_MS - 10
    lots = [change(0, {"id": 0}, time_ms=old), change(2, {"id": 2}, time_ms=young)]
    with pytest.raises(UsageError) as refused:
        read_as_of(lots, 16, held=100)
    assert "is 0/20" in refused.value.hint
    assert len(read_as_of(lots, 0x20, held=100)) == 2


def test_a_row_of_a_snapshot_above_is_refused() -> None:
    lots = [change(0, {"id": 0}, op="r", lsn=64, seq=0, time_ms=NOW_MS - 10)]
    with pytest.raises(UsageError, match="cannot be read as of 0/20"):
        read_as_of(lots, 32, held=100)


def test_what_the_log_does_not_hold_yet_is_refused() -> None:
    with pytest.raises(UsageError, match="the log holds the source up to 0/64 only"):
        read_as_of([], 200, held=100)
    assert read_as_of([], 100, held=100) == []


def test_of_an_earlier_epoch_all_is_below() -> None:
    settled = [Position(1, 5000, 1).text().encode(), Position(2, 8, 1).text().encode()]
    assert oldest_possible(settled, 2) == 16
    assert Position(1, 5000, 1).text().encode() < AsOf(2, 8, 0).text


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[int, int, bool]], int]:
    """Changes of three keys, oldest first: time, key, whether it is a delete. And how far the cleaner has come."""
    times = sorted(draw(st.lists(st.integers(NOW_MS - 5 * LAG_MS, NOW_MS), max_size=12)))
    changes = [(time_ms, draw(st.integers(0, 2)), draw(st.booleans())) for time_ms in times]
    return changes, draw(st.integers(0, len(times)))


def compacted(lots: list[RecordColumns], cleaned: int, forgotten_ms: int) -> list[RecordColumns]:
    """What the cleaner leaves: of the records old enough, below ``cleaned``, the newest of a key, and no old delete.

    It removes a delete only where it has cleaned, and so together with the records of its key before it.
    """
    usable = [n for n, lot in enumerate(lots) if n < cleaned and lot.times_ms[0] <= NOW_MS - LAG_MS]
    newest = {lots[n].keys[0]: n for n in usable}
    kept = [(n, lot) for n, lot in enumerate(lots) if n not in usable or newest[lot.keys[0]] == n]
    forgotten = {n for n in usable if lots[n].op == [b"d"] and lots[n].times_ms[0] <= forgotten_ms}
    return [lot for n, lot in kept if n == len(lots) - 1 or n not in forgotten]


@given(histories(), st.integers(0, 14), st.booleans())
def test_h169_an_answer_is_what_the_table_was(
    history: tuple[list[tuple[int, int, bool]], int], upto: int, forgets: bool
) -> None:
    changes, cleaned = history
    whole = [
        change(n, {"id": key, "status": str(n)}, op="d" if gone else "u", time_ms=time_ms)
        for n, (time_ms, key, gone) in enumerate(changes)
    ]
    left = compacted(whole, cleaned, NOW_MS - 3 * LAG_MS if forgets else 0)
    lsn = 8 * upto + 8
    model: dict[int, str] = {}
    for n, (_, key, gone) in enumerate(changes):
        if 8 * n + 8 < lsn:
            model.pop(key, None)
            if not gone:
                model[key] = str(n)
    try:
        rows = read_as_of(left, lsn, held=8 * len(changes) + 200, length=len(whole))
    except UsageError:
        return
    found: dict[int, str] = {}
    for row in rows:
        found.pop(row["id"], None)
        if row["_op"] != "d":
            found[row["id"]] = row["status"]
    assert found == model
