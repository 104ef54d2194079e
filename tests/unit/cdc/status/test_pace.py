"""How fast a pipeline moves, from one look to the next."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.cli.status import Watching, watched
from cdc.process.clock import ManualClock
from cdc.process.errors import SinkError
from cdc.record.ports import Unknown
from cdc.record.progress import Mark, Watermark
from cdc.settings.model import LimitSettings
from cdc.status.facts import SinkFacts, StatusFacts
from cdc.status.pace import WINDOW_S, LiveLooks, Paces, StorePace
from cdc.status.rules import Status, status_of
from cdc.status.view_lines import ViewFacts, view_status
from tests.unit.cdc.checks.test_postgres import SERVER, SLOT
from tests.unit.cdc.status.test_rules import FACTS, NOW_MS, SOURCE

MB = 1024**2


def look(wal: int, log: int, cache: int | None, epoch: int = 1) -> Status:
    """A status with the three LSNs; None: the store does not answer."""
    watermark = Unknown(SinkError("away")) if cache is None else Watermark(epoch=epoch, lsn=cache)
    facts: StatusFacts = replace(
        FACTS, source=replace(SOURCE, server=replace(SERVER, wal_lsn=wal)), marks=[Mark(epoch, log, NOW_MS)],
        sinks=[SinkFacts(name="cache", kind="redis", watermark=watermark)],
    )  # fmt: skip
    return replace(status_of(facts, LimitSettings()), epoch=epoch)


def test_each_part_has_a_rate_and_a_store_an_end() -> None:
    """10 MB behind, and 3 MB a second nearer than before."""
    paces = Paces()
    assert paces.of(look(100 * MB, 100 * MB, 80 * MB), 5.0) is None
    pace = paces.of(look(104 * MB, 102 * MB, 94 * MB), 7.0)
    assert pace is not None
    assert (pace.source_bytes_s, pace.log_bytes_s, pace.seconds) == (2 * MB, MB, 2.0)
    assert (pace.stores["cache"].bytes_s, pace.stores["cache"].level_s) == (7 * MB, 2.0)
    slower = paces.of(look(404 * MB, 102 * MB, 94 * MB), 9.0)
    assert slower is not None and slower.stores["cache"].level_s is None
    assert slower.log_bytes_s == MB / 2


@pytest.mark.parametrize("cache", [None, 0, 70 * MB])
def test_a_store_that_is_away_or_made_anew_has_no_rate(cache: int | None) -> None:
    paces = Paces()
    paces.of(look(100 * MB, 100 * MB, 80 * MB), 0.0)
    pace = paces.of(look(101 * MB, 100 * MB, cache), 1.0)
    assert pace is not None
    assert (pace.stores, pace.source_bytes_s) == ({}, MB)


def test_a_store_that_has_been_filled_has_no_rate_yet() -> None:
    """While it is filled it shows LSN 0, which is no place in the WAL."""
    paces = Paces()
    paces.of(look(100 * MB, 100 * MB, 0), 0.0)
    pace = paces.of(look(101 * MB, 100 * MB, 80 * MB), 1.0)
    assert pace is not None and not pace.stores


def test_another_epoch_begins_anew() -> None:
    paces = Paces()
    paces.of(look(100 * MB, 100 * MB, 80 * MB), 0.0)
    assert paces.of(look(1 * MB, 1 * MB, 1 * MB, epoch=2), 1.0) is None
    pace = paces.of(look(2 * MB, 1 * MB, 1 * MB, epoch=2), 2.0)
    assert pace is not None and pace.source_bytes_s == MB


def test_while_the_log_is_silent_the_source_has_its_rate() -> None:
    """It writes on, and the slot that nobody reads gets nearer to its loss: that is when the rate is asked for."""
    paces, slot = Paces(), replace(SLOT, safe_wal_bytes=60 * MB)
    paces.of(replace(look(100 * MB, 100 * MB, 100 * MB), slot=replace(slot, retained_bytes=0)), 0.0)
    silent = replace(look(102 * MB, 100 * MB, 100 * MB), epoch=None, log_lsn=None)
    pace = paces.of(replace(silent, slot=replace(slot, retained_bytes=2 * MB)), 2.0)
    assert pace is not None
    assert (pace.source_bytes_s, pace.log_bytes_s, pace.slot_loss_s) == (MB, None, 60.0)
    assert paces.of(look(1 * MB, 1 * MB, 1 * MB, epoch=2), 4.0) is None


@given(st.lists(st.tuples(st.floats(0.5, 20), st.integers(0, 50)), min_size=2, max_size=30))
def test_rates_are_of_the_last_half_minute(steps: list[tuple[float, int]]) -> None:
    """As a plain recomputation over all looks says."""
    paces, at_s, wal, looks = Paces(), 0.0, 100 * MB, list[tuple[float, int]]()
    for seconds, grown in steps:
        at_s, wal = at_s + seconds, wal + grown
        looks.append((at_s, wal))
        pace = paces.of(look(wal, 1, 1), at_s)
        first = max((one for one in looks[:-1] if one[0] <= at_s - WINDOW_S), default=looks[0])
        if len(looks) == 1:
            assert pace is None
        else:
            assert pace is not None and pace.source_bytes_s == pytest.approx((wal - first[1]) / (at_s - first[0]))


def test_a_view_has_a_rate_as_a_store_has() -> None:
    def shown(lsn: int) -> Status:
        view = ViewFacts(name="slim", generation=1, epoch=1, lsn=lsn)
        return replace(look(100 * MB, 100 * MB, 0), views=[view_status(view, 100 * MB - lsn, 0.0)])

    paces = Paces()
    paces.of(shown(80 * MB), 0.0)
    pace = paces.of(shown(90 * MB), 5.0)
    assert pace is not None
    assert pace.views == {"slim": StorePace(bytes_s=2 * MB, level_s=5.0, nearer=True)}


@pytest.mark.parametrize(
    ("before", "now", "safe", "loss_s"),
    [(5 * MB, 7 * MB, 30 * MB, 30.0), (7 * MB, 5 * MB, MB, None), (5 * MB, 7 * MB, None, None), (5, 6, -4, 0.0)],
)
def test_a_slot_is_lost_when_its_wal_has_grown(before: int, now: int, safe: int | None, loss_s: float | None) -> None:
    def shown(retained: int) -> Status:
        slot = replace(SLOT, retained_bytes=retained, safe_wal_bytes=safe)
        return replace(look(MB, MB, MB), slot=slot)

    paces = Paces()
    paces.of(shown(before), 0.0)
    pace = paces.of(shown(now), 2.0)
    assert pace is not None and pace.slot_loss_s == loss_s


def test_looks_follow_each_other_at_their_interval(capsys: pytest.CaptureFixture[str]) -> None:
    clock, seen = ManualClock(), list[float]()

    def shown() -> Status:
        seen.append(clock.monotonic())
        clock.sleep(0.5)  # a look takes its time
        return look((100 + len(seen)) * MB, 100 * MB, 80 * MB)

    last = watched(shown, Watching(2.0, 3, as_json=True), clock)
    lines = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [round(at - seen[0], 3) for at in seen] == [0.0, 2.0, 4.0]
    assert [line["pace"] and line["pace"]["source_bytes_s"] for line in lines] == [None, MB / 2, MB / 2]
    assert last.wal_lsn == 103 * MB
    watched(shown, Watching(2.0, 2, as_json=False), clock)
    pages = capsys.readouterr().out
    assert pages.count("pipeline shop") == 2
    assert "per second, of the last 2 s: the source writes 512.0 kB, the log takes 0 B" in pages
    assert "cache takes 0 B, and comes no nearer" in pages
    assert max(map(len, pages.splitlines())) <= 80


def test_no_end_is_named_without_the_source_s_rate() -> None:
    """The source was away at the window's first look, and then at its newest."""
    paces = Paces()
    paces.of(replace(look(100 * MB, 100 * MB, 80 * MB), wal_lsn=None), 0.0)
    pace = paces.of(look(130 * MB, 100 * MB, 90 * MB), 10.0)
    assert pace is not None and pace.source_bytes_s is None
    assert pace.stores["cache"] == StorePace(bytes_s=MB, level_s=None, nearer=None)
    assert paces.of(look(140 * MB, 100 * MB, 99 * MB), 11.0).source_bytes_s == 10 * MB  # type: ignore[union-attr]
    silent = paces.of(replace(look(130 * MB, 100 * MB, 100 * MB), wal_lsn=None), 12.0)
    assert silent is not None and silent.source_bytes_s is None


@pytest.mark.parametrize("between", [0, None, 5 * MB])
def test_a_store_made_anew_has_no_rate_over_that(between: int | None) -> None:
    """It was emptied, away, or fell back: it never took up what lies between its two places."""
    paces = Paces()
    paces.of(look(100 * MB, 100 * MB, 10 * MB), 0.0)
    paces.of(look(100 * MB, 100 * MB, between), 10.0)
    if between:
        between = 90 * MB
        pace = paces.of(look(100 * MB, 100 * MB, 95 * MB), 20.0)
        assert pace is not None and pace.stores["cache"].bytes_s == 9 * MB
        return
    pace = paces.of(look(100 * MB, 100 * MB, 100 * MB), 28.0)
    assert pace is not None and not pace.stores
    pace = paces.of(look(100 * MB, 100 * MB, 100 * MB), 29.0)
    assert pace is not None and pace.stores["cache"].bytes_s == 0


def test_a_rate_is_between_the_answers_and_not_the_looks() -> None:
    """Kafka answers late in the second look, and Postgres, which is asked with it, early."""
    paces = Paces()
    paces.of(replace(look(100 * MB, 50 * MB, 30 * MB), answered_s={"source": 0.1, "log": 0.1, "store cache": 0.1}), 0.2)
    later = replace(look(102 * MB, 60 * MB, 34 * MB), answered_s={"source": 2.1, "log": 10.1, "store cache": 4.1})
    pace = paces.of(later, 10.2)
    assert pace is not None
    assert [pace.source_bytes_s, pace.log_bytes_s, pace.stores["cache"].bytes_s] == pytest.approx([MB] * 3)


def test_a_look_that_takes_long_does_not_raise_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    """The source writes 1 MB a second, and is read at the look's end."""
    clock, count = ManualClock(), 0
    begun = clock.monotonic()

    def shown() -> Status:
        nonlocal count
        count += 1
        clock.sleep(8.0 if count == 2 else 0.0)
        return look(round((100 + clock.monotonic() - begun) * MB), 100 * MB, 80 * MB)

    watched(shown, Watching(2.0, 2, as_json=True), clock)
    last = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["pace"]["source_bytes_s"] == pytest.approx(MB, rel=0.01)


@pytest.mark.parametrize(("calendar_s", "paced"), [(2, True), (6, True), (8 * 3600, False), (-3600, True)])
def test_no_rate_is_over_a_time_that_the_machine_slept(calendar_s: int, paced: bool) -> None:
    """Then the clock that never goes back stands still, and the calendar does not. One that is set back is no sleep."""
    looks = LiveLooks()
    looks.add(look(100 * MB, 100 * MB, 80 * MB), 100.0, 0)
    after = looks.add(look(30_000 * MB, 100 * MB, 80 * MB), 102.0, calendar_s * 1000)
    assert (after.pace is not None, after.slept) == (paced, not paced)
    assert looks.add(look(30_001 * MB, 100 * MB, 80 * MB), 104.0, calendar_s * 1000 + 2000).pace is not None
