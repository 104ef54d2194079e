"""Lags, rates and times left: what is not known is None, and a lag is never shorter than it is."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.figures.measures import (
    FRESHNESS_S,
    RECENT_S,
    BucketCounts,
    FreshnessTimes,
    Head,
    SlotMarks,
    SourceAhead,
    Trend,
    UnheldCommits,
    age_s,
    lacking,
    left_s,
    oldest_lacking_ms,
    quantiles,
    slot_stage,
)

seconds = st.floats(0, 1e5, allow_nan=False)
counted = st.lists(st.tuples(seconds, st.integers(1, 5)), max_size=30)


@given(counted)
def test_a_tally_has_what_was_counted_in_buckets_that_grow(values: list[tuple[float, int]]) -> None:
    tally = BucketCounts(FRESHNESS_S)
    for value, count in values:
        tally.add(value, count)
    buckets = tally.buckets()
    assert [bound for bound, _ in buckets] == [*(str(bound) for bound in FRESHNESS_S), "+Inf"]
    assert [tally.count] == [buckets[-1][1]]
    for bound, passed in buckets:
        assert passed == sum(count for value, count in values if value <= float(bound))
    assert tally.total == pytest.approx(sum(value * count for value, count in values))


@given(counted)
def test_quantiles_are_values_that_were_there(values: list[tuple[float, int]]) -> None:
    found = quantiles(values)
    each = sorted(value for value, count in values for _ in range(count))
    if not each:
        assert found is None
    else:
        wanted = [each[math.ceil(share * len(each)) - 1] for share in (0.5, 0.99)]
        assert found is not None and [found.p50_s, found.p99_s, found.changes] == [*wanted, len(each)]


def test_freshness_forgets_and_never_runs_backwards() -> None:
    fresh = FreshnessTimes()
    assert fresh.recent(0) is None
    fresh.add(-3, 100)
    fresh.add(2, 100, count=3, origin="heartbeat")
    assert fresh.recent(100 + RECENT_S) == (2, 2, 4), "clocks that differ make no time below nothing"
    assert fresh.recent(101 + RECENT_S) is None
    assert (fresh.tallies["change"].count, fresh.tallies["heartbeat"].count) == (1, 3)


@given(st.floats(-1e3, 1e3), st.lists(st.floats(0.1, 10), min_size=1, max_size=1500))
def test_a_trend_is_the_growth_over_its_window(per_s: float, steps_s: list[float]) -> None:
    trend, at_s = Trend(60), 0.0
    assert trend.per_s() is None
    for step_s in steps_s:
        trend.note(at_s, per_s * at_s)
        at_s += step_s
    found = trend.per_s()
    assert (found is None) == (len(steps_s) == 1)
    assert found is None or found == pytest.approx(per_s, abs=1e-3)


def test_a_trend_sees_its_window_alone_and_no_time_twice() -> None:
    trend = Trend(10)
    for at_s in range(100):
        trend.note(at_s, 0 if at_s < 50 else (at_s - 50) * 4)
        trend.note(at_s, 1e9)
    assert trend.per_s() == pytest.approx(4)
    trend.forget()
    assert trend.per_s() is None


@given(st.floats(0.01, 1e9), st.floats(-1e6, 1e6))
def test_time_left_is_infinite_where_nothing_gets_less(rest: float, per_s: float) -> None:
    found = left_s(rest, per_s)
    assert found == (rest / per_s if per_s > 0 else math.inf)
    assert (left_s(0, per_s), left_s(rest, None)) == (0, None)


def test_an_age_is_nothing_where_two_clocks_differ() -> None:
    assert (age_s(5e6, 3e6), age_s(3e6, 5e6), age_s(3e6, None)) == (2, 0, 0)


batches = st.lists(st.tuples(st.lists(st.integers(1, 1000), min_size=1, max_size=4), st.booleans()), max_size=40)


@given(batches, st.integers(0, 50))
def test_the_oldest_unheld_is_the_first_that_the_broker_lacks(made: list[tuple[list[int], bool]], acked: int) -> None:
    unheld, ends = UnheldCommits(), list(accumulate([0, *(8 for _ in made)]))
    for group, (times_us, waits) in enumerate(made, 1):
        unheld.handed(group, ends[group], times_us, waits=waits)
    held = [time_us for times_us, _ in made[:acked] for time_us in times_us]
    assert list(unheld.acked(acked)) == held
    assert list(unheld.acked(acked)) == [], "once"
    unheld.waits(None)
    rest = made[acked:]
    assert unheld.oldest_us() == (rest[0][0][0] if rest else None)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(0, 400))
def test_what_waits_is_as_old_as_the_first_commit_behind_it(times_us: list[int], oldest: int) -> None:
    unheld = UnheldCommits()
    for group, time_us in enumerate(times_us, 1):
        unheld.handed(group, group * 8, [time_us], waits=True)
    unheld.acked(len(times_us))
    unheld.waits(oldest)
    behind = [time_us for group, time_us in enumerate(times_us, 1) if group * 8 > oldest]
    assert unheld.oldest_us() == (behind[0] if behind else None)
    unheld.waits(None)
    assert unheld.oldest_us() is None


def test_a_table_that_waits_for_long_takes_little_memory() -> None:
    unheld = UnheldCommits()
    for group in range(1, 5_000):
        unheld.handed(group, group * 8, [group], waits=True)
    unheld.acked(5_000)
    unheld.waits(4)
    assert unheld.oldest_us() == 1
    assert len(unheld._behind) <= 512


@given(st.lists(st.integers(0, 1000), max_size=60), st.lists(st.integers(0, 1000), min_size=1, max_size=5))
def test_a_source_is_ahead_since_the_first_look_that_shows_it(wal: list[int], received: list[int]) -> None:
    ahead, written = SourceAhead(), sorted(wal)
    for at_s, wal_lsn in enumerate(written):
        ahead.look(at_s, wal_lsn)
    for come in sorted(received):
        assert ahead.since_s(come) == next((at_s for at_s, lsn in enumerate(written) if lsn > come), None)


def test_looks_at_a_source_that_stands_still_take_little_memory() -> None:
    ahead = SourceAhead()
    for at_s in range(5_000):
        ahead.look(at_s, 100 + at_s)
    assert ahead.since_s(99) == 0
    assert len(ahead._seen) <= 512
    ahead.forget()
    assert ahead.since_s(0) is None


places = st.dictionaries(st.integers(0, 3), st.integers(0, 6), max_size=4).map(lambda parts: {"t": parts})


read_heads = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3), st.integers(0, 6)), st.integers(1, 9))


@given(places, places, read_heads)
def test_h110_the_oldest_is_known_where_each_first_was_read(
    offsets: dict[str, dict[int, int]], ends: dict[str, dict[int, int]], times: dict[tuple[str, int, int], int]
) -> None:
    heads = {place: Head(place[2], time_ms) for place, time_ms in times.items()}
    known, oldest = oldest_lacking_ms(offsets, ends, heads)
    newest = {}
    for _, partition, place in lacking(offsets, ends):
        read = [one for one in heads if one[1] == partition and one[2] <= place]
        newest[partition] = heads[max(read)].committed_ms if read else None
    assert known == (None not in newest.values())
    assert oldest == (min((time_ms for time_ms in newest.values() if time_ms), default=None) if known else None)


def test_a_stretch_that_the_cleaner_emptied_is_no_lag() -> None:
    assert oldest_lacking_ms({"t": {0: 3}}, {"t": {0: 9}}, {("t", 0, 3): Head(9, None)}) == (True, None)
    assert oldest_lacking_ms({"t": {0: 3}}, {"t": {0: 12}}, {("t", 0, 3): Head(9, 77)}) == (True, 77)


GB = 1024**3


@pytest.mark.parametrize(
    ("slot", "received", "held", "waits", "stage"),
    [
        (SlotMarks(GB, GB - 100, GB - 50, True), GB, GB, False, "nothing"),
        (SlotMarks(GB, 0, 0, False), 0, 0, False, "capture"),
        (SlotMarks(GB, 0, GB - 100, True), GB, GB, False, "transaction"),
        (SlotMarks(GB, 0, 100, True), GB, 200, True, "table"),
        (SlotMarks(GB, 0, 100, True), GB, 200, False, "broker"),
        (SlotMarks(GB, 0, 100, True), 300, 200, False, "source"),
    ],
)
def test_what_keeps_the_wal_is_named(slot: SlotMarks, received: int, held: int, waits: bool, stage: str) -> None:
    assert slot_stage(slot, received_lsn=received, held_lsn=held, waits=waits) == stage
