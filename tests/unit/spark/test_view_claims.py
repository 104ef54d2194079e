"""A store's LSN is the least of capture's and of each of its views', and no view stops the tables for long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.clock import ManualClock
from cdc.record.progress import Progress, Watermark
from spark.records.ports import SinkTopics
from spark.stores.holds import claim
from spark.stores.view_claims import ViewClaims
from spark.stores.watermark import Claim, LogEnds, LogView

T, V = "shop.public.orders", "shop.view.order_search.1"
TOPICS = SinkTopics(ids={T: "1", V: "2"}, partitions={T: 1, V: 1}, compaction_lag_s=1e6, views={V: "view.order_search"})
LEVEL = {T: {0: 10}, V: {0: 5}}


def captured(lsn: int, end: int = 10, epoch: int = 1) -> Progress:
    return Progress(epoch=epoch, lsn=lsn, offsets={T: {0: end}})


def kept(lsn: int, end: int = 5, epoch: int = 1) -> Progress:
    return Progress(epoch=epoch, lsn=lsn, offsets={V: {0: end}})


class Bench:
    """A log with a table and a view, and a store that read all of it."""

    def __init__(self, *, judges: bool = False) -> None:
        self.clock = ManualClock()
        self.log = LogView(judges=judges, views=ViewClaims(self.clock, 60.0))
        self.log.note_ends(LogEnds(0.0, LEVEL))
        self.mark: Watermark | None = None

    def claims(self) -> Watermark:
        self.mark = claim(self.log, self.mark, Claim(LEVEL, 0.0), TOPICS, {})
        return self.mark

    def reason(self) -> str:
        assert self.mark is not None
        hold = self.mark.held.get(V)
        return hold.reason if hold is not None else ""


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_store_claims_the_least_of_tables_and_views(bench: Bench) -> None:
    bench.log.note_progress([captured(300)])
    bench.log.note_views([kept(200)])
    assert (bench.claims().lsn, bench.reason()) == (200, "")
    bench.log.note_views([kept(300)])
    assert bench.claims().lsn == 300


def test_what_the_store_has_not_read_of_a_view_is_not_claimed(bench: Bench) -> None:
    bench.log.note_progress([captured(300)])
    bench.log.note_views([kept(200), kept(300, 6)])
    assert bench.claims().lsn == 200


def test_a_sink_without_views_is_not_held_by_one(bench: Bench) -> None:
    bench.log.note_progress([captured(300)])
    bench.log.note_views([kept(200)])
    assert claim(bench.log, None, Claim({T: {0: 10}}, 0.0), TOPICS.without({V}), {}).lsn == 300


def test_a_view_of_an_older_epoch_holds_the_claim(bench: Bench) -> None:
    bench.log.note_progress([captured(900), captured(100, epoch=2)])
    bench.log.note_views([kept(900)])
    mark = bench.claims()
    assert (mark.epoch, mark.lsn) == (1, 900)
    bench.log.note_views([kept(100, epoch=2)])
    mark = bench.claims()
    assert (mark.epoch, mark.lsn) == (2, 100)


def test_a_view_that_is_not_built_yet_is_named_and_waits_alone(bench: Bench) -> None:
    bench.log.note_progress([captured(300)])
    assert (bench.claims().lsn, bench.reason()) == (300, "the view order_search is not built yet")
    assert bench.mark is not None
    assert bench.mark.offsets == LEVEL


def test_a_view_behind_its_limit_lets_the_tables_go_on(bench: Bench) -> None:
    bench.log.note_progress([captured(100)])
    bench.log.note_views([kept(100)])
    assert bench.claims().lsn == 100
    bench.log.note_progress([captured(200)])
    bench.clock.advance(59)
    bench.log.note_progress([captured(300)])
    assert (bench.claims().lsn, bench.reason()) == (100, "")
    bench.clock.advance(2)
    assert (bench.claims().lsn, bench.reason()) == (300, "the view order_search is more than 60 s behind")


def test_a_view_that_claims_nothing_makes_no_store_too_old(bench: Bench) -> None:
    """A document may be parked for longer than deletes are kept. The store has read them, whatever is claimed."""
    bench.log.note_progress([captured(100)])
    bench.log.note_views([kept(100)])
    first = bench.log.claim(None, Claim(LEVEL, 0.0), TOPICS, 1_000)
    bench.log.note_progress([captured(300)])
    later = bench.log.claim(first, Claim(LEVEL, 0.0), TOPICS, 90_000_000)
    assert (later.lsn, later.level_ms) == (100, 90_000_000)


def test_v15_a_view_that_is_held_is_named_with_the_reason(bench: Bench) -> None:
    bench.log.note_progress([captured(300)])
    bench.log.note_views([kept(200), replace(kept(200), aside={V: "public.t is set aside"})])
    assert (bench.claims().lsn, bench.reason()) == (300, "the view order_search is held: public.t is set aside")
    bench.log.note_views([kept(300)])
    assert (bench.claims().lsn, bench.reason()) == (300, "")


def test_a_named_view_is_named_until_it_has_the_lsn(bench: Bench) -> None:
    bench.log.note_progress([captured(300)])
    bench.claims()
    bench.log.note_views([kept(250)])
    assert (bench.claims().lsn, bench.reason()) == (300, "the view order_search is being brought up to date")
    bench.log.note_progress([captured(400)])
    assert (bench.claims().lsn, bench.reason()) == (300, "the view order_search is being brought up to date")
    bench.log.note_views([kept(350)])
    assert (bench.claims().lsn, bench.reason()) == (350, "")


def test_a_view_that_a_sink_takes_later_takes_no_lsn_away(bench: Bench) -> None:
    bench.log.note_progress([captured(300)])
    bench.mark = claim(bench.log, None, Claim({T: {0: 10}}, 0.0), TOPICS.without({V}), {})
    bench.log.note_views([kept(200)])
    assert bench.claims().lsn == 300
    assert bench.reason() == "the view order_search is being brought up to date"
    bench.log.note_views([kept(300)])
    assert (bench.claims().lsn, bench.reason()) == (300, "")


def test_v1_h158_no_record_is_judged_by_what_a_view_claims() -> None:
    """A document stands at the fence at which it was made. While keys wait the view claims less."""
    bench = Bench(judges=True)
    bench.log.note_progress([captured(300)])
    bench.log.note_views([kept(200)])
    reach = bench.log.reach
    assert reach is not None
    assert reach.progress == captured(300)
    assert not reach.covers(V, 0, 0)


def test_two_generations_of_a_view_prove_nothing_of_each_other(bench: Bench) -> None:
    bench.log.note_progress([captured(300)])
    older = replace(kept(300), offsets={"shop.view.order_search.0": {0: 1}})
    bench.log.note_views([older])
    bench.claims()
    assert bench.reason() == "the view order_search is not built yet"
