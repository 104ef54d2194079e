"""Floors, over every store: what a TRUNCATE or a finished sweep puts an end to stays away."""

from __future__ import annotations

import pytest

from cdc.process.errors import ActiveError
from cdc.record.progress import Watermark
from sinks.contract.batch import Event
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store, live
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, chunk_at, column, shape


def test_h44_a_truncate_sets_a_floor_for_every_partition(store: Store) -> None:
    sink, topic = store.open(), Topic(partitions=4)
    old = [topic.upsert(order(n, "old"), at(n)) for n in range(8)]
    sink.sink.apply(batch(old[:4]), SHAPES)
    floor = topic.truncate(at(20))
    new = [topic.upsert(order(n, "new"), at(20, 2 + n)) for n in (0, 100)]
    # One partition tells of the truncate first; the others still bring what was before it.
    sink.sink.apply(batch(floor[0], new), SHAPES)
    assert statuses(sink) == {"0": "new", "100": "new"}
    done = sink.sink.apply(batch(old, floor[1:]), SHAPES)
    assert done.stale == 8
    assert statuses(sink) == {"0": "new", "100": "new"}


def test_h74_a_floor_outlives_a_restart(store: Store) -> None:
    first, topic = store.open(), Topic(partitions=2)
    old = [topic.upsert(order(n, "old"), at(n)) for n in range(4)]
    first.sink.apply(batch(topic.truncate(at(9))), SHAPES)
    first.commit(Watermark(epoch=1, lsn=9))
    first.close()
    second = store.open()
    assert second.sink.apply(batch(old), SHAPES).stale == 4
    assert live(second, ORDERS) == {}


def test_a_floor_raised_by_one_process_holds_in_the_others(store: Store) -> None:
    driver, task, topic = store.open(parallel=True), store.open(parallel=True), Topic(partitions=2)
    old = topic.upsert(order(1, "old"), at(1))
    task.sink.apply(batch(old), SHAPES)
    task.sink.show()
    driver.sink.apply(batch(topic.truncate(at(9))), SHAPES)
    driver.sink.show()
    assert task.sink.apply(batch(old), SHAPES).stale == 1
    task.sink.show()
    assert live(driver, ORDERS) == {}


def test_a_floor_is_one_tables_alone(store: Store) -> None:
    other = shape(column("id", "int8", key=1), column("status", "text"), column("note", "text"), table="others")
    sink, topic, second = store.open(), Topic(), Topic(other)
    shapes = Shapes(ORDERS, other)
    sink.sink.apply(batch(topic.upsert(order(1), at(1)), second.upsert(order(1), at(1))), shapes)
    sink.sink.apply(batch(topic.truncate(at(2))), shapes)
    assert live(sink, ORDERS) == {}
    assert list(live(sink, other)) == ["1"]


def test_rows_and_their_truncate_in_one_batch(store: Store) -> None:
    sink, topic = store.open(), Topic()
    events: list[Event | list[Event]] = [
        topic.upsert(order(1, "old"), at(1)),
        topic.truncate(at(2)),
        topic.upsert(order(2, "new"), at(3)),
    ]
    done = sink.sink.apply(batch(*events), SHAPES)
    assert (done.applied, done.stale) == (1, 1)
    assert statuses(sink) == {"2": "new"}


def test_h23_h82_a_sweep_waits_for_the_mark_of_each_partition(store: Store) -> None:
    sink, topic = store.open(), Topic(partitions=3)
    gone = [topic.upsert(order(n, "gone"), at(n)) for n in range(6)]
    sink.sink.apply(batch(gone), SHAPES)
    alive = [topic.row("r", order(n, "alive"), chunk_at(10 + n)) for n in (1, 4)]
    marks = topic.sweep(chunk_at(10), chunk_at(20))
    sink.sink.apply(batch(marks[0], marks[2]), SHAPES)
    sink.sink.apply(batch(marks[0]), SHAPES)
    assert len(live(sink, ORDERS)) == 6
    restarted = store.open()
    restarted.sink.apply(batch(alive), SHAPES)
    restarted.sink.apply(batch(marks[1]), SHAPES)
    assert statuses(restarted) == {"1": "alive", "4": "alive"}
    later = topic.upsert(order(0, "later"), at(11))
    restarted.sink.apply(batch(later), SHAPES)
    assert statuses(restarted) == {"0": "later", "1": "alive", "4": "alive"}


def test_h473_a_late_writers_rows_below_a_floor_go_again(store: Store) -> None:
    """It stood still while another one carried out the TRUNCATE, and hears of it where it wants to claim its rows."""
    late, topic = store.open(), Topic()
    late.sink.apply(batch(topic.upsert(order(1), at(1))), SHAPES)
    late.commit(Watermark(epoch=1, lsn=8, offsets={ORDERS.topic: {0: 1}}))
    other = store.open()
    other.sink.apply(batch(topic.truncate(at(5)), topic.upsert(order(3), at(6))), SHAPES)
    other.commit(Watermark(epoch=1, lsn=16, offsets={ORDERS.topic: {0: 3}}))
    late.sink.apply(batch(topic.upsert(order(2), at(3))), SHAPES)

    def refused() -> None:
        raise ActiveError("another one feeds the store")

    with pytest.raises(ActiveError):
        late.commit(Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 2}}), refused)
    late.close()
    assert statuses(store.open()) == {"3": "open"}
