"""The running maximum of commit times, which events and progress records have."""

from __future__ import annotations

from cdc.capture.advance import CommitTimes


def test_e7_commit_times_never_go_back() -> None:
    times = CommitTimes(at_us=10)
    times.open(100, 30)
    times.open(200, 20)
    assert [times.of(lsn) for lsn in (100, 200)] == [30, 30]
    times.open(300, 40)
    assert times.of(200) == 30


def test_e10_progress_has_the_time_of_what_it_covers() -> None:
    times = CommitTimes(at_us=10)
    times.open(100, 30)
    times.open(200, 40)
    assert times.reached(100) == 10
    assert times.reached(200) == 30
    assert times.reached(201) == 40
    assert times.of(100) == 40, "what the log holds whole is forgotten"
