"""Values that a change left out, over every store: filled from the batch or from the stored row, or passed over."""

from __future__ import annotations

from tests.contract.orders import SHAPES, order
from tests.contract.stores import Store, live
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
