"""Where a store goes back to, when one of several shards of capture began a new epoch."""

from __future__ import annotations

from cdc.epochs import EpochsState
from cdc.progress import ShardMark, Watermark
from cdc.shard_takeover import joined
from spark.sweeps import begun_behind

SECOND = EpochsState().begin({"a": {0: 7}})
SHARDS = {"a": "first", "b": "second"}


def mark(**epochs: int) -> Watermark:
    topics = {"first": ("a",), "second": ("b",)}
    marks = {shard: ShardMark(epoch=epoch, lsn=8, topics=topics[shard]) for shard, epoch in epochs.items()}
    return Watermark(epoch=min(epochs.values(), default=1), lsn=8, shards=marks)


def test_h403_a_store_goes_back_in_the_topics_of_that_shard_once() -> None:
    assert begun_behind(mark(first=1, second=1), SECOND, SHARDS) == {"a": {0: 7}}
    assert begun_behind(mark(first=2, second=1), SECOND, SHARDS) == {}
    assert begun_behind(mark(second=1), SECOND, SHARDS) == {"a": {0: 7}}, "a shard of which nothing shows yet"


def test_h402_a_store_goes_back_in_a_topic_that_was_taken_over() -> None:
    """Its mark is that of the former shard, however high its epoch and that of the one which has it now."""
    taken = EpochsState().reaching(4, {"b": {0: 50}})
    for epoch in (1, 2, 3):
        shown = mark(first=4, second=epoch)
        assert begun_behind(shown, taken, {"a": "first", "b": "first"}) == {"b": {0: 50}}


def test_without_shards_the_epoch_of_the_store_counts() -> None:
    assert begun_behind(Watermark(epoch=1, lsn=8), SECOND, {}) == SECOND.behind(1) == {"a": {0: 7}}
    assert begun_behind(Watermark(epoch=2, lsn=8), SECOND, {}) == {}


def test_h402_an_epoch_begins_at_the_end_of_a_topic_taken_over() -> None:
    taken = EpochsState().reaching(3, {"b": {0: 50}})
    found = joined(SECOND, taken, "id")
    assert (found.latest, found.identity(3)) == (3, "id")
    assert found.behind(2) == {"a": {0: 7}, "b": {0: 50}}
    assert (found.began("a", 0), found.began("b", 0)) == (7, 50)
    higher = joined(EpochsState().reaching(4, {"a": {0: 9}}), taken, "id")
    assert (higher.latest, higher.began("b", 0)) == (4, 50)
