"""Any order and any repetition of a topic's records leave a store the same."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc.record.position import Position
from sinks.contract.batch import events_of
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store
from tests.contract.topics import Topic


def as_in_a_topic(drawn: list[tuple[str, int, Position, str]]) -> list[tuple[str, int, Position, str]]:
    """In the order of positions, each streamed position once, deletes and truncates streamed."""
    made: dict[object, tuple[str, int, Position, str]] = {}
    for op, number, pos, text in drawn:
        place = pos if op in "ur" or pos.streamed else pos._replace(tx_seq=30)
        made[place if place.streamed else (place, number, text)] = (op, number, place, text)
    return sorted(made.values(), key=lambda change: change[2])


positions = st.builds(
    Position, st.just(1), st.integers(1, 6).map(lambda n: 0x1000000 + n * 8), st.sampled_from([0, 10, 20, 0xFFFFFFFF])
)
# Postgres has no NUL in a text, neither as a source nor as a store.
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3)
changes = st.lists(
    st.tuples(st.sampled_from("urdt"), st.integers(1, 4), positions, words), min_size=1, max_size=14
).map(as_in_a_topic)


EXAMPLES = 12


@pytest.mark.slow
def test_any_order_and_any_repetition_end_the_same(store: Store) -> None:
    """Per key the newest by (pos, offset) above the floor; what came before is replayed in any order first."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(changes=changes, seed=st.integers(0, 2**16), cuts=st.lists(st.integers(0, 14), max_size=3))
    def ends_the_same(changes: list[tuple[str, int, Position, str]], seed: int, cuts: list[int]) -> None:
        in_any_order(store, changes, seed, cuts)

    ends_the_same()


def in_any_order(store: Store, changes: list[tuple[str, int, Position, str]], seed: int, cuts: list[int]) -> None:
    """One example, in a corner of its own."""
    corner = store.fresh()
    sink, topic, model = corner.open(), Topic(), dict[int, tuple[str, int, str | None]]()
    floor = ""
    for op, number, pos, text in changes:
        offset = len(topic.events)
        if op == "t":
            topic.truncate(pos)
            floor = max(floor, pos.text())
        elif op == "d":
            gone = topic.delete(order(number), pos)
            model[number] = max(model.get(number, ("", -1, None)), (gone[-1].pos or "", offset + 1, None))
        else:
            topic.row(op, order(number, text), pos)
            model[number] = max(model.get(number, ("", -1, None)), (pos.text(), offset, text))
    shuffled = topic.events[:]
    random.Random(seed).shuffle(shuffled)
    sink.sink.apply(events_of(shuffled[: len(shuffled) // 2]), SHAPES)
    edges = sorted({0, len(topic.events), *(min(cut, len(topic.events)) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        sink.sink.apply(events_of(topic.events[start:end]), SHAPES)
        sink.sink.apply(events_of(topic.events[start:end]), SHAPES)
    expected = {str(n): text for n, (pos, _, text) in model.items() if text is not None and pos >= floor}
    assert statuses(sink) == expected
