"""The notes of a rebuild, when a generation is level, and whose letters are whose."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from cdc.operate.rebuild import (
    RebuildState,
    Step,
    apart,
    find_rebuild,
    level,
    next_rebuild,
    retried,
    share,
    taken_over,
)
from cdc.record.progress import Offsets, Watermark
from cdc.wire.dead_letter import DeadLetter, Why, identity_of

RUN = RebuildState(sink="cache", generation=2, previous=1, step="building")


def test_a_rebuild_is_noted_in_the_same_words_always() -> None:
    """The state topic holds them: another version of the command goes on with them."""
    assert RUN.key() == b'{"what":"rebuild","sink":"cache"}'
    assert [step.value for step in Step] == ["building", "keeping", "switching", "done", "rolled_back"]
    held = {RUN.key(): RUN.to_json()}
    assert (find_rebuild(held, "cache"), find_rebuild(held, "search")) == (RUN, None)


@pytest.mark.parametrize(
    ("in_use", "last", "generation"),
    [
        (1, None, 2),
        (3, None, 4),
        (2, RUN.at(Step.DONE), 3),
        (1, RUN.at(Step.ROLLED_BACK), 3),
        (5, RUN.at(Step.DONE), 6),
    ],
)
def test_a_new_generations_number_was_never_used(in_use: int, last: RebuildState | None, generation: int) -> None:
    wanted = RebuildState(sink="cache", generation=generation, previous=in_use, step="building")
    assert next_rebuild("cache", in_use, last) == wanted


@pytest.mark.parametrize("step", [Step.BUILDING, Step.KEEPING, Step.SWITCHING])
def test_a_rebuild_with_a_step_to_do_goes_on(step: Step) -> None:
    assert next_rebuild("cache", 1, RUN.at(step)) == RUN.at(step)


def mark(offsets: Offsets, lsn: int = 9) -> Watermark:
    return Watermark(epoch=1, lsn=lsn, offsets=offsets)


ENDS: Offsets = {"a": {0: 7, 2: 5}, "b": {0: 3}}


@pytest.mark.parametrize(
    ("new", "old", "is_level"),
    [
        (mark(ENDS), None, True),
        (mark({"a": {0: 7, 2: 5}, "b": {0: 2}}), None, False),
        (mark({"a": {0: 7, 2: 4}, "b": {0: 3}}), None, False),
        (mark({"a": {0: 7, 2: 5}}), None, False),
        (mark({"a": {0: 7}, "b": {0: 3}}), None, False),
        (mark({"a": {0: 7, 2: 5}}), mark({}), False),
        (mark(ENDS), mark({}), True),
        (mark({"a": {0: 7}}), mark({"a": {0: 7, 2: 1}}), False),
        (mark({"a": {0: 7}}), mark({"a": {0: 7, 2: 0}}), True),
    ],
)
def test_a_generation_is_level_in_every_partition(new: Watermark, old: Watermark | None, is_level: bool) -> None:
    """Without an old one, or one that has read nothing, all that the log holds is wanted."""
    assert level(new, old, ENDS) is is_level


@pytest.mark.parametrize(
    ("new", "read"),
    [
        (None, 0),
        (mark({}), 0),
        (mark({"a": {2: 5}}), 5),
        (mark({"a": {0: 7, 2: 5}, "b": {0: 3}}), 15),
        (mark({"a": {0: 99}}), 7),
    ],
)
def test_what_was_read_is_a_share_of_what_the_log_holds(new: Watermark | None, read: int) -> None:
    assert share(new, ENDS) == read / 15


def letter(sink: str, key: bytes, offset: int, why: Why = Why.REFUSED) -> DeadLetter:
    return DeadLetter(sink=sink, why=why, topic="t", partition=0, offset=offset, reason="no", key=key, value=b"{}")


def test_letters_of_a_generation_stand_apart_until_it_is_in_use() -> None:
    assert apart(RUN) == "cache@2"
    theirs, known = letter("cache@2", b"k", 4), letter("cache@2", b"l", 5)
    topic = [theirs, known, letter("cache@1", b"m", 6), letter("cache", b"l", 5)]
    moved = taken_over(RUN, topic)
    assert moved == [
        letter("cache", b"k", 4),
        *(replace(one, why=Why.RELEASED, reason="in use now", value=None) for one in (theirs, known)),
    ]


def test_each_key_that_waits_for_the_sink_is_tried_again() -> None:
    topic = [
        letter("cache", b"k", 4),
        letter("cache", b"k", 6, Why.BEHIND),
        letter("cache", b"l", 7),
        letter("cache", b"l", 7, Why.RELEASED),
        letter("cache", b"m", 8, Why.UNREADABLE),
        letter("search", b"n", 9),
    ]
    ids = itertools.count(1)
    orders = retried("cache", topic, lambda: f"id{next(ids)}")
    assert [(one.sink, one.why, one.key, one.offset) for one in orders] == [("cache", Why.RETRY, b"k", 6)]
    assert [identity_of(one) for one in orders] == ["id1"]
