"""What a store may claim: never an LSN that it does not show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.progress import Progress, Watermark
from cdc.record.source_lineage import SourceLineage
from spark.records.ports import SinkTopics
from spark.records.progress_history import ProgressHistory
from spark.stores.place_check import moves
from spark.stores.watermark import Claim, LogEnds, LogView, covers, distance, highest, lowest

T = "shop.public.orders"
TOPICS = SinkTopics(ids={T: "id1"}, partitions={T: 2}, compaction_lag_s=60.0)


def progress(lsn: int, first: int, second: int = 0, *, epoch: int = 1) -> Progress:
    return Progress(epoch=epoch, lsn=lsn, offsets={T: {0: first, 1: second}, "shop.public.other": {0: 10**6}})


def view(*records: Progress, ends: tuple[float, int, int] = (0.0, 0, 0)) -> LogView:
    seen = LogView()
    seen.note_progress(records)
    seen.note_ends(LogEnds(ends[0], {T: {0: ends[1], 1: ends[2]}}))
    return seen


def test_the_newest_progress_that_the_offsets_cover_counts() -> None:
    at = Claim({T: {0: 20, 1: 5}}, 1.0)
    log = view(progress(100, 10), progress(200, 20, 5), progress(300, 21, 5), ends=(0.5, 20, 5))
    mark = log.claim(None, at, TOPICS)
    assert (mark.epoch, mark.lsn, mark.offsets, mark.topic_ids) == (1, 200, at.offsets, {T: "id1"})


def test_topics_that_the_sink_does_not_read_do_not_hold_it() -> None:
    assert view(progress(100, 1), ends=(0.0, 1, 0)).claim(None, Claim({T: {0: 1, 1: 0}}, 0.0), TOPICS).lsn == 100


def test_h80_a_reader_behind_its_first_ends_claims_nothing() -> None:
    log = view(progress(100, 10), ends=(0.0, 1000, 0))
    assert log.claim(None, Claim({T: {0: 500, 1: 0}}, 1.0), TOPICS).lsn == 0
    assert log.claim(None, Claim({T: {0: 1000, 1: 0}}, 2.0), TOPICS).lsn == 100


@pytest.mark.parametrize(
    ("lsn", "offset", "owes"), [(0, 500, True), (50, 500, True), (50, 1000, True), (100, 1000, False)]
)
def test_h298_a_store_owes_an_lsn_that_is_proven(lsn: int, offset: int, owes: bool) -> None:
    """Or that may be proven in a moment, once the store has come to where the log was seen to end (H502)."""
    log = view(progress(100, 10), ends=(0.0, 1000, 0))
    assert log.owes(Watermark(epoch=1, lsn=lsn), Claim({T: {0: offset, 1: 0}}, 1.0), TOPICS) is owes


def test_h80_ends_seen_before_the_cleaners_wait_prove_nothing() -> None:
    """The cleaner may have removed what was still to be read, in favour of what came after those ends."""
    log = view(progress(100, 10), ends=(0.0, 1000, 0))
    late = Claim({T: {0: 1000, 1: 0}}, 61.0)
    assert log.claim(None, late, TOPICS).lsn == 0
    log.note_ends(LogEnds(30.0, {T: {0: 1000, 1: 0}}))
    assert log.claim(None, late, TOPICS).lsn == 100


def test_h80_a_store_that_was_away_keeps_its_lsn_until_caught_up() -> None:
    held = Watermark(epoch=1, lsn=50, offsets={T: {0: 5, 1: 0}})
    log = view(progress(60, 6), progress(100, 10), ends=(1000.0, 20, 0))
    assert log.claim(held, Claim({T: {0: 10, 1: 0}}, 1000.5), TOPICS).lsn == 50
    assert log.claim(held, Claim({T: {0: 20, 1: 0}}, 1001.0), TOPICS).lsn == 100


def test_without_any_look_at_the_ends_nothing_is_claimed() -> None:
    log = LogView()
    log.note_progress([progress(100, 0)])
    assert log.claim(None, Claim({T: {0: 9, 1: 9}}, 0.0), TOPICS).lsn == 0


def test_the_lsn_never_goes_back_and_an_epoch_is_above_every_lsn() -> None:
    held = Watermark(epoch=1, lsn=500, offsets={})
    at = Claim({T: {0: 10, 1: 0}}, 0.0)
    assert view(progress(100, 1), ends=(0.0, 10, 0)).claim(held, at, TOPICS).lsn == 500
    mark = view(progress(100, 1, epoch=2), ends=(0.0, 10, 0)).claim(held, at, TOPICS)
    assert (mark.epoch, mark.lsn) == (2, 100)


def test_a_long_history_grows_coarser_but_keeps_its_newest() -> None:
    history = ProgressHistory(progress(lsn, lsn) for lsn in range(1, 20_000))
    newest = history.newest_covered({T: {0: 19_999, 1: 0}}, [T])
    middle = history.newest_covered({T: {0: 10_000, 1: 0}}, [T])
    assert newest is not None and newest.lsn == 19_999
    assert middle is not None and 9_000 < middle.lsn <= 10_000


_OFFSETS = st.dictionaries(
    st.sampled_from("ab"), st.dictionaries(st.integers(0, 1), st.integers(0, 9), max_size=2), max_size=2
)


@given(_OFFSETS, _OFFSETS)
def test_offsets_are_ordered_as_sets_of_records_are(
    first: dict[str, dict[int, int]], second: dict[str, dict[int, int]]
) -> None:
    together = highest(first, second)
    assert covers(together, first) and covers(together, second)
    assert covers(first, lowest([first, second])) and covers(second, lowest([first, second]))
    assert covers(first, second) == (distance(first, second) == 0)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(0, 60))
def test_the_search_finds_what_a_walk_would(offsets: list[int], at: int) -> None:
    records = [progress(n + 1, offset) for n, offset in enumerate(sorted(offsets))]
    found = ProgressHistory(records).newest_covered({T: {0: at, 1: 0}}, [T])
    walked = [record.lsn for record in records if record.offsets[T][0] <= at]
    assert (found.lsn if found is not None else None) == (walked[-1] if walked else None)


_MOVING = st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=40)


@given(_MOVING, st.lists(st.integers(0, 60), min_size=4, max_size=4))
def test_moves_say_what_whole_records_would(steps: list[list[int]], at: list[int]) -> None:
    """Four partitions of two topics that move each for itself, one of them named only by later records."""
    sums = [[sum(step[n] for step in steps[: k + 1]) for n in range(4)] for k in range(len(steps))]
    late = len(steps) // 2

    def offsets(now: list[int], whole: bool = True) -> dict[str, dict[int, int]]:
        return {"a": {0: now[0], 1: now[1]}, "b": {0: now[2]} | ({1: now[3]} if whole else {})}

    records = [Progress(epoch=1, lsn=k + 1, offsets=offsets(now, k >= late)) for k, now in enumerate(sums)]
    found = ProgressHistory(records).newest_covered(offsets(at), ["a", "b"])
    walked = 0
    for record in records:
        if not covers(offsets(at), record.offsets):
            break
        walked = record.lsn
    assert (found.lsn if found is not None else 0) == walked


def test_a_history_of_many_tables_has_moves_not_whole_records() -> None:
    """200 tables of four partitions, one of which moves at a time: 800 figures in each of 4,096 records."""
    tables = [f"shop.public.t{n}" for n in range(200)]
    offsets = {table: dict.fromkeys(range(4), 0) for table in tables}
    history = ProgressHistory()
    for lsn in range(1, 4000):
        table = tables[lsn % len(tables)]
        offsets = offsets | {table: offsets[table] | {lsn % 4: lsn}}
        history.add([Progress(epoch=1, lsn=lsn, offsets=offsets)])
    assert history.moves < 800 + 4_000
    newest = history.newest_covered(offsets, tables)
    assert newest is not None and newest.lsn == 3999


def test_a_topic_made_anew_proves_nothing_by_what_it_was_before() -> None:
    history = ProgressHistory([progress(100, 10), progress(200, 20), progress(300, 1)])
    assert history.newest_covered({T: {0: 0, 1: 0}, "shop.public.other": {0: 10**6}}, [T]) is None
    found = history.newest_covered({T: {0: 1, 1: 0}}, [T])
    assert found is not None and found.lsn == 300


def test_a_claim_names_the_server_of_its_progress() -> None:
    first, second = SourceLineage("7", 1), SourceLineage("7", 2, ((1, 150),))
    at = Claim({T: {0: 20, 1: 5}}, 1.0)
    named = [replace(progress(100, 10), lineage=first), replace(progress(200, 20, 5), lineage=second)]
    mark = view(*named, ends=(0.5, 20, 5)).claim(None, at, TOPICS)
    assert (mark.lsn, mark.lineage) == (200, second)
    assert LogView().claim(mark, at, TOPICS).lineage == second, "as long as it says nothing new"
    older = view(named[0], ends=(0.5, 20, 5)).claim(mark, at, TOPICS)
    assert (older.lsn, older.lineage) == (200, second), "an older record says nothing of a higher LSN"
    unnamed = view(progress(300, 20, 5), ends=(0.5, 20, 5)).claim(mark, at, TOPICS)
    assert (unnamed.lsn, unnamed.lineage) == (300, None), "a promotion may lie in between"


def test_a_record_that_names_no_server_keeps_none() -> None:
    """As of an earlier version's capture behind a promotion."""
    named = replace(progress(100, 10), lineage=SourceLineage("7", 1))
    mark = view(named, progress(200, 20, 5), ends=(0.5, 20, 5)).claim(None, Claim({T: {0: 20, 1: 5}}, 1.0), TOPICS)
    assert (mark.lsn, mark.lineage) == (200, None)


def test_a_record_of_another_epoch_names_no_server() -> None:
    """LSNs start over with an epoch: a higher one of an older epoch is no later place."""
    second = SourceLineage("8", 1)
    before = Watermark(epoch=2, lsn=50, offsets={T: {0: 20, 1: 5}}, lineage=second)
    old = replace(progress(200, 20, 5), lineage=SourceLineage("7", 1))
    mark = view(old, ends=(0.5, 20, 5)).claim(before, Claim(before.offsets, 1.0), TOPICS)
    assert (mark.epoch, mark.lsn, mark.lineage) == (2, 50, second)


def test_a_store_without_lineage_gets_it_at_the_same_lsn() -> None:
    before = Watermark(epoch=1, lsn=200, offsets={T: {0: 20, 1: 5}})
    named = replace(progress(200, 20, 5), lineage=SourceLineage("7", 1))
    mark = view(named, ends=(0.5, 20, 5)).claim(before, Claim(before.offsets, 1.0), TOPICS)
    assert (mark.lsn, mark.lineage) == (200, SourceLineage("7", 1))
    assert moves(before, mark)
    assert not moves(mark, mark)


def test_h119_a_claim_names_the_tables_that_its_progress_omits() -> None:
    at, said = Claim({T: {0: 20, 1: 5}}, 1.0), {T: "orders is set aside", "shop.public.other": "another sink's"}
    aside = replace(progress(200, 20, 5), aside=said)
    log = view(progress(100, 10), aside, ends=(0.5, 20, 5))
    held = log.claim(None, at, TOPICS)
    assert (held.lsn, held.aside) == (200, {T: "orders is set aside"})
    # Without a proof of anything newer it stays as it was said.
    assert LogView().claim(held, at, TOPICS).aside == held.aside
    log.note_progress([progress(300, 20, 5)])
    later = log.claim(held, at, TOPICS)
    assert (later.lsn, later.aside) == (300, {})
