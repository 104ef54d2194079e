"""The last hour, kept for the plots: bounded, with peaks and with gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import SourceError
from cdc.record.ports import Unknown
from cdc.status.html import plots, plotted
from cdc.status.pace import POINT_S, POINTS, Curve, Hour, LiveLook, Pace
from tests.unit.cdc.status.test_pace import MB, look


def noted(hour: Hour, at_s: float, lag_s: float | None, *, slept: bool = False) -> None:
    shown = replace(look(3 * MB, 2 * MB, MB), lag_s=lag_s)
    pace = Pace(seconds=2.0, source_bytes_s=5.0)
    hour.note(LiveLook(shown=shown, at_ms=0, begun_s=at_s, pace=pace, slept=slept))


def curve(hour: Hour, title: str) -> Curve:
    return next(one for one in hour.curves() if one.title == title)


def test_a_point_is_the_highest_value_of_ten_seconds() -> None:
    hour = Hour()
    assert hour.curves() == ()
    for at_s, lag_s in ((100.0, 1.0), (103.0, 7.0), (109.9, 2.0), (111.0, 3.0)):
        noted(hour, at_s, lag_s)
    assert curve(hour, "the log is behind").values == (7.0, 3.0)
    assert [(one.title, one.unit) for one in hour.curves()] == [
        ("the log is behind", "seconds"),
        ("the slot keeps", "bytes"),
        ("the source writes", "bytes/s"),
        ("the log grows by", "bytes/s"),
        ("cache is behind", "seconds"),
    ]


def test_a_point_without_a_known_value_is_a_gap() -> None:
    hour = Hour()
    for at_s, lag_s in ((0.0, 1.0), (2.0, None), (40.0, 4.0)):
        noted(hour, at_s, lag_s)
    assert curve(hour, "the log is behind").values == (None, None, None, None, 4.0)


@given(st.lists(st.integers(1, 900), min_size=1, max_size=80))
def test_there_is_never_more_than_an_hour(steps: list[int]) -> None:
    """A look each two seconds is expected: one of 23 s later is the next one, where parts are away."""
    hour, at_s, places = Hour(2.0), 0, set[int]()
    for seconds in steps:
        before, at_s = int(at_s // POINT_S), at_s + seconds
        here = int(at_s // POINT_S)
        places.update(range(before + 1 if places and seconds <= 23 else here, here + 1), [here])
        noted(hour, float(at_s), 1.0)
    first = max(min(places), max(places) - POINTS + 1)
    values = tuple(1.0 if place in places else None for place in range(first, max(places) + 1))
    assert curve(hour, "the log is behind").values == values
    assert 1 <= len(values) <= POINTS


def test_a_day_of_looks_takes_no_more_room_than_an_hour() -> None:
    hour = Hour()
    for count in range(8_640):
        noted(hour, count * POINT_S, float(count))
    assert curve(hour, "the log is behind").values == tuple(float(8_640 - POINTS + n) for n in range(POINTS))


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ((0.0, 0.0), "M359 59L360 59"),
        ((5.0,), "M359 3L360 3"),
        ((2.0, None, 1.0), "M357 3L358 3 M359 31L360 31"),
        ((None, None), ""),
    ],
)
def test_a_line_is_broken_off_where_nothing_is_known(values: tuple[float | None, ...], line: str) -> None:
    assert f'<path d="{line}" class="line">' in plotted(Curve("lag", "seconds", values, values[-1]))


def test_a_plot_says_its_newest_and_highest_value() -> None:
    drawn = plotted(Curve("<b>", "bytes/s", (2048.0, 1024.0), 1024.0))
    assert "<b>&lt;b&gt;</b>" in drawn
    assert "<span>1.0 kB/s</span><small>at most 2.0 kB/s in 1 min</small>" in drawn
    assert "<span>not known</span>" in plotted(Curve("lag", "records", (7.0, None), None))
    assert plots(()) == plots((Curve("lag", "records", (None, None), None),)) == ""
    assert "The last hour" in plots((Curve("lag", "records", (None, 1.0, None), None),))


def test_a_source_without_lsns_has_records_alone() -> None:
    hour = Hour()
    shown = replace(look(MB, MB, MB), asked=False, slot=None)
    sink = replace(shown.sinks[0], lag_records=12)
    hour.note(LiveLook(shown=replace(shown, sinks=[sink]), at_ms=0))
    assert hour.curves() == (Curve("cache is behind", "records", (12,), 12),)


def test_a_slot_that_is_not_known_has_no_point() -> None:
    hour = Hour()
    hour.note(LiveLook(shown=replace(look(MB, MB, MB), slot=Unknown(SourceError("away"))), at_ms=0))
    assert curve(hour, "the slot keeps").values == (None,)


@pytest.mark.parametrize("every_s", [2.0, 12.0, 30.0, 600.0])
def test_looks_that_follow_each_other_are_one_line(every_s: float) -> None:
    """Each is a little late. The points between two lie on the line from one to the other."""
    hour = Hour(every_s)
    for count in range(60):
        noted(hour, count * every_s * 1.01, float(count))
    values = curve(hour, "the log is behind").values
    assert None not in values
    assert list(values) == sorted(values, key=lambda value: value or 0.0)
    assert plotted(curve(hour, "the log is behind")).count('class="line"') == 1


def test_the_points_between_two_looks_are_known_where_both_are() -> None:
    hour = Hour(30.0)
    for at_s, lag_s in ((0.0, 1.0), (30.0, 4.0), (60.0, None), (90.0, 2.0)):
        noted(hour, at_s, lag_s)
    assert curve(hour, "the log is behind").values == (1.0, 2.0, 3.0, 4.0, None, None, None, None, None, 2.0)


def test_an_outage_shorter_than_a_point_is_a_gap() -> None:
    """The newest value is known all the same."""
    hour = Hour()
    for at_s, lag_s in ((0.0, 1.0), (10.0, None), (12.0, None), (18.0, 1.0), (20.0, 2.0), (22.0, None), (24.0, 3.0)):
        noted(hour, at_s, lag_s)
    found = curve(hour, "the log is behind")
    assert found.values == (1.0, None, None)
    assert found.now == 3.0
    assert "<span>3.0 s</span>" in plotted(found)


def test_the_time_that_the_machine_slept_is_a_gap() -> None:
    hour = Hour()
    for at_s, slept in ((0.0, False), (10.0, False), (12.0, True), (20.0, False)):
        noted(hour, at_s, 1.0, slept=slept)
    assert curve(hour, "the log is behind").values == (1.0, None, 1.0)


def test_a_store_may_be_called_as_the_log_is() -> None:
    hour, shown = Hour(), replace(look(3 * MB, 2 * MB, MB), lag_s=1.0)
    sink = replace(shown.sinks[0], name="the log", lag_s=9.0)
    hour.note(LiveLook(shown=replace(shown, sinks=[sink]), at_ms=0))
    assert [one.values for one in hour.curves() if one.title == "the log is behind"] == [(1.0,), (9.0,)]


@pytest.mark.parametrize(
    ("values", "gaps"),
    [
        ((1.0, 2.0), ""),
        ((1.0, None, 2.0), "M358 0H360V60H358Z"),
        ((None, 1.0, None, None), "M357 0H358V60H357Z M358 0H360V60H358Z"),
        ((None,), "M360 0H360V60H360Z"),
    ],
)
def test_a_time_of_which_nothing_is_known_is_marked(values: tuple[float | None, ...], gaps: str) -> None:
    """A line at 0 shows no gap by itself."""
    drawn = plotted(Curve("lag", "seconds", values, None))
    assert f'<path d="{gaps}" class="gap">' in drawn
    assert '<path d="M90 0V60M180 0V60M270 0V60" class="tick">' in drawn
    assert "<small>60 min ago</small><small>45</small><small>30</small><small>15</small><small>now</small>" in drawn
