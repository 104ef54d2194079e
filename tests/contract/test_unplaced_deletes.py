"""Deletes of which nothing says exactly where they stand, over every store: Debezium's, of which the cleaner has left
the tombstone alone."""

from __future__ import annotations

import pytest

from cdc.position import Position
from cdc.wire.unplaced import UNPLACED_DELETE_OP
from sinks.batch import Event
from tests.contract.orders import SHAPES, order
from tests.contract.stores import Store, live, rows
from tests.contract.topics import ORDERS, Topic, at, batch


def gone(topic: Topic, number: int, pos: Position) -> Event:
    return topic.raw(topic.key({"id": number}), None, pos.text(), UNPLACED_DELETE_OP, 1)


def test_h570_it_deletes_a_row_that_stands_above_its_place(store: Store) -> None:
    """The row was the partition's last one, the cleaner has taken it, and what is left there lies below it."""
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.upsert(order(1), at(9)), topic.upsert(order(2), at(2))), SHAPES)
    done = sink.sink.apply(batch(gone(topic, 1, at(3)), gone(topic, 2, at(3)), gone(topic, 3, at(3))), SHAPES)
    assert (done.deleted, done.stale, done.refused) == (3, 0, ())
    assert not live(sink, ORDERS)
    # A delete is remembered where the row stood: the row does not come back by its own record.
    assert sink.sink.apply(batch(topic.upsert(order(1), at(8))), SHAPES).stale == 1


def test_h570_what_comes_behind_it_is_taken(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.upsert(order(1), at(5))), SHAPES)
    sink.sink.apply(batch(gone(topic, 1, at(3)), topic.upsert(order(2), at(6))), SHAPES)
    sink.sink.apply(batch(topic.upsert(order(1, "again"), at(7))), SHAPES)
    assert set(live(sink, ORDERS)) == {"1", "2"}


def test_h570_a_row_of_a_later_epoch_is_not_deleted(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.upsert(order(1), at(1, epoch=2)), topic.upsert(order(2), at(5))), SHAPES)
    done = sink.sink.apply(batch(gone(topic, 1, at(9)), gone(topic, 2, at(1, epoch=2))), SHAPES)
    assert (done.deleted, done.stale) == (1, 1)
    assert set(live(sink, ORDERS)) == {"1"}


@pytest.mark.parametrize("at_once", [True, False])
def test_h570_a_floor_above_its_place_hides_no_row(store: Store, at_once: bool) -> None:
    """The floor is above the place that is known, and the row above the floor."""
    sink, topic = store.open(), Topic()
    first = [*topic.truncate(at(5)), topic.upsert(order(1), at(7)), topic.upsert(order(3), at(7))]
    deletes = [gone(topic, 1, at(3)), gone(topic, 2, at(3))]
    if at_once:
        sink.sink.apply(batch(first[1]), SHAPES)
        done = sink.sink.apply(batch(first[0], *first[2:], *deletes), SHAPES)
    else:
        sink.sink.apply(batch(*first), SHAPES)
        done = sink.sink.apply(batch(*deletes), SHAPES)
    assert (done.deleted, done.stale) == (1, 1)
    assert set(live(sink, ORDERS)) == {"3"}
    assert "2" not in rows(sink, ORDERS), "nothing is remembered below a floor"


def test_h578_an_earlier_row_of_the_key_beside_it_is_gone(store: Store) -> None:
    """Letters of two runs, tried again together: the run that read the tombstone had not read the row."""
    sink, topic = store.open(), Topic()
    some = [topic.upsert(order(1), at(5)), topic.upsert(order(2), at(6)), gone(topic, 1, at(3))]
    later = [gone(topic, 2, at(3)), topic.upsert(order(2, "again"), at(9))]
    sink.sink.apply(batch(*later, *some), SHAPES)
    assert set(live(sink, ORDERS)) == {"2"}


def test_h570_a_key_that_cannot_be_read_is_refused(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.upsert(order(1), at(5))), SHAPES)
    strange = topic.raw(b'{"other":1}', None, at(3).text(), UNPLACED_DELETE_OP, 1)
    done = sink.sink.apply(batch(strange, gone(topic, 1, at(3))), SHAPES)
    assert ([one.key for one in done.refused], done.deleted) == ([strange.key], 1)
