"""What a store says of its place against what was written to it, and against the topics of today."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import ActiveError, Retry, TopicError
from cdc.record.progress import EpochsState, Hold, Offsets, Watermark
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import OpenSink
from spark.queries.micro_batch import shares, spans_between
from spark.records.ports import SinkTopics, TopicLook
from spark.stores.place_check import (
    EpochIds,
    StoreMoved,
    TopicLooks,
    TopicReplaced,
    check_claim,
    check_epoch,
    check_log,
    check_place,
    check_topics,
    span,
)
from tests.unit.spark.doubles import MemoryFacts

ORDERS, OTHERS = "shop.public.orders", "shop.public.others"
TOPICS = SinkTopics(ids={ORDERS: "id1"}, partitions={ORDERS: 2})
HELD = Watermark(epoch=1, lsn=8, offsets={ORDERS: {0: 7, 1: 3}}, topic_ids={ORDERS: "id1"})
FURTHER = replace(HELD, offsets={ORDERS: {0: 9, 1: 3}})
SHOWN = replace(HELD, epoch=2, level_ms=1000)
BEHIND = replace(HELD, offsets={ORDERS: {0: 7, 1: 2}})


def opened(found: Watermark | None) -> OpenSink:
    store = MemoryStore().open()
    if found is not None:
        store.watermarks.write(found)
    return store


@pytest.mark.parametrize(
    ("found", "held", "unsure"),
    [(HELD, HELD, None), (FURTHER, HELD, FURTHER), (HELD, HELD, FURTHER), (None, None, None), (None, None, HELD)],
)
def test_h84_a_store_that_says_what_was_written_is_in_its_place(
    found: Watermark | None, held: Watermark | None, unsure: Watermark | None
) -> None:
    check_place("cache", opened(found), held, unsure)


@pytest.mark.parametrize(
    "found",
    [
        replace(SHOWN, lsn=7, level_ms=900),
        replace(SHOWN, epoch=1, lsn=99, level_ms=900),
        replace(SHOWN, held={ORDERS: Hold(table="public.orders", reason="r")}, level_ms=900),
        replace(SHOWN, offsets={**SHOWN.offsets, OTHERS: {0: 3}}, level_ms=900),
        replace(SHOWN, lsn=9, level_ms=900),
    ],
    ids=["lsn", "epoch", "words", "table", "before-a-table-came"],
)
def test_y1_an_older_file_at_equal_offsets_is_behind(found: Watermark) -> None:
    """Its offsets are those that were written: only the LSN, the epoch, a hold or a table left has changed since."""
    with pytest.raises(StoreMoved, match="restored or emptied"):
        check_place("cache", opened(found), SHOWN, None)


@pytest.mark.parametrize("found", [None, BEHIND])
def test_h84_a_store_that_is_behind_was_restored_or_emptied(found: Watermark | None) -> None:
    with pytest.raises(StoreMoved, match="the store of cache is behind what was written to it") as moved:
        check_place("cache", opened(found), HELD, None)
    assert moved.value.retry is Retry.NOW


def test_y1_one_that_rests_further_has_a_second_writer() -> None:
    with pytest.raises(ActiveError, match="another cdc sink"):
        check_place("cache", opened(replace(SHOWN, lsn=9, level_ms=1001)), SHOWN, None)


@pytest.mark.parametrize("held", [HELD, None])
def test_h84_a_store_that_is_further_has_a_second_writer(held: Watermark | None) -> None:
    with pytest.raises(ActiveError, match="another cdc sink is writing to the store of cache") as active:
        check_place("cache", opened(FURTHER), held, None)
    assert active.value.retry is Retry.NEVER


@pytest.mark.parametrize("held", [HELD, None, replace(HELD, offsets={})])
def test_h503_one_that_claims_nothing_was_emptied(held: Watermark | None) -> None:
    """It is no second writer's word."""
    with pytest.raises(StoreMoved, match="restored or emptied"):
        check_place("cache", opened(Watermark(epoch=1, lsn=0)), held, None)


def test_h504_a_copy_ahead_is_named_beside_a_second_writer() -> None:
    """It was put back over a store that had been emptied: nobody can tell it from what another sink writes."""
    with pytest.raises(ActiveError, match="or a copy of it that is ahead was put back") as active:
        check_place("cache", opened(FURTHER), None, None)
    assert "start this one again: it goes on from the copy" in active.value.hint


def test_h84_another_generation_that_is_in_use_is_another_store() -> None:
    with pytest.raises(StoreMoved, match="was rebuilt"):
        check_place("cache", replace(opened(HELD), current=lambda: False), HELD, None)


@pytest.mark.parametrize(
    ("held", "ends"),
    [
        (None, {}),
        (HELD, {ORDERS: {0: 7, 1: 3}}),
        (replace(HELD, topic_ids={}), {ORDERS: {0: 7, 1: 3}}),
        # A table that is no longer fed has no topic of today.
        (replace(HELD, offsets={OTHERS: {0: 7}}, topic_ids={OTHERS: "gone"}), {}),
        (replace(HELD, offsets={OTHERS: {0: 7}, ORDERS: {0: 0}}), {}),
    ],
)
def test_h63_offsets_within_todays_topics_may_be_gone_on_from(held: Watermark | None, ends: Offsets) -> None:
    check_topics("cache", held, TOPICS, ends)


@pytest.mark.parametrize(
    ("held", "ends"),
    [
        (replace(HELD, topic_ids={ORDERS: "id0"}), {ORDERS: {0: 7, 1: 3}}),
        (HELD, {ORDERS: {0: 7, 1: 2}}),
        (HELD, {ORDERS: {0: 7}}),
        (HELD, {}),
        (replace(HELD, offsets={ORDERS: {0: 1}}), {}),
        (replace(HELD, offsets={OTHERS: {0: 7}} | dict(HELD.offsets)), {}),
    ],
)
def test_h63_offsets_of_a_topic_that_is_gone_are_refused(held: Watermark, ends: Offsets) -> None:
    with pytest.raises(TopicError, match=rf"the topic {ORDERS} was made anew since the store of cache"):
        check_topics("cache", held, TOPICS, ends)


@pytest.mark.parametrize(
    ("held", "newest"),
    [(None, (1, 4)), (HELD, None), (HELD, (1, 8)), (HELD, (2, 0)), (replace(HELD, epoch=2, lsn=0), (1, 8))],
)
def test_h222_a_claim_that_the_log_has_is_taken(held: Watermark | None, newest: tuple[int, int] | None) -> None:
    check_claim("cache", held, newest)


@pytest.mark.parametrize("held", [HELD, replace(HELD, epoch=2, lsn=1)])
def test_h222_a_claim_beyond_the_log_is_refused(held: Watermark) -> None:
    with pytest.raises(TopicError, match=r"the store of cache says that it shows .* of epoch \d, and the log has"):
        check_claim("cache", held, (1, 7))


SECOND = EpochsState().begin({}, "second")
IN_SECOND = replace(HELD, epoch=2, epoch_id="second")


@pytest.mark.parametrize(
    ("held", "epochs"),
    [
        (None, SECOND),
        (IN_SECOND, SECOND),
        (IN_SECOND, SECOND.begin({}, "third")),
        # Nothing was noted: by an older build in the store, or in the log.
        (replace(IN_SECOND, epoch_id=""), SECOND),
        (IN_SECOND, EpochsState().begin({})),
    ],
)
def test_h227_a_store_of_the_logs_own_epoch_goes_on(held: Watermark | None, epochs: EpochsState) -> None:
    check_epoch("cache", held, epochs)


@pytest.mark.parametrize("epochs", [EpochsState(), EpochsState().begin({}, "another")])
def test_h227_a_store_of_another_epoch_of_that_number_is_refused(epochs: EpochsState) -> None:
    """The log was put back to before the epoch, and may have given its number again."""
    with pytest.raises(TopicError, match="the store of cache was filled in another epoch 2 than the log's"):
        check_epoch("cache", IN_SECOND, epochs)


VIEW = SinkTopics(ids={ORDERS: "id1"}, partitions={ORDERS: 2}, views={ORDERS: "view.orders"})


@pytest.mark.parametrize(
    ("held", "facts", "words"),
    [
        (replace(HELD, topic_ids={ORDERS: "id0"}), MemoryFacts(), "was made anew"),
        (IN_SECOND, MemoryFacts(), "another epoch 2"),
        (HELD, MemoryFacts(reaches=(1, 7)), "says that it shows"),
    ],
)
def test_a_store_of_another_log_is_refused(held: Watermark, facts: MemoryFacts, words: str) -> None:
    with pytest.raises(TopicError, match=words):
        check_log("cache", held, TOPICS, {ORDERS: {0: 7, 1: 3}}, facts)


def test_h222_a_view_claims_by_a_progress_of_its_own() -> None:
    """It has a progress of its own."""
    check_log("cache", HELD, VIEW, {ORDERS: {0: 7, 1: 3}}, MemoryFacts(reaches=(1, 7)))


def test_h227_an_epochs_identity_is_read_once() -> None:
    asked: list[EpochsState] = []

    class Log(MemoryFacts):
        def epochs(self) -> EpochsState:
            asked.append(SECOND)
            return SECOND

    ids = EpochIds(Log())
    assert [ids.of(epoch) for epoch in (1, 1, 2, 2)] == ["", "", "second", "second"]
    assert len(asked) == 2


def test_a_time_is_told_in_hours_from_two_hours_on() -> None:
    assert [span(seconds) for seconds in (0.4, 7199, 7200, 7201)] == ["0 s", "7199 s", "2 h", "2 h"]


def test_partitions_are_shared_by_their_work_and_stay_whole() -> None:
    spans = spans_between({ORDERS: {0: 0, 1: 10, 2: -2}, OTHERS: {0: 5}}, {ORDERS: {0: 9, 1: 14, 2: 5}, OTHERS: {0: 5}})
    assert [(one.topic, one.partition) for one in spans] == [(ORDERS, 0), (ORDERS, 1), (ORDERS, 2)]
    assert [[one.partition for one in share] for share in shares(spans, 2)] == [[0], [2, 1]]
    assert [[one.partition for one in share] for share in shares(spans, 9)] == [[0], [2], [1]]
    assert shares((), 3) == []


def look(topic_id: str = "id1", **epochs: int) -> TopicLook:
    return TopicLook(topic_id, {0: 3, 1: 3} | {int(p[1:]): epoch for p, epoch in epochs.items()})


@pytest.mark.parametrize(
    "now",
    [{}, {ORDERS: look("id2")}, {ORDERS: look(p1=4)}, {ORDERS: look(p2=3)}],
    ids=["deleted", "made anew", "another leader", "a partition more"],
)
def test_a_topic_that_is_another_one_ends_the_batch(now: dict[str, TopicLook]) -> None:
    """A position by offset rests on the topic that it was read from."""
    log = MemoryFacts(seen={ORDERS: look()})
    looks = TopicLooks(log, TOPICS)
    looks.require_same([ORDERS])
    looks.require_same([ORDERS])
    log.seen = now
    with pytest.raises(TopicReplaced) as replaced:
        looks.require_same([ORDERS])
    assert replaced.value.retry is Retry.NOW
    looks.require_same([])


def test_a_topic_made_anew_before_the_first_look_is_noticed() -> None:
    with pytest.raises(TopicReplaced):
        TopicLooks(MemoryFacts(seen={ORDERS: look("id2")}), TOPICS).require_same([ORDERS])


def test_where_records_bear_their_position_nobody_looks() -> None:
    TopicLooks(MemoryFacts(), TOPICS).require_same([ORDERS])
