"""The three kinds of a store's errors, over every store: away, place missing, cannot take (hazard H100)."""

from __future__ import annotations

import pytest

from cdc.process.errors import Retry
from cdc.record.progress import Watermark
from sinks.contract.port import CannotCarry, OpenSink, PlaceMissing
from tests.contract import damage
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store, live
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape

BESIDE = shape(column("id", "int8", key=1), column("n", "int4"), table="others")
BOTH = Shapes(ORDERS, BESIDE)
MARK = Watermark(epoch=1, lsn=8, offsets={ORDERS.topic: {0: 1}, BESIDE.topic: {0: 1}})


def fed(store: Store) -> tuple[OpenSink, Topic, Topic]:
    """A sink that has written a row of each of two tables, and its watermark."""
    sink, topic, beside = store.open(), Topic(), Topic(BESIDE)
    sink.sink.apply(batch(topic.upsert(order(1), at(1)), beside.upsert({"id": 1, "n": 1}, at(1))), BOTH)
    sink.commit(MARK)
    return sink, topic, beside


def without_places(store: Store) -> None:
    if store.kind == "redis":
        pytest.skip("a table has no place of its own in a cache")


@pytest.mark.by_spark
def test_h100_a_place_that_was_removed_is_missing_and_made_anew(store: Store) -> None:
    without_places(store)
    sink, topic, _ = fed(store)
    damage.drop(store)
    with pytest.raises(PlaceMissing, match=r"public\.orders: .* was removed") as missing:
        sink.sink.apply(batch(topic.upsert(order(2), at(2))), BOTH)
    assert missing.value.retry is Retry.NOW
    sink.close()
    again = store.open()
    assert again.places.read(ORDERS) is None, "what it has lost comes from the beginning of the log"
    again.sink.prepare(ORDERS)
    assert again.sink.apply(batch(topic.events), BOTH).refused == ()
    assert statuses(again) == {"1": "open", "2": "open"}


def test_h100_a_place_removed_is_missing_to_looks_and_floors_too(store: Store) -> None:
    without_places(store)
    sink, topic, _ = fed(store)
    damage.drop(store)
    lacking = topic.row("u", {"id": 1, "status": "paid", "note": "__debezium_unavailable_value"}, at(2))
    with pytest.raises(PlaceMissing):
        sink.sink.apply(batch(lacking), BOTH)
    floored = store.open()
    floored.sink.prepare(ORDERS)
    damage.drop(store)
    with pytest.raises(PlaceMissing):
        floored.sink.apply(batch(topic.truncate(at(3)), topic.upsert(order(2), at(4))), BOTH)


@pytest.mark.by_spark("iceberg")
def test_h100_a_table_that_takes_nothing_is_told_from_the_others(store: Store) -> None:
    without_places(store)
    sink, topic, beside = fed(store)
    damage.close(store)
    rows = [topic.upsert(order(number), at(number)) for number in range(2, 40)]
    with pytest.raises(CannotCarry, match=r"public\.orders: ") as refusal:
        sink.sink.apply(batch(rows), BOTH)
    assert refusal.value.table == ORDERS.table
    other = beside.upsert({"id": 2, "n": 2}, at(2))
    assert sink.sink.apply(batch(other), BOTH).applied == 1
    sink.commit(MARK)
    assert sorted(live(sink, BESIDE)) == ["1", "2"]
    damage.reopen(store)
    again = store.open()
    assert again.sink.apply(batch(rows), BOTH).applied == len(rows)
    assert len(statuses(again)) == 39


def test_h100_a_column_of_the_users_that_asks_for_a_value(store: Store) -> None:
    """Not one key after the other is parked: the table as a whole takes nothing until the column is changed."""
    if store.kind not in damage.SQL:
        pytest.skip("no column asks for a value there")
    sink, topic, beside = fed(store)
    damage.demand(store)
    rows = [topic.upsert(order(number), at(number)) for number in range(2, 40)]
    with pytest.raises(CannotCarry, match=r"public\.orders: ") as refusal:
        sink.sink.apply(batch(rows), BOTH)
    assert refusal.value.table == ORDERS.table
    assert "mine" in refusal.value.message
    assert sink.sink.apply(batch(beside.upsert({"id": 2, "n": 2}, at(2))), BOTH).applied == 1
    sink.commit(MARK)
    damage.demand_no_more(store)
    again = store.open()
    assert again.sink.apply(batch(rows), BOTH).applied == len(rows)
    assert len(statuses(again)) == 39


def test_h100_a_first_look_at_a_table_that_takes_nothing_says_so(store: Store) -> None:
    if store.kind in ("redis", "delta"):
        pytest.skip("found out by the first row")
    sink, topic, _ = fed(store)
    sink.close()
    damage.close(store)
    again = store.open()
    with pytest.raises(CannotCarry):
        again.sink.prepare(ORDERS)
    again.sink.prepare(BESIDE)
    damage.reopen(store)
    again.sink.prepare(ORDERS)
    assert again.sink.apply(batch(topic.upsert(order(2), at(2))), SHAPES).applied == 1
