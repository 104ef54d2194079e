"""Dead letters: whole, in order, once; and the keys that wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdc.wire.dead_letter import DeadLetter, Parked, Why
from spark.records.source import parse
from spark.stores.apply import replayed, split_parked
from tests.unit.spark.records import TOPIC, KafkaRecord, records_of, sound

TEXT = st.text(max_size=5)
LETTERS = st.builds(
    DeadLetter,
    sink=TEXT,
    why=st.sampled_from(Why),
    topic=TEXT,
    partition=st.integers(0, 9),
    offset=st.integers(0, 9),
    reason=TEXT,
    key=st.none() | st.binary(max_size=3),
    value=st.none() | st.binary(max_size=3),
    headers=st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=3)), max_size=3).map(tuple),
)


def letter(offset: int, why: Why = Why.REFUSED, *, key: bytes | None = b"k", sink: str = "cache") -> DeadLetter:
    return DeadLetter(
        sink=sink, why=why, topic="t", partition=0, offset=offset, reason="no", key=key, value=b"v", headers=()
    )


@given(LETTERS)
def test_h67_a_letter_comes_back_whole(made: DeadLetter) -> None:
    assert DeadLetter.from_record(made.key, made.value, made.record_headers()) == made


def test_a_refused_key_waits_and_an_unreadable_record_parks_none() -> None:
    parked = Parked("cache", [letter(1), letter(2, Why.UNREADABLE, key=b"other"), letter(3, sink="search", key=b"s")])
    assert parked.keys() == {"t": [b"k"]}
    assert len(parked) == 1


def test_a_replayed_batch_buries_nothing_twice() -> None:
    parked = Parked("cache", [letter(1)])
    assert [one.offset for one in parked.fresh([letter(7), letter(1), letter(5)])] == [5, 7]


def test_a_key_is_free_again_when_its_last_letter_was_answered() -> None:
    parked = Parked("cache", [letter(1), letter(4, Why.BEHIND), letter(2, Why.RELEASED)])
    assert len(parked) == 1, "a later event waits still"
    parked.add([letter(4, Why.RELEASED)])
    assert len(parked) == 0
    assert parked.fresh([letter(4)]) == [letter(4)], "refused again in a replay it would otherwise be lost"


def test_a_key_waits_from_its_first_letter_on_in_any_order() -> None:
    parked = Parked("cache", [letter(4, Why.BEHIND), letter(2)])
    assert parked.firsts() == {"t": {b"k": (0, 2)}}
    parked.add([letter(2, Why.RELEASED)])
    assert parked.firsts() == {"t": {b"k": (0, 4)}}, "4 waits still"


def test_a_refused_floor_parks_nothing() -> None:
    floor = replace(letter(1), headers=(("pos", b"1"), ("op", b"t")))
    assert Parked("cache", [floor]).keys() == {}


class Untouched(dict[bytes, tuple[int, int]]):
    """Parked keys that must not be walked over."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("as many steps as there are parked keys")


def test_a_small_batch_asks_for_its_own_keys_alone() -> None:
    many = Untouched({b"%d" % number: (0, 5) for number in range(1000)})
    events = parse(records_of(*(KafkaRecord(b"%d" % n, b"{}", sound(), n) for n in (3, 7, 5000)))).events
    free, behind = split_parked(events, {TOPIC: many})
    assert free["offset"].to_pylist() == [3, 5000], "5000 is not parked, and 3 lies before its key's first letter"
    assert behind["offset"].to_pylist() == [7]
    assert replayed(behind, {TOPIC: many}, {TOPIC: {0: 2}}) == {TOPIC: [b"7"]}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=12), st.data())
def test_few_events_and_many_wait_alike(found: list[tuple[int, int]], data: st.DataObject) -> None:
    keys = {b"%d" % n: (data.draw(st.integers(0, 1)), data.draw(st.integers(0, 9))) for n in range(0, 6, 2)}
    events = parse(records_of(*(KafkaRecord(b"%d" % key, b"{}", sound(), offset) for key, offset in found))).events
    few = split_parked(events, {TOPIC: keys | {b"x%d" % n: (0, 0) for n in range(20)}})
    many = split_parked(events, {TOPIC: keys})
    assert [one.to_pylist() for one in few] == [one.to_pylist() for one in many]
