"""In which epoch a pipeline is, and where each began."""

from __future__ import annotations

import pytest

from cdc.process.errors import ConfigError
from cdc.record.position import MAX_EPOCH
from cdc.record.progress import EpochsState, epoch_of, require_begun
from cdc.record.state import SlotState

A, B = "shop.public.a", "shop.public.b"
SECOND = EpochsState().begin({A: {0: 7, 1: 3}})
THIRD = SECOND.begin({A: {0: 9}, B: {0: 4}})
SLOT = SlotState(
    epoch=2, system_identifier="1", timeline=1, database="app", database_oid=5, slot="s", publication="p",
    consistent_point=8,
)  # fmt: skip


def test_a_pipeline_begins_in_its_first_epoch() -> None:
    assert EpochsState() == EpochsState(latest=1)
    assert EpochsState().key() == b'{"what":"epochs"}'


def test_an_epoch_more_keeps_what_is_known_of_those_before() -> None:
    assert SECOND.begin({A: {0: 9}, B: {0: 4}}) == THIRD
    assert (SECOND.latest, THIRD.latest) == (2, 3)
    assert SECOND.starts == {A: {"0": [7], "1": [3]}}, "the former document stays as it is"
    assert THIRD.starts == {A: {"0": [7, 9]}, B: {"0": [0, 4]}}


def test_h227_an_epoch_has_an_identity_beside_its_number() -> None:
    second = EpochsState().begin({}, "second")
    assert [second.identity(epoch) for epoch in (1, 2, 3)] == ["", "second", ""]
    third = second.begin({}, "third")
    assert [third.identity(epoch) for epoch in (1, 2, 3)] == ["", "second", "third"]
    assert third.begin({}).ids == third.ids, "an older build notes none"


def test_where_the_latest_epoch_begins() -> None:
    assert [THIRD.began(A, 0), THIRD.began(A, 1), THIRD.began(B, 0), THIRD.began("new", 0)] == [9, 0, 4, 0]
    assert [SECOND.began(A, 0), SECOND.began(A, 1), EpochsState().began(A, 0)] == [7, 3, 0]


def test_where_the_epochs_after_one_begin() -> None:
    assert THIRD.behind(1) == {A: {0: 7}, B: {0: 0}}
    assert THIRD.behind(2) == {A: {0: 9}, B: {0: 4}}
    assert THIRD.behind(3) == {}


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
