"""What a store keeps about itself: when a floor counts, when it is enforced, and what is written of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdc.record.progress import Watermark
from cdc.record.topic_names import TableName
from sinks.contract.store_notes import WATERMARK, FloorMark, Floors, KeptColumns, NotedWatermarks, TableFloor
from tests.unit.connectors.postgres import written as w

ORDERS, OTHERS = TableName("public", "orders"), TableName("public", "others")
LOW, MIDDLE, HIGH = (f"{1:08x}{lsn:016x}{0:08x}" for lsn in (8, 16, 24))


def mark(floor: str, partition: int, of: int = 3, table: TableName = ORDERS) -> FloorMark:
    return FloorMark(table=table, partition=partition, floor=floor, partitions=of)


def told(*marks: FloorMark) -> TableFloor:
    floor = TableFloor()
    for one in marks:
        floor = floor.told(one)
    return floor


class Written(dict[str, bytes]):
    """Notes in memory, and the names that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def read(self) -> Mapping[str, bytes]:
        return dict(self)

    def write(self, name: str, text: bytes) -> None:
        self[name] = text
        self.names.append(name)


def test_h82_a_sweep_counts_once_each_partition_has_told_of_it() -> None:
    assert told(mark(LOW, 0), mark(LOW, 1), mark(LOW, 1)) == TableFloor(sweeps={LOW: (3, frozenset({0, 1}))})
    assert told(mark(LOW, 0), mark(LOW, 1), mark(LOW, 2)) == TableFloor(floor=LOW)
    truncate = FloorMark(table=ORDERS, partition=2, floor=LOW)
    assert told(truncate) == TableFloor(floor=LOW), "a TRUNCATE counts at once"


def test_h99_a_partition_with_a_higher_floor_has_the_lower_too() -> None:
    found = told(mark(LOW, 0), mark(LOW, 1), mark(HIGH, 2))
    assert found == TableFloor(floor=LOW, sweeps={HIGH: (3, frozenset({2}))})
    assert told(mark(HIGH, 0), mark(HIGH, 1), mark(LOW, 2)) == told(mark(HIGH, 0), mark(HIGH, 1), mark(LOW, 2, of=1))


def test_of_several_floors_that_are_whole_the_highest_counts() -> None:
    begun = told(mark(LOW, 0), mark(MIDDLE, 1), mark(HIGH, 0))
    assert begun.told(mark(HIGH, 1, of=2)) == TableFloor(floor=HIGH)
    assert begun.told(mark(MIDDLE, 2, of=1)).floor == MIDDLE


def test_what_is_below_the_floor_or_at_it_changes_nothing() -> None:
    floor = told(mark(MIDDLE, 0, of=1))
    assert floor.told(mark(LOW, 0, of=1)) is floor
    assert floor.told(mark(MIDDLE, 1, of=1)) is floor
    assert floor.told(mark(HIGH, 1)).floor == MIDDLE


def test_a_topic_that_got_more_partitions_has_more_to_tell() -> None:
    assert told(mark(LOW, 0, of=2), mark(LOW, 1, of=3)).floor == ""


def test_a_floor_reads_back() -> None:
    floor = told(mark(LOW, 0, of=1), mark(HIGH, 2), mark(HIGH, 0))
    assert TableFloor.from_json(floor.to_json()) == floor


def test_h23_a_floor_is_enforced_when_whole_and_when_repeated() -> None:
    notes = Written()
    floors = Floors(notes)
    assert floors.tell([mark(LOW, 0), mark(LOW, 1)]) == {}
    assert floors.tell([mark(LOW, 2), mark(HIGH, 0, table=OTHERS)]) == {ORDERS: LOW}
    assert (floors.of(ORDERS), floors.of(OTHERS)) == (LOW, "")
    told_so_far = len(notes.names)
    assert floors.tell([mark(LOW, 1)]) == {ORDERS: LOW}, "the sweep may have been broken off"
    assert floors.tell([mark(HIGH, 0)]) == {}
    assert floors.tell([mark(HIGH, 0)]) == {}
    assert len(notes.names) == told_so_far + 1, "what is known is not written again"
    assert floors.tell([mark(HIGH, 1), mark(HIGH, 2)]) == {ORDERS: HIGH}


def test_h99_a_lower_floor_is_enforced_once_a_higher_is_whole() -> None:
    assert Floors(Written()).tell([mark(LOW, 0, of=2), mark(HIGH, 1, of=2)]) == {ORDERS: LOW}


@pytest.mark.parametrize("shared", [True, False])
def test_floors_of_others_are_seen_where_others_write(shared: bool) -> None:
    notes = Written()
    ours, theirs = Floors(notes, shared=True) if shared else Floors(notes), Floors(notes)
    notes.write(WATERMARK, b"is no floor")
    assert ours.of(ORDERS) == ""
    theirs.tell([mark(LOW, 0, of=1)])
    assert ours.of(ORDERS) == "", "within a batch it stays"
    ours.refresh()
    assert ours.of(ORDERS) == (LOW if shared else "")
    assert Floors(notes).of(ORDERS) == LOW


def test_h84_a_watermark_reads_back_from_the_notes() -> None:
    notes = Written()
    marks = NotedWatermarks(notes)
    assert marks.read() is None
    marks.write(Watermark(epoch=1, lsn=8))
    assert marks.read() == Watermark(epoch=1, lsn=8)


def test_h100_columns_are_noted_when_they_change() -> None:
    notes = Written()
    kept, schema = KeptColumns(notes), w.table(w.column("id", "int8", 0), w.column("note", "text"))
    assert kept.of(schema.table) == frozenset()
    kept.keep(schema)
    kept.keep(replace(schema, columns=schema.columns[::-1]))
    assert len(notes.names) == 1
    assert kept.of(schema.table) == KeptColumns(notes).of(schema.table) == {"id", "note"}
    kept.keep(replace(schema, columns=schema.columns[:1]))
    assert kept.of(schema.table) == KeptColumns(notes).of(schema.table) == {"id"}
    assert Floors(notes).of(schema.table) == "", "and are no floor"
    notes.write(WATERMARK, b"null")
    assert KeptColumns(notes).of(schema.table) == {"id"}, "other notes are no columns"
    kept.drop(schema.table)
    assert kept.of(schema.table) == KeptColumns(notes).of(schema.table) == frozenset()
