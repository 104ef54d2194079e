"""The last hour, kept for the plots: bounded, with peaks and with gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import SourceError
from cdc.found import Unknown
from cdc.status.hour import POINT_S, POINTS, Curve, Hour
from cdc.status.live_looks import LiveLook
from cdc.status.pace import Pace
from cdc.status.svg import plots, plotted
from tests.unit.cdc.status.test_pace import MB, look


def noted(hour: Hour, at_s: float, lag_s: float | None) -> None:
    shown = replace(look(3 * MB, 2 * MB, MB), lag_s=lag_s)
    hour.note(LiveLook(shown=shown, at_ms=0, pace=Pace(seconds=2.0, source_bytes_s=5.0)), at_s)


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
        ("the log takes", "bytes/s"),
        ("cache is behind", "seconds"),
    ]


def test_a_point_without_a_known_value_is_a_gap() -> None:
    hour = Hour()
    for at_s, lag_s in ((0.0, 1.0), (2.0, None), (40.0, 4.0)):
        noted(hour, at_s, lag_s)
    assert curve(hour, "the log is behind").values == (None, None, None, None, 4.0)


@given(st.lists(st.integers(1, 900), min_size=1, max_size=80))
def test_there_is_never_more_than_an_hour(steps: list[int]) -> None:
    hour, at_s, places = Hour(), 0, set[int]()
    for seconds in steps:
        at_s += seconds
        places.add(int(at_s // POINT_S))
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
        ((5.0,), "M360 3L360 3"),
        ((2.0, None, 1.0), "M358 3L358 3 M360 31L360 31"),
        ((None, None), ""),
    ],
)
def test_a_line_is_broken_off_where_nothing_is_known(values: tuple[float | None, ...], line: str) -> None:
    assert f'<path d="{line}" class="line">' in plotted(Curve("lag", "seconds", values))


def test_a_plot_says_its_newest_and_highest_value() -> None:
    drawn = plotted(Curve("<b>", "bytes/s", (2048.0, 1024.0)))
    assert "<b>&lt;b&gt;</b>" in drawn
    assert "<span>1.0 kB/s</span><small>at most 2.0 kB/s in 1 min</small>" in drawn
    assert "<span>not known</span>" in plotted(Curve("lag", "records", (7.0, None)))
    assert plots(()) == ""


def test_a_source_without_lsns_has_records_alone() -> None:
    hour = Hour()
    shown = replace(look(MB, MB, MB), asked=False, slot=None)
    sink = replace(shown.sinks[0], lag_records=12)
    hour.note(LiveLook(shown=replace(shown, sinks=[sink]), at_ms=0), 0.0)
    assert hour.curves() == (Curve("cache is behind", "records", (12,)),)


def test_a_slot_that_is_not_known_has_no_point() -> None:
    hour = Hour()
    hour.note(LiveLook(shown=replace(look(MB, MB, MB), slot=Unknown(SourceError("away"))), at_ms=0), 0.0)
    assert curve(hour, "the slot keeps").values == (None,)
