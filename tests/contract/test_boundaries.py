"""Exactly at the border: a position that equals the floor, the stored one, the mark. One step off loses rows."""

from __future__ import annotations

import orjson
import pytest

from cdc.record.progress import Watermark
from sinks.contract.batch import Event
from sinks.contract.port import OpenSink
from sinks.contract.store import StoreSink
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store
from tests.contract.topics import Topic, at, batch, chunk_at


@pytest.mark.by_spark
def test_h23_a_row_exactly_at_the_floor_outlives_the_sweep(store: Store) -> None:
    """The first chunk of a reading stands where its sweep's floor does."""
    sink, topic = store.open(), Topic(partitions=2)
    below = topic.row("r", order(1, "below"), at(10, 0xFFFFFFFE))
    first = [topic.row("r", order(2, "at it"), chunk_at(10)), topic.row("r", order(3, "at it"), chunk_at(10))]
    sink.sink.apply(batch(below, first), SHAPES)
    sink.sink.show()
    sink.sink.apply(batch(topic.sweep(chunk_at(10), chunk_at(20))), SHAPES)
    assert statuses(sink) == {"2": "at it", "3": "at it"}
    again = store.open()
    assert again.sink.apply(batch(below, first), SHAPES).stale == 1, "and again where it comes after the floor"
    assert statuses(again) == {"2": "at it", "3": "at it"}


def test_h44_a_row_at_its_truncate_s_own_position_stays(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.upsert(order(1), at(5, 7))), SHAPES)
    sink.sink.apply(batch(topic.upsert(order(2), at(5, 6)), topic.truncate(at(5, 7))), SHAPES)
    assert statuses(sink) == {"1": "open"}


@pytest.mark.parametrize("delete", [False, True])
def test_h77_at_the_stored_position_the_later_call_wins(store: Store, delete: bool) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.upsert(order(1, "first"), chunk_at(7))), SHAPES)
    below = topic.upsert(order(1, "below"), at(7, 0xFFFFFFFE))
    assert sink.sink.apply(batch(below), SHAPES).stale == 1
    equal = Topic()._append(topic.key(order(1)), None, chunk_at(7), "d") if delete else None
    done = sink.sink.apply(batch(equal or topic.upsert(order(1, "second"), chunk_at(7))), SHAPES)
    assert (done.applied, done.deleted, done.stale) == (0 if delete else 1, 1 if delete else 0, 0)
    assert statuses(sink) == ({} if delete else {"1": "second"})


def test_h74_a_floor_is_noted_before_anything_is_swept(store: Store) -> None:
    """A sweep that is broken off goes on below the same floor; without it, replayed rows would come back."""
    sink, topic = store.open(), Topic()
    old = topic.upsert(order(1, "old"), at(1))
    sink.sink.apply(batch(old), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=8))
    _break_off(sink)
    with pytest.raises(_BrokenOff):
        sink.sink.apply(batch(topic.truncate(at(9))), SHAPES)
    if store.kind.startswith(("sqlite", "postgres")):
        # There the note would go with the transaction: it is rolled back as one.
        sink.watermarks.write(Watermark(epoch=1, lsn=8))
    sink.close()
    again = store.open()
    assert again.sink.apply(batch(old), SHAPES).stale == 1


class _BrokenOff(Exception):
    pass


class _Sweepless:
    """A store that fails at its sweep."""

    def __init__(self, tables: object) -> None:
        self._tables = tables

    def __getattr__(self, name: str) -> object:
        return getattr(self._tables, name)

    def remove_below(self, schema: object, floor: str) -> None:
        raise _BrokenOff


def _break_off(sink: OpenSink) -> None:
    opened = sink.sink
    assert isinstance(opened, StoreSink)
    tables: object = opened._store
    opened._store = _Sweepless(tables)  # type: ignore[assignment]


def test_h82_the_last_partition_s_mark_and_no_earlier_one_sweeps(store: Store) -> None:
    sink, topic = store.open(), Topic(partitions=2)
    sink.sink.apply(batch(topic.upsert(order(1), at(1))), SHAPES)
    first, last = topic.sweep(chunk_at(10), chunk_at(20))
    for mark in (first, _moved(first)):
        sink.sink.apply(batch(mark), SHAPES)
    assert statuses(sink) == {"1": "open"}
    sink.sink.apply(batch(last), SHAPES)
    assert statuses(sink) == {}


def _moved(mark: Event) -> Event:
    """The same mark, as a partition tells it that was written again."""
    return mark._replace(offset=mark.offset + 100, value=orjson.dumps(orjson.loads(mark.value or b"")))
