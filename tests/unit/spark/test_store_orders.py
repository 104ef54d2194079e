"""Orders and sweeps on a store's thread: on which store they are carried out, in which order, and how often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc.record.progress import Watermark
from cdc.wire.dead_letter import DeadLetter, Why, order, waiting
from spark.stores.place_check import StoreMoved
from spark.stores.store_thread import Store
from spark.stores.watermark import LogEnds
from tests.unit.spark.noted_store import Noted
from tests.unit.spark.records import TOPIC
from tests.unit.spark.test_store import row

SWEPT = Watermark(epoch=2, lsn=64, offsets={TOPIC: {0: 7}}, topic_ids={TOPIC: "id1"})


@pytest.fixture
def bench() -> Iterator[Noted]:
    made = Noted()
    made.view.note_ends(LogEnds(made.clock.monotonic(), {TOPIC: {0: 0}}))
    yield made
    for store in made.stores:
        store.end()


def parked(bench: Noted, *numbers: int) -> Store:
    """A store of which these rows were refused, which it would take by now."""
    bench.memory.refuse = frozenset(map(str, numbers))
    store = bench.begun()
    bench.settle(store, 9, row(9, 0), *(row(number, number) for number in numbers))
    bench.memory.refuse = frozenset()
    return store


def asked(bench: Noted, **orders: Why) -> list[DeadLetter]:
    """Orders by row: ``n1=Why.RETRY``. They are on the topic, too."""
    letters = {one.offset: one for one in bench.dead.letters}
    made = [order(letters[int(name[1:])], why, name) for name, why in orders.items()]
    bench.dead.letters += made
    return made


def answered(bench: Noted) -> list[tuple[Why, int]]:
    return [(one.why, one.offset) for one in bench.dead.letters if one.why in (Why.RELEASED, Why.HELD)]


def hear(store: Store, letters: list[DeadLetter]) -> None:
    store.hear(letters)
    store.run(lambda: None)


def test_a_store_that_was_not_begun_carries_no_order_out(bench: Noted) -> None:
    parked(bench, 1)
    other = bench.store()
    hear(other, asked(bench, n1=Why.RETRY))
    assert (len(bench.opened), answered(bench), other.fault) == (1, [], None)


def test_a_store_with_a_fault_carries_no_order_out(bench: Noted) -> None:
    store = parked(bench, 1)
    store.fault = StoreMoved("found before")
    hear(store, asked(bench, n1=Why.RETRY))
    assert (answered(bench), bench.status(1)) == ([], None)


def test_h84_a_store_that_was_emptied_answers_no_order(bench: Noted) -> None:
    store = parked(bench, 1)
    bench.memory.notes.clear()
    hear(store, asked(bench, n1=Why.RETRY))
    assert isinstance(store.fault, StoreMoved)
    assert store.fault.message == "the store of cache is another one than it was"
    assert (answered(bench), bench.status(1)) == ([], None)


def test_h67_each_order_is_carried_out_once(bench: Noted) -> None:
    """The store's own answers come back to it later than the next order."""
    store = parked(bench, 1, 2)
    assert bench.figures.parked == 2
    hear(store, asked(bench, n1=Why.RETRY))
    assert bench.figures.parked == 1
    hear(store, asked(bench, n2=Why.DROP))
    assert answered(bench) == [(Why.RELEASED, 1), (Why.RELEASED, 2)]
    assert (bench.status(1), bench.status(2), bench.figures.parked) == ("new", None, 0)
    assert waiting(bench.dead.letters) == []


@pytest.mark.parametrize(("first", "opened"), [(Why.DROP, 1), (Why.RETRY, 2)])
def test_one_retry_among_orders_opens_the_store_anew(bench: Noted, first: Why, opened: int) -> None:
    """It sees what was repaired. To forget a letter needs no look."""
    store = parked(bench, 1, 2)
    hear(store, asked(bench, n1=first, n2=Why.DROP))
    assert answered(bench) == [(Why.RELEASED, 1), (Why.RELEASED, 2)]
    assert (len(bench.opened), bench.calls.count("close")) == (opened, opened - 1)


def test_h67_what_was_retried_shows_before_it_is_answered(bench: Noted) -> None:
    store, seen = parked(bench, 1), list[str]()
    made = asked(bench, n1=Why.RETRY)
    bench.dead.look = lambda: seen.extend(bench.calls[-2:])
    hear(store, made)
    assert seen == ["apply", "show"]


def test_orders_and_letters_of_other_stores_are_none_of_ours(bench: Noted) -> None:
    store = parked(bench, 1)
    [mine] = asked(bench, n1=Why.RETRY)
    other = bench.store("search")
    other.run(other.begin)
    hear(other, [mine])
    hear(store, [one for one in bench.dead.letters if one.why.is_letter])
    assert answered(bench) == []
    hear(store, [mine])
    assert answered(bench) == [(Why.RELEASED, 1)]


def test_h85_a_retry_asks_anew_for_versions_that_were_missing(bench: Noted) -> None:
    store = bench.begun()
    bench.settle(store, 2, row(1, 1, ver=9))
    hear(store, asked(bench, n1=Why.RETRY))
    assert store.rules.absent == frozenset()
    before = bench.facts.asked_shapes
    bench.settle(store, 3, row(2, 2, ver=9))
    assert bench.facts.asked_shapes == before + 1
