"""Values that a change left out, over every store: filled from the batch or from the stored row, or refused."""

from __future__ import annotations

import pytest

from cdc.position import Position
from cdc.wire.unavailable import NULL_OR_UNCHANGED
from tests.contract.orders import SHAPES, order
from tests.contract.stores import Store, live, rows
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape
from tests.single_rows import canonical_row


def test_h38_an_unavailable_value_comes_from_the_batch(store: Store) -> None:
    sink, topic = store.open(), Topic()
    made = topic.row("c", {"id": 1, "status": "a", "note": "a long note"}, at(1))
    other = topic.upsert({"id": 1, "status": "b", "note": "__debezium_unavailable_value"}, at(2))
    last = topic.upsert({"id": 1, "status": "c", "note": "__debezium_unavailable_value"}, at(3))
    done = sink.sink.apply(batch(last, made, other), SHAPES)
    assert done.applied == 1
    assert live(sink, ORDERS)["1"] == canonical_row(b'{"id":1,"status":"c","note":"a long note"}', ORDERS)


def test_h38_an_unavailable_value_comes_from_an_earlier_shape(store: Store) -> None:
    columns = (column("id", "int8", key=1), column("status", "text"), column("note", "text"))
    later = shape(*columns, column("added", "int4"), version=2)
    sink, shapes, topic, grown = store.open(), Shapes(ORDERS, later), Topic(), Topic(later)
    lacking = {"id": 1, "status": "c", "note": "__debezium_unavailable_value"}
    sink.sink.apply(batch(topic.row("c", {"id": 1, "status": "a", "note": "old"}, at(1))), shapes)
    new = topic.upsert({"id": 1, "status": "b", "note": "new"}, at(2))
    last = grown.upsert({**lacking, "added": 5}, at(4))._replace(offset=9)
    done = sink.sink.apply(batch(new, topic.upsert(lacking, at(3)), last), shapes)
    assert (done.applied, done.refused) == (1, ())
    assert live(sink, later)["1"] == canonical_row(b'{"id":1,"status":"c","note":"new","added":5}', later)


def test_h38_an_unavailable_value_comes_from_the_store(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.row("c", {"id": 1, "status": "a", "note": "a long note"}, at(1))), SHAPES)
    last = topic.upsert({"id": 1, "status": "c", "note": "__debezium_unavailable_value"}, at(3))
    done = sink.sink.apply(batch(last, topic.upsert(order(2), at(4))), SHAPES)
    assert (done.applied, done.refused) == (2, ())
    assert live(sink, ORDERS)["1"] == canonical_row(b'{"id":1,"status":"c","note":"a long note"}', ORDERS)


def debezium_at(lsn: int) -> Position:
    """Between two commits, without a number in the transaction."""
    return Position(at(lsn).epoch, at(lsn).commit_lsn + 1, 0)


def test_h38_a_value_that_nobody_has_is_refused(store: Store) -> None:
    sink, topic = store.open(), Topic()
    unknown = topic.upsert({"id": 1, "status": "c", "note": "__debezium_unavailable_value"}, debezium_at(3))
    created = topic.row("c", {"id": 2, "status": "c", "note": "__debezium_unavailable_value"}, debezium_at(4))
    sink.sink.apply(batch(topic.row("c", {"id": 2, "status": "c", "note": "another row's"}, at(1))), SHAPES)
    done = sink.sink.apply(batch(unknown, created, topic.upsert(order(3), at(4))), SHAPES)
    assert [refused.key for refused in done.refused] == [unknown.key, created.key]
    assert all("note" in refused.reason for refused in done.refused)
    assert done.applied == 1
    assert "1" not in rows(sink, ORDERS)


def test_h38_a_row_gone_when_capture_asked_parks_nothing(store: Store) -> None:
    """Its key moved, the moved row was deleted before the value was looked up, and a batch ends in between (found by
    the laboratory: in schedules of stores)."""
    sink, topic = store.open(), Topic()
    moved = topic.row("c", {"id": 2, "status": "c", "note": "__debezium_unavailable_value"}, at(4))
    done = sink.sink.apply(batch(moved, topic.upsert(order(3), at(4, 2))), SHAPES)
    assert (done.applied, done.stale, done.refused) == (1, 1, ())
    again = topic.row("c", {"id": 2, "status": "d", "note": "new"}, at(6))
    done = sink.sink.apply(batch(*topic.delete({"id": 2}, at(5)), again), SHAPES)
    assert (done.applied, done.refused) == (1, ())
    assert live(sink, ORDERS)["2"] == canonical_row(b'{"id":2,"status":"d","note":"new"}', ORDERS)


@pytest.mark.parametrize("at_once", [True, False])
def test_h125_a_null_that_may_be_an_unchanged_value_is_refused(store: Store, at_once: bool) -> None:
    """Debezium has no placeholder for some types: what was there may be gone, or not."""
    sink, topic = store.open(), Topic()
    made = topic.row("c", {"id": 1, "status": "a", "note": "long"}, at(1))
    unsaid = topic.upsert({"id": 1, "status": "b", "note": NULL_OR_UNCHANGED}, debezium_at(2))
    unheld = topic.upsert({"id": 2, "status": "b", "note": NULL_OR_UNCHANGED}, debezium_at(2))
    batches = [[made, unsaid, unheld]] if at_once else [[made], [unsaid, unheld]]
    refused = [one for events in batches for one in sink.sink.apply(batch(*events), SHAPES).refused]
    assert {one.key for one in refused} == {unsaid.key, unheld.key}
    assert all("became NULL or did not change" in one.reason for one in refused)


@pytest.mark.parametrize("at_once", [True, False])
def test_h125_where_null_was_held_it_is_null_either_way(store: Store, at_once: bool) -> None:
    sink, topic = store.open(), Topic()
    made = topic.row("c", {"id": 1, "status": "a", "note": None}, at(1))
    unsaid = topic.upsert({"id": 1, "status": "b", "note": NULL_OR_UNCHANGED}, debezium_at(2))
    again = topic.upsert({"id": 1, "status": "c", "note": NULL_OR_UNCHANGED}, debezium_at(3))
    batches = [[made, unsaid, again]] if at_once else [[made], [unsaid], [again]]
    assert [sink.sink.apply(batch(*events), SHAPES).refused for events in batches] == [()] * len(batches)
    assert live(sink, ORDERS)["1"] == canonical_row(b'{"id":1,"status":"c","note":null}', ORDERS)
