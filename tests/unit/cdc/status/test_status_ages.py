"""How far behind a log, a store and a view are said to be, and from where on it is a fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import SourceError
from cdc.record.ports import Unknown
from cdc.record.progress import Mark, Watermark
from cdc.record.server_facts import SlotFacts
from cdc.record.state import SnapshotState
from cdc.settings.model import LimitSettings
from cdc.status.facts import SinkFacts, SourceState, StatusFacts
from cdc.status.rules import status_of
from cdc.status.view_lines import ViewFacts, age, size
from tests.unit.cdc.checks.test_postgres import KNOWN, SERVER, SLOT

NOW_MS = 1_000_000
HEAD = 10 * 1024**3
QUIET = 65_536
LIMITS = LimitSettings()
SOURCE = SourceState(
    address="127.0.0.1:5432/shop", server=replace(SERVER, wal_lsn=HEAD), slot=replace(SLOT, active_pid=7)
)
FACTS = StatusFacts(
    name="shop",
    slot_name="cdc_shop",
    now_ms=NOW_MS,
    source=SOURCE,
    slot=KNOWN,
    snapshot=SnapshotState(epoch=1, state="complete", consistent_point=1, last_cut_lsn=0, tables=["a"], rows=9),
    marks=[Mark(1, 400, NOW_MS - 9000), Mark(1, HEAD - 50, NOW_MS - 250)],
    sinks=[SinkFacts(name="cache", kind="redis", watermark=Watermark(epoch=1, lsn=HEAD - 50))],
)


def store_at(lsn: int, *marks: Mark) -> StatusFacts:
    store = SinkFacts(name="cache", kind="redis", watermark=Watermark(epoch=1, lsn=lsn))
    return replace(FACTS, sinks=[store], marks=marks or FACTS.marks)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (None, "?"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 kB"),
        (1024**2 - 1024, "1023.0 kB"),
        (1024**2, "1.0 MB"),
        (1024**3, "1.0 GB"),
        (5 * 1024**3 // 2, "2.5 GB"),
        (3000 * 1024**3, "3000.0 GB"),
    ],
)
def test_bytes_are_said_in_the_unit_that_fits(count: int | None, said: str) -> None:
    assert size(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "?"),
        (0.0, "0.0 s"),
        (119.5, "119.5 s"),
        (120.0, "2 min"),
        (300.0, "5 min"),
        (7199.5, "120 min"),
        (7200.0, "2 h"),
        (36_000.0, "10 h"),
    ],
)
def test_ages_are_said_in_seconds_minutes_and_hours(seconds: float | None, said: str) -> None:
    assert age(seconds) == said


@pytest.mark.parametrize(
    ("lag_bytes", "lag_s"),
    [(0, 0.0), (QUIET - 1, 0.0), (QUIET, 0.0), (QUIET + 1, 0.25), (10 * QUIET, 0.25)],
)
def test_a_quiet_source_that_is_followed_has_no_age(lag_bytes: int, lag_s: float) -> None:
    """It writes a little WAL by itself: 64 kB of it are no lag in seconds."""
    shown = status_of(replace(FACTS, marks=[Mark(1, 1, 1), Mark(1, HEAD - lag_bytes, NOW_MS - 250)]), LIMITS)
    assert (shown.lag_bytes, shown.lag_s) == (lag_bytes, lag_s)


@pytest.mark.parametrize("slot", [SLOT, None])
def test_a_log_that_nobody_feeds_is_as_old_as_its_end(slot: SlotFacts | None) -> None:
    assert status_of(replace(FACTS, source=replace(SOURCE, slot=slot)), LIMITS).lag_s == 0.25


def test_no_age_is_said_before_the_log_has_an_end() -> None:
    """The bytes are known from the slot. Nothing says when the log was last fed."""
    begun = replace(FACTS, marks=(), slot=replace(KNOWN, consistent_point=HEAD - 7))
    assert (status_of(begun, LIMITS).lag_bytes, status_of(begun, LIMITS).lag_s) == (7, None)
    assert [store.lag_s for store in status_of(begun, LIMITS).sinks] == [None]
    away = replace(FACTS, source=Unknown(SourceError("no answer")))
    assert (status_of(away, LIMITS).lag_bytes, status_of(away, LIMITS).lag_s) == (None, None)


def test_two_clocks_that_differ_make_no_age_below_nothing() -> None:
    shown = status_of(replace(FACTS, marks=[Mark(1, 1, 1), Mark(1, 2, NOW_MS + 500)]), LIMITS)
    assert shown.lag_s == 0.0


def test_the_log_is_measured_where_the_slot_is_not_noted() -> None:
    shown = status_of(replace(FACTS, slot=None), LIMITS)
    assert (shown.epoch, shown.log_lsn, shown.lag_bytes) == (None, HEAD - 50, 50)


@pytest.mark.parametrize(("lsn", "lag_bytes"), [(HEAD - 1, 1), (HEAD, 0), (HEAD + 9, 0), (1, HEAD - 1)])
def test_a_store_is_never_less_than_nothing_behind(lsn: int, lag_bytes: int) -> None:
    """The source was asked before the store, which may have gone on."""
    (store,) = status_of(store_at(lsn), LIMITS).sinks
    assert store.lag_bytes == lag_bytes
    assert store.lag_s is not None


def test_only_past_its_limit_is_a_store_late() -> None:
    def said(waited_ms: int) -> tuple[str, ...]:
        behind = Mark(1, 500, NOW_MS - waited_ms)
        return tuple(status_of(store_at(400, behind, FACTS.marks[-1]), LIMITS).passed)

    assert said(60_000) == ()
    assert said(60_100) == ("cache is > 60.1 s behind; the limit is 60.0 s",)
    assert said(600_000) == ("cache is > 10 min behind; the limit is 60.0 s",)


def test_only_past_its_limit_is_the_log_behind() -> None:
    def said(lag_bytes: int) -> tuple[str, ...]:
        return tuple(status_of(store_at(HEAD, Mark(1, HEAD - lag_bytes, NOW_MS)), LIMITS).passed)

    assert said(256 * 1024**2) == ()
    assert said(257 * 1024**2) == ("the log is 257.0 MB behind the source; the limit is 256MB",)
    assert said(3 * 1024**3) == ("the log is 3.0 GB behind the source; the limit is 256MB",)


def test_a_view_of_another_epoch_has_no_distance_in_wal() -> None:
    view = ViewFacts(name="search", generation=1, epoch=1, lsn=HEAD - 50)
    for slot, lag_bytes in ((KNOWN, 50), (None, 50), (replace(KNOWN, epoch=2), None)):
        (shown,) = status_of(replace(FACTS, slot=slot, views=[view]), LIMITS).views
        assert shown.lag_bytes == lag_bytes


def test_a_held_view_that_shows_nothing_is_as_old_as_the_log() -> None:
    held = ViewFacts(name="search", generation=1, held="public.a is set aside")
    (shown,) = status_of(replace(FACTS, views=[held]), LIMITS).views
    assert (shown.lag_bytes, shown.lag_s) == (None, 9.0)
