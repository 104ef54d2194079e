"""What an application that stops once its stores have caught up waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from cdc.process.clock import ManualClock
from cdc.record.progress import Hold, Offsets, Progress, Watermark
from spark.records.ports import SinkTopics
from spark.runner.application import CLAIM_S, HEAR_S, LastClaims
from spark.stores.watermark import LogEnds, LogView
from tests.unit.spark.records import TOPIC

TOPICS = SinkTopics(ids={TOPIC: "id1"}, partitions={TOPIC: 1}, compaction_lag_s=1e12)


@dataclass
class CaughtUp:
    """A store that shows all five records. Implements :class:`spark.runner.application.Claiming`."""

    lsn: int
    epoch: int = 1
    offsets: Offsets = field(default_factory=lambda: {TOPIC: {0: 5}})
    topics: SinkTopics = TOPICS
    held: Mapping[str, Hold] = field(default_factory=dict)
    name: str = "cache"

    @property
    def shown(self) -> Watermark:
        return Watermark(epoch=self.epoch, lsn=self.lsn, offsets=self.offsets, held=self.held)


def progress(lsn: int, *, epoch: int = 1) -> Progress:
    return Progress(epoch=epoch, lsn=lsn, offsets={TOPIC: {0: 5}})


def looked(*records: Progress) -> LogView:
    view = LogView()
    view.note_ends(LogEnds(0.0, {TOPIC: {0: 5}}))
    view.note_progress(records)
    return view


def test_h502_the_newest_progress_of_the_start_is_waited_for() -> None:
    """The store claimed what was heard so far, and the end came before the newest record was heard."""
    view, store = looked(progress(100)), CaughtUp(lsn=100)
    claims = LastClaims(view, (1, 200), ManualClock())
    assert claims.owed([store])
    view.note_progress([progress(200)])
    assert claims.owed([store]), "heard, and not claimed yet"
    store.lsn = 200
    assert not claims.owed([store])


def test_h502_a_log_that_says_nothing_more_ends_the_wait() -> None:
    clock = ManualClock()
    claims = LastClaims(looked(progress(100)), (1, 200), clock)
    clock.advance(10 * HEAR_S)
    assert claims.owed([CaughtUp(lsn=100)]), "counted from when the stores have caught up"
    clock.advance(HEAR_S - 1)
    assert claims.owed([CaughtUp(lsn=100)])
    clock.advance(2)
    assert not claims.owed([CaughtUp(lsn=100)])


def test_h298_a_claim_is_waited_for_no_longer_than_it_takes() -> None:
    """Counted from when its proof was heard. The log grew, and without a capture nothing may come."""
    clock, view = ManualClock(), looked(progress(100))
    view.note_ends(LogEnds(clock.monotonic(), {TOPIC: {0: 9}}))
    claims = LastClaims(view, (1, 200), clock)
    store = CaughtUp(lsn=100, topics=replace(TOPICS, compaction_lag_s=0.0))
    assert claims.owed([store])
    clock.advance(2 * CLAIM_S)
    view.note_progress([progress(200)])
    assert claims.owed([store])
    clock.advance(CLAIM_S + 1)
    assert not claims.owed([store])


def test_h560_a_store_that_is_slow_to_claim_is_waited_for() -> None:
    """Its claim was proven, and it answered no more for some seconds: the end came with the one of before."""
    clock, store = ManualClock(), CaughtUp(lsn=100)
    claims = LastClaims(looked(progress(100), progress(200)), (1, 200), clock)
    assert claims.owed([store])
    clock.advance(HEAR_S - 1)
    assert claims.owed([store])
    assert claims.lacking([store]) == {"cache": (1, 100)}
    clock.advance(2)
    assert not claims.owed([store]), "not for ever"


def test_h560_the_end_waits_for_a_broker_to_say_where_topics_end() -> None:
    clock, store = ManualClock(), CaughtUp(lsn=100, topics=replace(TOPICS, compaction_lag_s=1.0))
    view = looked(progress(200))
    claims = LastClaims(view, (1, 200), clock)
    assert claims.owed([store])
    clock.advance(HEAR_S - 1)
    assert claims.owed([store]), "the last look was before the store had caught up"
    view.note_ends(LogEnds(clock.monotonic(), {TOPIC: {0: 5}}))
    store.lsn = 200
    assert not claims.owed([store])
    assert claims.lacking([store]) == {}


def test_h560_what_comes_later_is_not_waited_for_as_long() -> None:
    """Beside a capture that goes on there is always more to claim."""
    clock, store = ManualClock(), CaughtUp(lsn=200)
    claims = LastClaims(looked(progress(200), progress(300)), (1, 200), clock)
    assert claims.owed([store])
    clock.advance(CLAIM_S + 1)
    assert not claims.owed([store])


def test_h561_a_table_that_is_held_no_more_is_named_no_more() -> None:
    """The store has read all of it, at the LSN that the other tables had reached before."""
    store = CaughtUp(lsn=100, held={TOPIC: Hold(table="public.orders")})
    claims = LastClaims(looked(progress(100)), (1, 100), ManualClock())
    assert claims.owed([store])
    store.held = {}
    assert not claims.owed([store])


def test_h561_a_table_that_is_held_is_not_waited_for() -> None:
    store = CaughtUp(lsn=100, held={"shop.public.other": Hold(table="public.other", reason="public.other: full")})
    assert not LastClaims(looked(progress(100)), (1, 100), ManualClock()).owed([store])


@pytest.mark.parametrize("newest", [None, (1, 100), (1, 90)])
def test_a_store_that_claims_all_is_not_waited_for(newest: tuple[int, int] | None) -> None:
    assert not LastClaims(looked(progress(100)), newest, ManualClock()).owed([CaughtUp(lsn=100)])


def test_h516_an_epoch_at_a_lower_lsn_is_waited_for() -> None:
    """The source was restored elsewhere, so that its LSNs are lower. The store claimed the epoch before."""
    view, store = looked(progress(900), progress(50, epoch=2)), CaughtUp(lsn=900)
    claims = LastClaims(view, (2, 50), ManualClock())
    assert claims.owed([store])
    store.epoch, store.lsn = 2, 50
    assert not claims.owed([store])
