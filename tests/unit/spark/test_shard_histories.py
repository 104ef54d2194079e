"""A store's claim over tables of several shards of capture."""

from __future__ import annotations

from dataclasses import replace

from cdc.progress import Progress, ShardMark, Watermark
from cdc.source_lineage import SourceLineage
from spark.ports import SinkTopics
from spark.progress_history import ProgressHistory
from spark.watermark import Beat, Claim, LogEnds, LogView

A, B, MORE = "shop.public.a", "shop.public.b", "shop.public.more"
HERE = SourceLineage("7301", 1)
BOTH = SinkTopics(
    ids={A: "ida", B: "idb"}, partitions={A: 1, B: 1}, compaction_lag_s=60.0, shards={A: "first", B: "second"}
)
AT = Claim({A: {0: 5}, B: {0: 5}}, 1.0)


def progress(shard: str, lsn: int, end: int = 5, *, epoch: int = 1, heartbeat_ms: int = 0) -> Progress:
    topic = A if shard == "first" else B
    return Progress(
        epoch=epoch, lsn=lsn, offsets={topic: {0: end}}, lineage=HERE, shard=shard, heartbeat_ms=heartbeat_ms
    )


def view(*records: Progress) -> LogView:
    log = LogView()
    log.note_progress(records)
    log.note_ends(LogEnds(1.0, AT.offsets))
    return log


def test_h400_a_store_claims_the_least_of_its_shards() -> None:
    mark = view(progress("first", 80), progress("second", 24)).claim(None, AT, BOTH)
    assert (mark.epoch, mark.lsn, mark.lineage) == (1, 24, HERE)
    assert {shard: one.lsn for shard, one in mark.shards.items()} == {"first": 80, "second": 24}


def test_h400_nothing_is_claimed_while_a_shard_is_away() -> None:
    """Of the shard that is there, each table may be claimed."""
    log = view(progress("first", 80))
    mark = log.claim(None, AT, BOTH)
    assert (mark.lsn, mark.lineage) == (0, None)
    assert mark.shards == {"first": ShardMark(epoch=1, lsn=80, lineage=HERE, topics=(A,))}
    log.note_progress([progress("first", 96)])
    again = log.claim(mark, AT, BOTH)
    assert (again.lsn, again.shards["first"].lsn) == (0, 96)


def test_h400_a_record_not_covered_proves_nothing_of_its_shard() -> None:
    log = view(progress("first", 80), progress("second", 24), progress("second", 96, end=6))
    mark = log.claim(None, AT, BOTH)
    assert (mark.lsn, mark.shards["second"].lsn) == (24, 24)
    assert log.claim(mark, Claim({A: {0: 5}, B: {0: 6}}, 1.0), BOTH).lsn == 80


def test_h403_a_shard_in_a_new_epoch_lets_no_lsn_rise() -> None:
    log = view(progress("first", 80), progress("second", 24))
    before = log.claim(None, AT, BOTH)
    log.note_progress([progress("second", 16, epoch=2), progress("first", 96)])
    mark = log.claim(before, AT, BOTH)
    assert (mark.epoch, mark.lsn) == (1, 24)
    assert mark.shards["second"] == ShardMark(epoch=2, lsn=16, lineage=HERE, topics=(B,))


def test_a_sink_of_one_shards_tables_waits_for_no_other() -> None:
    own = BOTH.without([B])
    assert own.shards == {A: "first"}
    mark = view(progress("first", 80)).claim(None, Claim({A: {0: 5}}, 1.0), own)
    assert (mark.lsn, set(mark.shards)) == (80, {"first"})


def test_a_table_that_comes_takes_away_its_shards_mark_alone() -> None:
    log = view(progress("first", 80), progress("second", 24))
    before = log.claim(None, AT, BOTH)
    more = replace(BOTH, ids={**BOTH.ids, MORE: "idm"}, shards={**BOTH.shards, MORE: "second"})
    mark = log.claim(before, AT, more)
    assert (mark.lsn, {shard: one.lsn for shard, one in mark.shards.items()}) == (0, {"first": 80})


def test_h402_a_table_that_moved_is_not_claimed_as_before() -> None:
    """B was of the second shard, and the first one takes it over in a new epoch."""
    log = view(progress("first", 80), progress("second", 24))
    before = log.claim(None, AT, BOTH)
    moved = replace(BOTH, shards={A: "first", B: "first"})
    held = log.claim(before, AT, moved)
    assert (held.lsn, held.shards) == (24, {}), "no record of the first shard names it yet"
    log.note_progress([replace(progress("first", 96, epoch=2), offsets={A: {0: 5}, B: {0: 6}})])
    assert log.claim(held, AT, moved).shards == {}, "and the one that does is not covered"
    mark = log.claim(held, Claim({A: {0: 5}, B: {0: 6}}, 1.0), moved)
    assert mark.shards == {"first": ShardMark(epoch=2, lsn=96, lineage=HERE, topics=(A, B))}
    assert (mark.epoch, mark.lsn) == (2, 96)


def test_h437_a_table_that_came_back_is_not_claimed_early() -> None:
    """B goes from the second shard to the first and back, while the store stands where the second gave it up. What the
    second one said without it proves nothing of it: the first one's changes lie between."""
    log = view(progress("first", 80), progress("second", 24))
    before = log.claim(None, AT, BOTH)
    away = [replace(progress("second", lsn), offsets={MORE: {0: 1}}) for lsn in (200, 400)]
    log.note_progress([*away, replace(progress("first", 300, epoch=2), offsets={A: {0: 5}, B: {0: 8}})])
    back = replace(progress("second", 500, epoch=3), offsets={MORE: {0: 1}, B: {0: 9}})
    log.note_progress([back, replace(progress("first", 600, epoch=2), offsets={A: {0: 5}})])
    mark = log.claim(before, AT, BOTH)
    assert (mark.lsn, mark.shards["second"].lsn) == (24, 24), "it lacks all that the first one wrote of B"
    caught_up = log.claim(mark, Claim({A: {0: 5}, B: {0: 9}}, 1.0), BOTH)
    assert (caught_up.shards["second"].epoch, caught_up.shards["second"].lsn) == (3, 500)


def test_h437_a_gap_stays_one_when_records_are_thinned() -> None:
    """The older the coarser: what is left of a gap still proves nothing of the topic that it did not name."""
    history = ProgressHistory([replace(progress("second", 8), shard="")])
    history.add(Progress(epoch=1, lsn=16 + lsn, offsets={MORE: {0: 1}}) for lsn in range(5000))
    history.add([Progress(epoch=3, lsn=1 << 20, offsets={MORE: {0: 1}, B: {0: 9}})])
    history.add(Progress(epoch=3, lsn=(1 << 20) + lsn, offsets={MORE: {0: 1}, B: {0: 9}}) for lsn in range(5000))
    assert history.newest_covered({B: {0: 5}}, [B], named=True) is None
    proof = history.newest_covered({B: {0: 9}}, [B], named=True)
    assert proof is not None
    assert proof.lsn == (1 << 20) + 4999


def test_h402_a_store_that_knows_the_former_shard_claims_no_more() -> None:
    """Its sink runs on with the settings of before, while the second shard gives B up and goes on."""
    log = view(progress("first", 80), progress("second", 24))
    before = log.claim(None, AT, BOTH)
    log.note_progress([replace(progress("second", 200), offsets={MORE: {0: 1}}), progress("first", 300)])
    mark = log.claim(before, AT, BOTH)
    assert (mark.lsn, mark.shards["second"].lsn, mark.shards["first"].lsn) == (24, 24, 300)


def test_h408_a_table_set_aside_is_told_by_its_own_shard() -> None:
    aside = replace(progress("second", 24), aside={B: "b is set aside"})
    mark = view(progress("first", 80), aside).claim(None, AT, BOTH)
    assert mark.aside == {B: "b is set aside"}
    alone = view(aside)
    assert alone.claim(None, AT, BOTH).aside == mark.aside, "whatever the first shard proves"
    alone.note_progress([progress("second", 48)])
    assert alone.claim(mark, AT, BOTH).aside == {}, "it is read again"
    late = view(progress("first", 96))
    assert late.claim(mark, AT, BOTH).aside == mark.aside, "the second one proves nothing new of it"


def test_the_heartbeat_is_that_of_the_shard_that_reaches_least() -> None:
    log = view(progress("first", 80, heartbeat_ms=100), progress("second", 24, heartbeat_ms=90))
    assert log.beat_of(BOTH) == Beat(epoch=1, lsn=24, at_ms=90)
    assert log.beat_of(BOTH.without([B])) == Beat(epoch=1, lsn=80, at_ms=100), "of its own shards alone"
    log.note_progress([progress("second", 32, epoch=2, heartbeat_ms=95)])
    assert log.beat_of(BOTH) == Beat(epoch=1, lsn=32, at_ms=95), "in the least epoch"
    assert view(progress("first", 80, heartbeat_ms=100)).beat_of(BOTH) is None


def test_a_pipeline_without_shards_has_no_vector() -> None:
    log = LogView()
    log.note_progress([Progress(epoch=1, lsn=8, offsets={A: {0: 5}})])
    log.note_ends(LogEnds(1.0, AT.offsets))
    mark = log.claim(None, Claim({A: {0: 5}}, 1.0), replace(BOTH.without([B]), shards={}))
    assert mark == Watermark(epoch=1, lsn=8, offsets={A: {0: 5}}, topic_ids={A: "ida"})


def test_h100_a_store_that_holds_all_its_tables_goes_on() -> None:
    """Without shards, as before there were any: its watermark says which tables it holds."""
    log = LogView()
    log.note_progress([Progress(epoch=1, lsn=8, offsets={A: {0: 5}})])
    log.note_ends(LogEnds(1.0, AT.offsets))
    assert log.claim(None, Claim({}, 1.0), SinkTopics(compaction_lag_s=60.0)).lsn == 8
    assert view(progress("first", 80)).claim(None, Claim({}, 1.0), BOTH.without([A, B])).lsn == 0
