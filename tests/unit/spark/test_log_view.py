"""The log as all stores of an application know it: heartbeats, what records are held against,
and what lies behind a store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from cdc.process.clock import ManualClock
from cdc.record.progress import Progress, Watermark
from spark.records.foreign_records import LogReach
from spark.records.ports import SinkTopics
from spark.stores.view_claims import ViewClaims
from spark.stores.watermark import Beat, Claim, LogEnds, LogView, lowest

T, OTHER = "shop.public.orders", "shop.public.others"
ONE = SinkTopics(ids={T: "id1"}, partitions={T: 1}, compaction_lag_s=60.0)
BOTH = replace(ONE, ids={T: "id1", OTHER: "id2"}, partitions={T: 1, OTHER: 1})
SECONDS = 10


def progress(lsn: int, *, epoch: int = 1, end: int = 5, heartbeat_ms: int = 0) -> Progress:
    return Progress(epoch=epoch, lsn=lsn, offsets={T: {0: end}}, heartbeat_ms=heartbeat_ms)


def test_before_the_first_record_nothing_is_known() -> None:
    log = LogView(judges=True)
    log.note_progress([])
    assert (log.beat, log.reach, log.heads) == (None, None, {})
    assert log.lacking({}, [T]) == (False, 0, None)
    mark = log.claim(None, Claim({}, 1.0), ONE)
    assert (mark.epoch, mark.lsn, mark.level_ms) == (1, 0, 0)


def test_the_newest_heartbeat_is_kept_over_changes() -> None:
    log = LogView()
    beats = [progress(8, heartbeat_ms=100), progress(16, heartbeat_ms=300), progress(24, epoch=2, heartbeat_ms=200)]
    log.note_progress([*beats, progress(32, epoch=2)])
    log.note_progress([progress(40, epoch=2)])
    assert log.beat == Beat(epoch=2, lsn=24, at_ms=200)


def test_h158_records_are_judged_by_the_greatest_if_asked_for() -> None:
    judging, other = LogView(judges=True), LogView()
    for log in (judging, other):
        log.note_progress([progress(8), progress(24), progress(16)])
        log.note_progress([progress(12)])
    assert judging.reach == LogReach(progress(24))
    assert other.reach is None
    assert other.wait_for(lambda reach: False, SECONDS) is None


def test_h158_a_floor_waits_for_the_record_that_reaches_it() -> None:
    """It goes on as soon as that record is here, and not with the one before it."""
    log, asked = LogView(judges=True), Event()

    def enough(reach: LogReach) -> bool:
        asked.set()
        return reach.progress.lsn >= 16

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(log.wait_for, enough, 4 * SECONDS)
        log.note_progress([progress(8)])
        assert asked.wait(SECONDS)
        log.note_progress([progress(16)])
        assert waiting.result(SECONDS) == LogReach(progress(16))
    assert log.wait_for(lambda reach: reach.progress.lsn > 16, 0) == LogReach(progress(16)), "the time is over"


def test_a_topic_not_looked_at_is_not_one_without_records() -> None:
    log = LogView()
    log.note_heads({T: {0: 9}, OTHER: {0: 90}}, {})
    assert log.lacking({T: {0: 9}}, [T]) == (True, 0, None)
    assert log.lacking({T: {0: 7}}, [T])[1] == 2
    assert log.lacking({T: {0: 7}}, [T, OTHER])[1] == 92
    assert log.lacking({T: {0: 9}}, [T, "shop.public.new"]) == (False, 0, None)


def test_h110_a_reader_is_behind_in_its_own_topics_alone() -> None:
    log = LogView()
    log.note_ends(LogEnds(1.0, {T: {0: 4}, OTHER: {0: 90}}))
    assert log.behind({T: {0: 3}}, [T], {T: {0: 9}, OTHER: {0: 99}}) == 6
    assert log.behind({T: {0: 3}}, [T], {}) == 1


@pytest.mark.parametrize(
    ("seen", "read_at_s", "lsn"),
    [
        (LogEnds(0.0, {T: {0: 5}, OTHER: {0: 5}}), 60.0, 8),
        (LogEnds(0.0, {T: {0: 5}, OTHER: {0: 5}}), 60.1, 0),
        (LogEnds(0.0, {T: {0: 5}}), 60.0, 0),
        (LogEnds(0.0, {T: {0: 5}, OTHER: {0: 5}, "shop.public.more": {0: 99}}), 60.0, 8),
    ],
)
def test_h80_only_a_young_look_at_all_of_its_topics_proves(seen: LogEnds, read_at_s: float, lsn: int) -> None:
    log = LogView()
    log.note_progress([progress(8)])
    log.note_ends(seen)
    assert log.claim(None, Claim({T: {0: 5}, OTHER: {0: 5}}, read_at_s), BOTH).lsn == lsn


def test_h119_what_is_said_with_a_higher_lsn_stays() -> None:
    """A progress record below the store's LSN, as after a restart, is not the one that the LSN is of."""
    log = LogView()
    log.note_progress([progress(8)])
    log.note_ends(LogEnds(1.0, {T: {0: 5}}))
    shown = Watermark(epoch=1, lsn=16, offsets={T: {0: 5}}, aside={T: "orders is set aside"})
    mark = log.claim(shown, Claim({T: {0: 5}}, 1.0), ONE)
    assert (mark.lsn, mark.aside) == (16, shown.aside)


@pytest.mark.parametrize(("level_ms", "end", "now"), [(0, 4, 777), (500, 4, 500), (500, 5, 777), (0, 5, 777)])
def test_h60_a_store_behind_keeps_the_time_it_was_level(level_ms: int, end: int, now: int) -> None:
    """One that never was counts from its beginning."""
    log = LogView()
    log.note_ends(LogEnds(1.0, {T: {0: 5}}))
    shown = Watermark(epoch=1, lsn=0, offsets={}, level_ms=level_ms)
    assert log.claim(shown, Claim({T: {0: end}}, 1.0), ONE, 777).level_ms == now


def test_a_view_is_held_against_the_capture_that_was_noted() -> None:
    """Of a view that is too far behind no LSN is asked. Its table's says so."""
    clock = ManualClock()
    log = LogView(views=ViewClaims(clock, limit_s=60))
    topics = replace(BOTH, views={OTHER: "public.others"})
    log.note_views([replace(progress(8), offsets={OTHER: {0: 5}})])
    at = Claim({T: {0: 5}, OTHER: {0: 5}}, 1.0)
    log.note_progress([progress(8)])
    assert log.views_left(None, at, topics).named == {}
    log.note_progress([progress(16)])
    clock.advance(61)
    log.note_progress([progress(24)])
    assert "is more than 60 s behind" in log.views_left(None, at, topics).named[OTHER].reason


def test_the_lowest_offsets_are_of_partitions_that_all_name() -> None:
    both = [{"t": {0: 5, 1: 2}, "u": {0: 1}}, {"t": {0: 3, 2: 9}}]
    assert lowest(both) == lowest(reversed(both)) == {"t": {0: 3}}
    assert lowest(iter([])) == {}


def test_h100_a_store_that_holds_all_its_tables_goes_on() -> None:
    """Its watermark says which tables it holds."""
    log = LogView()
    log.note_progress([progress(8)])
    log.note_ends(LogEnds(1.0, {T: {0: 5}}))
    assert log.claim(None, Claim({}, 1.0), SinkTopics(compaction_lag_s=60.0)).lsn == 8
