"""The least of several shards, the vector that a store keeps of them, and what stands in topics and stores of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import DamagedError
from cdc.progress import Hold, Progress, ShardMark, Watermark
from cdc.shard_progress import as_shard, grown, least, newest, shard_of_topic
from cdc.shares import standing_of_shares
from cdc.source_lineage import SourceLineage
from cdc.tokens import Standing, Token, standing

HERE = SourceLineage("7301", 2, ((1, 40),))
OFFSETS = {"shop.public.orders": {0: 7}}
_MARKS = st.builds(ShardMark, epoch=st.integers(1, 3), lsn=st.integers(0, 20), lineage=st.sampled_from([None, HERE]))


def test_h113_a_pipeline_without_shards_writes_what_it_wrote() -> None:
    progress = Progress(epoch=2, lsn=8, offsets=OFFSETS, lineage=SourceLineage("7301", 1))
    assert progress.to_json() == (
        b'{"format":1,"epoch":2,"lsn":8,"offsets":{"shop.public.orders":{"0":7}},"numbering":2,'
        b'"lineage":{"system":"7301","timeline":1}}'
    )
    mark = Watermark(epoch=2, lsn=8, offsets=OFFSETS, topic_ids={"shop.public.orders": "id1"}, level_ms=4)
    assert mark.to_json() == (
        b'{"format":1,"epoch":2,"lsn":8,"offsets":{"shop.public.orders":{"0":7}},'
        b'"topic_ids":{"shop.public.orders":"id1"},"level_ms":4}'
    )
    assert Watermark.from_json(mark.to_json()).shards == {}


def test_a_record_of_a_shard_is_that_of_a_pipeline_without() -> None:
    """The topic says whose it is: a record has no member for it."""
    assert Progress(epoch=1, lsn=8, shard="sales").to_json() == Progress(epoch=1, lsn=8).to_json()


def test_a_watermark_reads_back_with_its_vector() -> None:
    marks = {"sales": ShardMark(epoch=1, lsn=90, lineage=HERE, topics=("a", "b")), "rest": ShardMark(epoch=1, lsn=8)}
    mark = Watermark(epoch=1, lsn=8, offsets=OFFSETS, shards=marks)
    assert Watermark.from_json(mark.to_json()) == mark


@pytest.mark.parametrize("member", ['{"epoch":1}', '{"epoch":1,"lsn":-1}', '{"epoch":"1","lsn":2}', "7"])
def test_h159_a_vector_that_nobody_writes_is_refused(member: str) -> None:
    with pytest.raises(DamagedError):
        Watermark.from_json(b'{"epoch":1,"lsn":1,"shards":{"a":%b}}' % member.encode())


@given(st.lists(_MARKS, min_size=1, max_size=5))
def test_h400_the_least_holds_for_each_shard(marks: list[ShardMark]) -> None:
    found = least(marks)
    assert found is not None
    assert all(found.epoch <= one.epoch and found.lsn <= one.lsn for one in marks)
    assert found.lsn in {one.lsn for one in marks}
    assert found.lineage is None or {one.lineage for one in marks} == {found.lineage}


def test_h403_a_new_epoch_of_one_shard_hides_no_lower_lsn() -> None:
    """By pairs (1, 90) is the least, and the shard of the second epoch shows no more than 50."""
    found = least([ShardMark(epoch=2, lsn=50), ShardMark(epoch=1, lsn=90)])
    assert found is not None
    assert (found.epoch, found.lsn) == (1, 50)


def test_h400_lsns_of_two_servers_have_no_least() -> None:
    other = ShardMark(epoch=2, lsn=5, lineage=SourceLineage("9", 1))
    assert least([ShardMark(epoch=1, lsn=90, lineage=HERE), other]) is None
    assert least([]) is None


def test_h400_while_one_shard_is_not_promoted_no_token_is_shown() -> None:
    """A token that names its server is judged by the lineage, and none is that of both."""
    ahead = ShardMark(epoch=1, lsn=90, lineage=HERE)
    found = least([ahead, ShardMark(epoch=1, lsn=60, lineage=SourceLineage("7301", 1))])
    assert found == ShardMark(epoch=1, lsn=60)
    behind = ShardMark(epoch=1, lsn=60, lineage=SourceLineage("7301", 1))
    marks = {"sales": ahead, "old": behind}
    store = Watermark(epoch=found.epoch, lsn=found.lsn, lineage=found.lineage, shards=marks)
    token = Token.parse("7301/2:0/32")
    assert standing(token, store) is Standing.PROMOTION
    sales = as_shard(store, "sales")
    assert sales is not None
    assert standing(token, sales) is Standing.SHOWN
    assert as_shard(store, "rest") is None


_TOPICS = {"a": ("t",), "b": ("u", "v")}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), _MARKS)), max_size=8))
def test_h400_no_mark_of_the_vector_goes_back(steps: list[tuple[str, ShardMark | None]]) -> None:
    vector: dict[str, ShardMark] = {}
    for shard, proven in steps:
        before, vector = vector, grown(vector, {shard: proven}, _TOPICS)
        for name, mark in before.items():
            assert (vector[name].epoch, vector[name].lsn) >= (mark.epoch, mark.lsn)
        if proven is not None:
            assert (vector[shard].epoch, vector[shard].lsn) >= (proven.epoch, proven.lsn)
            assert vector[shard].topics == _TOPICS[shard]
    assert grown(vector, {}, {}) == {}, "a shard whose tables the store has no more stays out"


def test_h402_a_mark_holds_for_the_tables_that_it_spoke_of() -> None:
    before = {"a": ShardMark(epoch=1, lsn=90, topics=("t", "u"))}
    assert grown(before, {}, {"a": ("t",)}) == {"a": ShardMark(epoch=1, lsn=90, topics=("t",))}
    assert grown(before, {"a": None}, {"a": ("t", "v")}) == {}
    proven = ShardMark(epoch=2, lsn=8)
    assert grown(before, {"a": proven}, {"a": ("t", "v")})["a"].lsn == 8
    store = Watermark(epoch=1, lsn=8, shards=before)
    assert (shard_of_topic(store, "u"), shard_of_topic(store, "v")) == ("a", "")


def test_of_two_marks_the_one_that_says_more_counts() -> None:
    low, high = ShardMark(epoch=1, lsn=90), ShardMark(epoch=2, lsn=50)
    assert newest(low, high) == newest(high, low) == high
    assert newest(None, low) == newest(low, None) == low
    named = ShardMark(epoch=1, lsn=90, lineage=HERE)
    assert newest(low, named) == named


def test_h408_a_store_is_that_of_its_shards_part_by_part() -> None:
    marks = {
        "a": ShardMark(epoch=1, lsn=90, lineage=HERE, topics=("t",), epoch_id="x"),
        "b": ShardMark(epoch=2, lsn=50, lineage=HERE, topics=("u",), epoch_id="y"),
    }
    ids, aside = {"t": "it", "u": "iu"}, {"t": "t is set aside"}
    store = Watermark(epoch=1, lsn=50, lineage=HERE, topic_ids=ids, offsets={"t": {0: 7}}, aside=aside, shards=marks)
    parts = store.by_shard()
    assert [(shard, one.epoch, one.lsn, one.epoch_id) for shard, one in parts.items()] == [
        ("a", 1, 90, "x"),
        ("b", 2, 50, "y"),
    ]
    assert (parts["a"].topic_ids, parts["a"].offsets, parts["a"].aside) == ({"t": "it"}, {"t": {0: 7}}, aside)
    assert (parts["b"].topic_ids, parts["b"].offsets, parts["b"].aside) == ({"u": "iu"}, {}, {})
    assert parts["b"].parts == (parts["b"],)
    assert Watermark.from_json(store.to_json()) == store


def test_h408_what_no_mark_speaks_of_shows_nothing() -> None:
    marks = {"a": ShardMark(epoch=2, lsn=90, lineage=HERE, topics=("t",))}
    store = Watermark(epoch=1, lsn=0, topic_ids={"t": "it", "u": "iu"}, shards=marks)
    left = store.by_shard()[""]
    assert (left.lsn, left.topic_ids, left.shards) == (0, {"u": "iu"}, {})
    assert standing(Token.parse("7301/2:0/32"), store) is Standing.BEHIND
    held = replace(store, held={"u": Hold(table="public.u", reason="no column takes it")})
    assert list(held.by_shard()) == ["a"], "a hold is told by its name, and no token waits for it"
    plain = Watermark(epoch=1, lsn=8)
    assert (plain.by_shard(), plain.parts) == ({"": plain}, (plain,))


def test_why_a_store_shows_no_more_is_told_by_its_shard() -> None:
    marks = {"a": ShardMark(epoch=1, lsn=90, topics=("t",)), "b": ShardMark(epoch=1, lsn=50, topics=("u",))}
    store = Watermark(epoch=1, lsn=50, topic_ids={"t": "it", "u": "iu"}, shards=marks)
    assert standing_of_shares(store) == " (the shard of capture b is the last)"
    more = replace(store, topic_ids={**store.topic_ids, "v": "iv"})
    assert standing_of_shares(more) == " (a shard of capture has not begun)"
