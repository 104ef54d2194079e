"""Letters as the topic holds them, the keys that wait, and what an answer sets free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import DamagedError, FormatError
from cdc.wire.dead_letter import CAPTURE, DeadLetter, Parked, Waiting, Why, place, waiting


def letter(
    offset: int, why: Why = Why.REFUSED, *, sink: str = "cache", key: bytes | None = b"k", partition: int = 0,
    topic: str = "t", op: bytes | None = b"u",
) -> DeadLetter:  # fmt: skip
    return DeadLetter(
        sink=sink, why=why, topic=topic, partition=partition, offset=offset, reason="no", key=key, value=b"v",
        headers=(("pos", b"1"), ("op", op)),
    )  # fmt: skip


def released(upto: int, **more: object) -> DeadLetter:
    return replace(letter(upto, Why.RELEASED), **more)  # type: ignore[arg-type]


OWN = [
    ("dead.sink", b"cache"), ("dead.why", b"refused"), ("dead.topic", b"t"), ("dead.partition", b"3"),
    ("dead.offset", b"9"), ("dead.reason", b"no"),
]  # fmt: skip
THEIRS: list[tuple[str, bytes | None]] = [("pos", b"1"), ("op", b"u")]
LETTER = letter(9, partition=3)


def test_a_letter_is_written_as_the_manual_says() -> None:
    written = [*OWN, ("dead.format", b"1"), ("dead.headers", b"2"), *THEIRS]
    assert LETTER.record_headers() == written
    assert DeadLetter.from_record(b"k", b"v", written) == LETTER
    assert CAPTURE == "(capture)"


def test_h113_a_letter_may_have_headers_that_nobody_knows() -> None:
    """They stand before the refused record's."""
    further = [*OWN, ("dead.format", b"1"), ("dead.new", b"x"), ("dead.headers", b"2"), ("dead.newer", b"y"), *THEIRS]
    assert DeadLetter.from_record(b"k", b"v", further) == LETTER
    without = [("dead.format", b"1"), ("dead.headers", b"0")]
    assert DeadLetter.from_record(b"k", b"v", [*OWN, *without]) == replace(LETTER, headers=())
    nothing = replace(LETTER, reason="", headers=())
    assert DeadLetter.from_record(b"k", b"v", [*OWN[:-1], ("dead.reason", None), *without]) == nothing


def test_h113_another_format_and_damage_are_told_apart() -> None:
    with pytest.raises(FormatError, match="a dead letter has the format 2"):
        DeadLetter.from_record(b"k", b"v", [*OWN, ("dead.format", b"2"), ("dead.headers", b"0")])
    with pytest.raises(DamagedError, match="a dead letter has a format"):
        DeadLetter.from_record(b"k", b"v", [*OWN, ("dead.format", b"0"), ("dead.headers", b"0")])
    for further in ([("dead.format", None)], [("dead.format", b"1")], [("dead.format", b"1"), ("dead.headers", None)]):
        with pytest.raises(ValueError, match="invalid literal"):
            DeadLetter.from_record(b"k", b"v", [*OWN, *further])
    own = [("dead.format", b"1"), ("dead.headers", b"0")]
    with pytest.raises(ValueError, match="format"):
        DeadLetter.from_record(b"k", b"v", [*OWN[:1], ("dead.why", b"format"), *OWN[2:], *own])
    for none in (THEIRS, OWN, [*OWN, *THEIRS]):
        with pytest.raises(ValueError, match="no header with the format"):
            DeadLetter.from_record(b"k", b"v", none)


def test_every_reason_has_a_word_of_its_own_on_the_topic() -> None:
    words = ["refused", "behind", "unreadable", "oversized", "released", "held", "retry", "drop"]
    assert [why.value for why in Why] == words
    assert [why.value for why in Why if why.is_letter] == words[:4]


@pytest.mark.parametrize(
    ("why", "op", "parks"),
    [
        (Why.REFUSED, b"u", True), (Why.BEHIND, b"d", True), (Why.REFUSED, None, True),
        (Why.REFUSED, b"t", False), (Why.BEHIND, b"t", False), (Why.UNREADABLE, b"u", False),
        (Why.OVERSIZED, b"u", False), (Why.RELEASED, b"u", False), (Why.RETRY, b"u", False),
    ],
)  # fmt: skip
def test_h67_only_a_refused_row_makes_its_key_wait(why: Why, op: bytes | None, parks: bool) -> None:
    """A floor's key stands for a table, and what is no record of ours has no key."""
    one = letter(3, why, op=op)
    assert one.parks is parks
    assert Parked("cache", [one]).waits("t", b"k") is parks


def test_h67_keys_wait_by_sink_topic_and_key() -> None:
    parked = Parked("cache", [letter(3), letter(4, sink="search", key=b"l"), letter(5, key=None)])
    assert [parked.waits("t", key) for key in (b"k", b"l", None)] == [True, False, False]
    assert not parked.waits("other", b"k")
    assert (len(parked), parked.keys()) == (1, {"t": [b"k"]})
    parked.add([letter(6, key=b"m"), letter(7, topic="other")])
    assert (len(parked), parked.keys()) == (3, {"t": [b"k", b"m"], "other": [b"k"]})


def test_h67_a_key_waits_from_its_first_letter_on() -> None:
    parked = Parked("cache", [letter(5), letter(3), letter(9)])
    assert parked.firsts() == {"t": {b"k": (0, 3)}}
    before = parked.snapshot()
    parked.add([released(3)])
    assert parked.firsts() == {"t": {b"k": (0, 5)}}
    assert before == {"t": {b"k": (0, 3)}}, "a snapshot stays as it is"
    assert parked.fresh([letter(3), letter(5)]) == [letter(3)], "what was set free may come again"
    parked.add([released(9)])
    assert (parked.firsts(), parked.keys(), len(parked)) == ({}, {}, 0)
    assert not parked.waits("t", b"k")


def test_h67_a_key_set_free_leaves_the_others_of_its_topic() -> None:
    parked = Parked("cache", [letter(3), letter(4, key=b"l"), released(3), released(3, key=b"never"), released(1)])
    assert parked.firsts() == {"t": {b"l": (0, 4)}}


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (released(5), [(0, 9), (1, 2)]),
        (released(9), [(1, 2)]),
        (released(4), [(0, 5), (0, 9), (1, 2)]),
        (released(2, partition=1), [(0, 5), (0, 9)]),
        (released(9, sink="search"), [(0, 5), (0, 9), (1, 2)]),
        (released(9, topic="other"), [(0, 5), (0, 9), (1, 2)]),
        (released(9, key=b"l"), [(0, 5), (0, 9), (1, 2)]),
        (released(9, why=Why.HELD), [(0, 5), (0, 9), (1, 2)]),
    ],
)
def test_an_answer_frees_its_keys_letters_up_to_its_place(answer: DeadLetter, left: list[tuple[int, int]]) -> None:
    topic = [letter(5), letter(9, Why.BEHIND), letter(2, partition=1), answer]
    assert [(one.partition, one.offset) for one in waiting(topic)] == left
    assert Parked("cache", topic).firsts() == {"t": {b"k": left[0]}}


def test_a_letter_that_parks_nothing_is_freed_by_its_own_place() -> None:
    foreign, floor = letter(4, Why.UNREADABLE), letter(5, op=b"t")
    topic = [foreign, floor, released(9)]
    assert waiting(topic) == [foreign, floor]
    assert waiting([*topic, released(4)]) == [floor]
    parked = Parked("cache", topic)
    assert parked.fresh([foreign, floor]) == []
    parked.add([released(5)])
    assert parked.fresh([foreign, floor]) == [floor]


def test_a_replay_parks_no_record_twice() -> None:
    parked = Parked("cache", [letter(5), letter(6, Why.UNREADABLE, key=None)])
    again = [letter(7, Why.BEHIND), letter(6, Why.UNREADABLE, key=None), letter(5), letter(3, Why.BEHIND), letter(3)]
    assert [(one.offset, one.why) for one in parked.fresh(again)] == [(3, Why.REFUSED), (7, Why.BEHIND)]
    assert parked.fresh([letter(5, partition=1), letter(5, topic="s")]) == [
        letter(5, topic="s"),
        letter(5, partition=1),
    ]
    assert parked.fresh([letter(5, key=b"l")]) == [letter(5, key=b"l")]


def test_waiting_letters_are_whole_and_each_is_there_once() -> None:
    first = letter(5)
    held = Waiting(
        [first, replace(first, reason="again"), letter(9, Why.BEHIND), letter(7, key=b"l"), letter(1, Why.HELD)]
    )
    assert held.beside(letter(99)) == [first, letter(9, Why.BEHIND)]
    assert held.beside(letter(99, key=b"none")) == held.beside(letter(5, sink="search")) == []
    assert held.every() == [first, letter(9, Why.BEHIND), letter(7, key=b"l")]


def test_a_place_is_topic_partition_and_offset() -> None:
    assert place(letter(9, partition=3, topic="s")) == ("s", 3, 9)
