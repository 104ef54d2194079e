"""In which epoch a record is, by its offset; and in which one a pipeline is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.epochs import EpochsState, KeyedAnewState, epoch_of, require_begun, require_reset
from cdc.errors import ConfigError
from cdc.position import MAX_EPOCH
from cdc.state import SlotState

A, B = "shop.public.a", "shop.public.b"
SECOND = EpochsState().begin({A: {0: 7, 1: 3}})
THIRD = SECOND.begin({A: {0: 9}, B: {0: 4}})
SLOT = SlotState(
    epoch=2, system_identifier="1", timeline=1, database="app", database_oid=5, slot="s", publication="p",
    consistent_point=8,
)  # fmt: skip


def test_a_pipeline_begins_in_its_first_epoch() -> None:
    assert EpochsState() == EpochsState(latest=1, reread=0, unsettled=False)
    assert EpochsState().epoch(A, 0, 10**9) == 1
    assert EpochsState().key() == b'{"what":"epochs"}'


@pytest.mark.parametrize(
    ("topic", "partition", "epochs"),
    [
        (A, 0, {0: 1, 6: 1, 7: 2, 8: 2, 9: 3}),
        # The third epoch knew no end of this one, so nothing older stands there.
        (A, 1, {0: 3, 2: 3, 3: 3}),
        (B, 0, {0: 2, 3: 2, 4: 3}),
        ("shop.public.c", 0, {0: 3}),
    ],
)
def test_a_record_is_of_the_epoch_that_holds_at_its_offset(topic: str, partition: int, epochs: dict[int, int]) -> None:
    assert {offset: THIRD.epoch(topic, partition, offset) for offset in epochs} == epochs


def test_an_epoch_more_keeps_what_is_known_of_those_before() -> None:
    assert SECOND.begin({A: {0: 9}, B: {0: 4}}) == THIRD
    assert (SECOND.latest, THIRD.latest) == (2, 3)
    assert SECOND.starts == {A: {"0": [7], "1": [3]}}, "the former document stays as it is"
    assert THIRD.starts == {A: {"0": [7, 9]}, B: {"0": [0, 4]}}
    noted = replace(SECOND, reread=2, unsettled=True, fell="why").snapshot_at(A, 0, 7)
    assert noted.begin({}) == replace(SECOND, latest=3, starts={}, reread=2, firsts={"2": [A, 0, 7]})


def test_h227_an_epoch_has_an_identity_beside_its_number() -> None:
    second = EpochsState().begin({}, "second")
    assert [second.identity(epoch) for epoch in (1, 2, 3)] == ["", "second", ""]
    third = second.begin({}, "third")
    assert [third.identity(epoch) for epoch in (1, 2, 3)] == ["", "second", "third"]
    assert third.begin({}).ids == third.ids, "an older build notes none"
    reached = EpochsState().reaching(3, {}, "late")
    assert (reached.latest, reached.ids) == (3, {"2": "late", "3": "late"})


def test_h230_a_key_is_noted_with_the_newest_of_its_epochs() -> None:
    first = EpochsState().keyed_anew(A, 1)
    assert (first.keys, first.rekeyed()) == ({A: 1}, frozenset({A}))
    second = first.begin({})
    assert (second.keys, second.rekeyed()) == ({A: 1}, frozenset()), "the epoch has read it under its new key"
    again = second.keyed_anew(A, 2).keyed_anew(A, 1).keyed_anew(B, 1)
    assert (again.keys, again.rekeyed()) == ({A: 2, B: 1}, frozenset({A}))


@pytest.mark.parametrize(
    ("ends", "topic_ids", "epochs"),
    [
        # The topic is shorter than where the second epoch began: it was made anew, or is an older copy.
        ({A: {0: 5}}, {}, {0: 1, 4: 1, 5: 3, 9: 3}),
        # It was missing, and comes back.
        ({}, {}, {0: 3, 6: 3, 7: 3}),
        # It was made anew, and has grown beyond that since.
        ({A: {0: 9}}, {A: "id2"}, {0: 2, 8: 2, 9: 3}),
        ({A: {0: 9}}, {A: "id1"}, {0: 1, 6: 1, 7: 2, 8: 2, 9: 3}),
        # Nobody knows which one it is.
        ({A: {0: 9}}, {}, {0: 1, 6: 1, 7: 2, 8: 2, 9: 3}),
    ],
)
def test_h232_no_epoch_that_is_over_has_a_newer_topic(
    ends: dict[str, dict[int, int]], topic_ids: dict[str, str], epochs: dict[int, int]
) -> None:
    """What is read as an epoch that is over is swept."""
    second = EpochsState().begin({A: {0: 7}}, topic_ids={A: "id1"})
    third = second.begin(ends, topic_ids=topic_ids)
    assert {offset: third.epoch(A, 0, offset) for offset in epochs} == epochs
    assert third.topic_ids == {topic: topic_ids.get(topic, "id1") for topic in ends}


def test_h232_a_topic_made_anew_is_of_the_newest_epoch() -> None:
    second = EpochsState().begin({A: {0: 7}, B: {0: 4}}, topic_ids={A: "id1", B: "id1"})
    assert second.of_topics({A: "id1"}) is second, "nothing is said of one that is not there"
    found = second.of_topics({A: "id2", B: "id1", "new": "id1"})
    assert (found.starts, found.topic_ids) == ({B: {"0": [4]}}, {B: "id1"})
    assert [found.epoch(A, 0, 0), found.began(A, 0), found.epoch(B, 0, 3)] == [2, 0, 1]
    assert EpochsState().reaching(3, {A: {0: 7}}, topic_ids={A: "id1"}).topic_ids == {A: "id1"}


def test_h233_a_key_stays_another_where_rows_go_along() -> None:
    """A table is read anew. What the others have in the latest epoch is of the new one, under both of their keys."""
    second = SECOND.keyed_anew(A, 2).keyed_anew(B, 2).keyed_anew("former", 1)
    third = second.begin({A: {0: 7}, B: {0: 4}})
    assert third.rekeyed() == frozenset(), "each table is read again"
    assert third.still_rekeyed(second, B).keys == {A: 3, B: 2, "former": 1}


def test_another_server_is_noted_until_the_next_epoch() -> None:
    moved = SECOND.moved_on("another server")
    assert moved == replace(SECOND, moved="another server")
    assert moved.begin({}).moved == ""


def test_where_the_latest_epoch_begins() -> None:
    assert [THIRD.began(A, 0), THIRD.began(A, 1), THIRD.began(B, 0), THIRD.began("new", 0)] == [9, 0, 4, 0]
    assert [SECOND.began(A, 0), SECOND.began(A, 1), EpochsState().began(A, 0)] == [7, 3, 0]


def test_where_the_epochs_after_one_begin() -> None:
    assert THIRD.behind(1) == {A: {0: 7}, B: {0: 0}}
    assert THIRD.behind(2) == {A: {0: 9}, B: {0: 4}}
    assert THIRD.behind(3) == {}


def test_where_the_snapshot_of_the_latest_epoch_began() -> None:
    assert SECOND.first() is None
    found = SECOND.snapshot_at(A, 1, 7)
    assert found.first() == (A, 1, 7)
    assert found.begin({}).first() is None
    assert found.begin({}).snapshot_at(B, 0, 4).firsts == {"2": [A, 1, 7], "3": [B, 0, 4]}
    assert replace(SECOND, firsts={"2": [A, 1]}).first() is None


def test_an_epoch_is_settled_when_its_tables_are_read_anew() -> None:
    assert replace(SECOND, unsettled=True).settled() == replace(SECOND, reread=2)
    assert SECOND.fallen("why").fell == "why"


def test_as_many_epochs_as_it_takes() -> None:
    assert SECOND.reaching(2, {A: {0: 9}}) == SECOND
    assert EpochsState().reaching(3, {A: {0: 9}}).starts == {A: {"0": [9, 9]}}


def test_there_is_a_last_epoch() -> None:
    assert EpochsState(latest=MAX_EPOCH - 1).begin({}).latest == MAX_EPOCH
    with pytest.raises(ConfigError, match="at its highest, 127"):
        EpochsState(latest=MAX_EPOCH).begin({})


def test_the_epoch_of_a_pipeline_by_its_state() -> None:
    assert epoch_of({}, "debezium") == 1
    assert epoch_of({THIRD.key(): THIRD.to_json(), SLOT.key(): SLOT.to_json()}, "debezium") == 3
    assert epoch_of({THIRD.key(): THIRD.to_json(), SLOT.key(): SLOT.to_json()}, "postgres") == 2
    assert epoch_of({}, "postgres") is None


def test_an_epoch_whose_slot_was_not_made_is_finished_first() -> None:
    require_begun(THIRD, None)
    require_begun(SECOND, SLOT)
    require_begun(EpochsState(), SLOT)
    with pytest.raises(ConfigError, match="epoch 3 was begun and not finished: the slot noted is of epoch 2"):
        require_begun(THIRD, SLOT)


def test_h156_a_cut_short_reset_is_settled_before_it_goes_on() -> None:
    begun = replace(SECOND, unsettled=True)
    with pytest.raises(ConfigError, match="epoch 2 was begun and not finished") as refused:
        require_reset(begun, stored=True)
    assert "offsets --reset again" in refused.value.hint
    require_reset(begun, stored=False)
    require_reset(SECOND, stored=True)


def test_h235_a_key_that_changed_has_a_record_of_its_own() -> None:
    """Programs of before wrote it so, and no two of them write the same record."""
    note, older = KeyedAnewState(topic=A, epoch=2), KeyedAnewState(topic=B, epoch=1)
    assert note.key() == b'{"what":"keyed_anew","topic":"shop.public.a","epoch":2}'
    documents = {one.key(): one.to_json() for one in (note, older)}
    alone = EpochsState.find(documents)
    assert alone is not None
    assert (alone.latest, alone.keys) == (1, {A: 2, B: 1})
    both = EpochsState.find({SECOND.key(): SECOND.to_json(), **documents})
    assert both is not None
    assert (both.latest, both.keys, both.rekeyed()) == (2, {A: 2, B: 1}, frozenset({A}))
    assert EpochsState.find({}) is None


@pytest.mark.parametrize(
    ("epoch", "identity", "known"),
    [
        (2, "second", True),
        (2, "other", False),
        (2, "", True),
        (1, "first", True),
        (3, "third", False),
        (3, "", True),
    ],
)
def test_h227_an_epoch_is_known_by_its_identity(epoch: int, identity: str, known: bool) -> None:
    assert EpochsState().begin({}, "second").knows(epoch, identity) is known


def test_h227_a_number_without_an_identity_counts_alone() -> None:
    unnamed = EpochsState().begin({})
    assert [unnamed.knows(epoch, "named") for epoch in (1, 2, 3)] == [True, True, False]


def test_an_epoch_begins_where_a_partition_held_more_than_one() -> None:
    """Partition 1 of ``a`` was there in the second epoch alone, and ``b`` came in the third."""
    uneven = EpochsState(latest=3, starts={A: {"0": [7, 9], "1": [3]}, B: {"0": [4]}})
    assert uneven.behind(1) == {A: {0: 7, 1: 3}, B: {0: 4}}
    assert uneven.behind(2) == {A: {0: 9}}
    assert uneven.behind(3) == {}
    assert [uneven.began(A, partition) for partition in (0, 1, 2)] == [9, 0, 0]


def test_h232_ids_are_kept_of_topics_that_begin() -> None:
    named = EpochsState().begin({A: {0: 7}}, topic_ids={A: "id1", B: "id2"})
    assert named.topic_ids == {A: "id1"}
    assert named.begin({A: {0: 9}}).topic_ids == {A: "id1"}
    assert not EpochsState().begin({A: {0: 7}}).topic_ids
