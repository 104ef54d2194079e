"""The order of a sink, over every store: newer wins, whatever comes when, and deletes are remembered."""

from __future__ import annotations

import orjson
import pytest

from sinks.contract.batch import events_of
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store, live, rows
from tests.contract.topics import ORDERS, Topic, at, batch, chunk_at, snapshot_at
from tests.single_rows import canonical_row


def test_a_row_is_there_after_show(store: Store) -> None:
    sink, topic = store.open(), Topic()
    done = sink.sink.apply(batch(topic.row("c", order(1), at(1))), SHAPES)
    assert (done.applied, done.deleted, done.stale, done.refused) == (1, 0, 0, ())
    assert rows(sink, ORDERS)["1"].pos == at(1).text()
    assert live(sink, ORDERS) == {"1": canonical_row(orjson.dumps(order(1)), ORDERS)}


def test_an_empty_batch_does_nothing(store: Store) -> None:
    sink = store.open()
    assert sink.sink.apply(events_of([]), SHAPES).applied == 0
    assert rows(sink, ORDERS) == {}
    assert sink.watermarks.read() is None


def test_the_newest_of_a_batch_wins_whatever_its_place(store: Store) -> None:
    sink, topic = store.open(), Topic()
    events = [topic.upsert(order(1, str(n)), at(n)) for n in range(5)]
    done = sink.sink.apply(batch(events[4], events[0], events[2]), SHAPES)
    assert done.applied == 1
    assert statuses(sink) == {"1": "4"}


def test_an_older_event_in_a_later_batch_is_stale(store: Store) -> None:
    sink, topic = store.open(), Topic()
    old, new = topic.upsert(order(1, "old"), at(1)), topic.upsert(order(1, "new"), at(2))
    sink.sink.apply(batch(new), SHAPES)
    done = sink.sink.apply(batch(old), SHAPES)
    assert (done.applied, done.stale) == (0, 1)
    assert statuses(sink) == {"1": "new"}


def test_h10_changes_of_one_commit_are_ordered_by_their_number(store: Store) -> None:
    sink, topic = store.open(), Topic()
    events = [topic.upsert(order(1, str(n)), at(1, n)) for n in (1, 2, 3)]
    sink.sink.apply(batch(*events), SHAPES)
    assert statuses(sink) == {"1": "3"}


def test_h18_h21_a_snapshot_row_never_covers_a_streamed_change(store: Store) -> None:
    sink, topic = store.open(), Topic()
    # A streamed commit may have the very LSN of the consistent point: its number decides.
    streamed, row = topic.upsert(order(1, "streamed"), at(5, 1)), topic.row("r", order(1, "read"), snapshot_at(5))
    sink.sink.apply(batch(streamed), SHAPES)
    assert sink.sink.apply(batch(row), SHAPES).stale == 1
    assert statuses(sink) == {"1": "streamed"}


@pytest.mark.by_spark
def test_h22_h65_h66_a_delete_is_remembered_against_older_rows(store: Store) -> None:
    sink, topic = store.open(), Topic()
    row = topic.row("r", order(1), snapshot_at(1))
    done = sink.sink.apply(batch(topic.delete(order(1), at(2))), SHAPES)
    assert (done.applied, done.deleted) == (0, 1)
    assert sink.sink.apply(batch(row), SHAPES).stale == 1
    assert live(sink, ORDERS) == {}
    again = store.open()
    again.sink.apply(batch(row), SHAPES)
    assert live(again, ORDERS) == {}
    assert rows(again, ORDERS)["1"].deleted


def test_a_delete_of_a_row_that_is_there(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.row("c", order(1), at(1)), topic.row("c", order(2), at(1, 2))), SHAPES)
    sink.sink.apply(batch(topic.delete(order(1), at(2))), SHAPES)
    assert statuses(sink) == {"2": "open"}


def test_h43_deleted_and_written_again_in_one_transaction(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.row("c", order(1, "first"), at(1))), SHAPES)
    gone, again = topic.delete(order(1), at(2, 1)), topic.row("c", order(1, "again"), at(2, 3))
    sink.sink.apply(batch(again, gone), SHAPES)
    assert statuses(sink) == {"1": "again"}
    sink.sink.apply(batch(gone), SHAPES)
    sink.sink.apply(batch(again), SHAPES)
    assert statuses(sink) == {"1": "again"}


def test_h43_written_and_deleted_in_one_transaction(store: Store) -> None:
    sink, topic = store.open(), Topic()
    made, gone = topic.row("c", order(1), at(2, 1)), topic.delete(order(1), at(2, 2))
    sink.sink.apply(batch(gone, made), SHAPES)
    assert live(sink, ORDERS) == {}


def test_h77_of_two_chunks_at_one_position_the_later_stays(store: Store) -> None:
    sink, topic = store.open(), Topic()
    first, second = (topic.row("r", order(1, s), chunk_at(7)) for s in ("first", "second"))
    sink.sink.apply(batch(second, first), SHAPES)
    assert statuses(sink) == {"1": "second"}
    third = topic.row("r", order(1, "third"), chunk_at(7))
    sink.sink.apply(batch(third), SHAPES)
    assert statuses(sink) == {"1": "third"}


def test_h83_a_replayed_event_never_covers_a_row_of_its_commit(store: Store) -> None:
    sink, topic = store.open(), Topic()
    event, row = topic.upsert(order(1, "event"), at(7, 3)), topic.row("r", order(1, "chunk"), chunk_at(7))
    sink.sink.apply(batch(event, row), SHAPES)
    assert sink.sink.apply(batch(event), SHAPES).stale == 1
    assert statuses(sink) == {"1": "chunk"}


def test_h6_h83_a_new_epoch_wins_with_a_lower_lsn(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.upsert(order(1, "before"), at(900))), SHAPES)
    sink.sink.apply(batch(topic.upsert(order(1, "after"), at(3, epoch=2))), SHAPES)
    assert statuses(sink) == {"1": "after"}


@pytest.mark.by_spark
def test_h63_a_batch_may_come_again_whole_or_in_part(store: Store) -> None:
    sink, topic = store.open(), Topic()
    for number in range(20):
        topic.upsert(order(number % 5, str(number)), at(number))
    topic.delete(order(3), at(30))
    whole = events_of(topic.events)
    sink.sink.apply(whole, SHAPES)
    before = rows(sink, ORDERS)
    sink.sink.apply(whole, SHAPES)
    sink.sink.apply(whole.slice(0, 7), SHAPES)
    assert rows(sink, ORDERS) == before
