"""What every store goes through with a batch: places first, newest shape first; and when it begins anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from cdc.errors import ActiveError
from cdc.progress import Watermark
from cdc.schema import TableSchema
from sinks.batch_plan import TableBatch
from sinks.memory import MemoryStore
from sinks.notes import NotedWatermarks
from sinks.port import Applied, PlaceMissing, StoreAway, StoredRow
from sinks.store import StoreSink
from tests.contract.orders import SHAPES, order
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch
from tests.unit.sinks.test_notes import Written


@dataclass
class Tables:
    """A store of tables that notes what it is asked. ``new``: whether a place has to be made."""

    new: bool = False
    missing: bool = False
    steps: list[str] = field(default_factory=list)

    def prepare(self, schema: TableSchema, *, older: bool) -> bool:
        self.steps.append(f"prepare {schema.version}{' older' if older else ''}")
        return self.new

    def write(self, batch: TableBatch) -> Applied:
        self.steps.append(f"write {len(batch)}")
        if self.missing:
            raise PlaceMissing("its table is gone")
        return Applied(applied=len(batch))

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        return {}

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        self.steps.append("sweep")

    def show(self) -> None:
        self.steps.append("show")

    def close(self) -> None:
        self.steps.append("close")


def made(tables: Tables, notes: Written | None = None, *, moved: bool = False) -> StoreSink:
    return StoreSink(tables, notes or Written(), tables, shared=False, moved=lambda: moved)


def test_a_place_is_prepared_once_and_again_where_tables_moved() -> None:
    for moved, again in ((False, []), (True, [f"prepare {ORDERS.version}"])):
        tables, topic = Tables(), Topic()
        sink = made(tables, moved=moved)
        sink.apply(batch(topic.upsert(order(1), at(1))), SHAPES)
        assert tables.steps == [f"prepare {ORDERS.version}", "write 1"]
        assert sink.apply(batch(topic.upsert(order(2), at(2))), SHAPES).applied == 1
        assert tables.steps[2:] == [*again, "write 1"]
    assert made(tables).apply(batch(), SHAPES) == Applied()


def test_the_newest_shape_is_prepared_before_older_rows() -> None:
    newer, tables = replace(ORDERS, version=ORDERS.version + 1), Tables()
    sink, topic = made(tables), Topic()
    for number in (1, 2):
        sink.apply(batch(topic.upsert(order(number), at(number))), Shapes(ORDERS, newer))
    both = [f"prepare {newer.version}", f"prepare {ORDERS.version} older"]
    assert tables.steps == [*both, "write 1", "write 1"]


def test_rows_below_the_floor_ask_the_store_for_nothing() -> None:
    tables, topic = Tables(), Topic()
    sink = made(tables)
    old = topic.upsert(order(1), at(1))
    sink.apply(batch(topic.truncate(at(2))), SHAPES)
    tables.steps.clear()
    assert sink.apply(batch(old), SHAPES) == Applied(stale=1)
    assert tables.steps == []


def test_h100_what_was_known_of_a_missing_place_is_forgotten() -> None:
    tables, topic = Tables(missing=True), Topic()
    sink = made(tables)
    with pytest.raises(PlaceMissing):
        sink.apply(batch(topic.upsert(order(1), at(1))), SHAPES)
    tables.missing = False
    sink.apply(batch(topic.upsert(order(1), at(1))), SHAPES)
    assert tables.steps == [f"prepare {ORDERS.version}", "write 1"] * 2


@pytest.mark.parametrize(
    ("new", "offsets", "kept"),
    [
        (True, {ORDERS.topic: {0: 7}}, False),
        (True, {ORDERS.topic: {0: 0}}, True),
        (True, {"shop.public.others": {0: 7}}, True),
        (False, {ORDERS.topic: {0: 7}}, True),
    ],
)
def test_h84_a_store_that_lost_a_tables_place_begins_anew(
    new: bool, offsets: dict[str, dict[int, int]], kept: bool
) -> None:
    notes = Written()
    marks = NotedWatermarks(notes)
    mark = Watermark(epoch=1, lsn=8, offsets=offsets)
    marks.write(mark)
    made(Tables(new=new), notes).prepare(ORDERS)
    assert marks.read() == (mark if kept else None)


def test_h470_nothing_is_claimed_before_a_place_is_made_anew() -> None:
    """Behind a kill nobody could tell the new place from one that has all rows."""
    notes, tables = Written(), Tables(new=True)
    marks = NotedWatermarks(notes)
    marks.write(Watermark(epoch=1, lsn=8, offsets={ORDERS.topic: {0: 7}}))

    def missing(schema: TableSchema) -> bool:
        tables.steps.append(f"is {schema.table.table} missing?")
        return True

    class Watched(Tables):
        def prepare(self, schema: TableSchema, *, older: bool) -> bool:
            assert marks.read() is None
            return super().prepare(schema, older=older)

    watched = Watched(new=True, steps=tables.steps)
    StoreSink(watched, notes, watched, shared=False, missing=missing).prepare(ORDERS)
    assert tables.steps == ["is orders missing?", f"prepare {ORDERS.version}"]


def test_a_floor_is_noted_before_the_sweep_and_rows_come_after() -> None:
    tables, topic = Tables(), Topic()
    sink = made(tables)
    sink.apply(batch(topic.truncate(at(2)), topic.upsert(order(1), at(3))), SHAPES)
    sink.show()
    sink.close()
    assert tables.steps == [f"prepare {ORDERS.version}", "sweep", "write 1", "show", "close"]


@pytest.mark.parametrize("shared", [True, False])
def test_h473_rows_below_a_floor_of_others_go_again(shared: bool) -> None:
    """It is raised while they are written: an executor looks behind each batch, and who leads where it is refused."""
    notes, topic = Written(), Topic()
    raised = StoreSink(Tables(), notes, Tables(), shared=True)

    class Slow(Tables):
        def write(self, batch_of_table: TableBatch) -> Applied:
            raised.apply(batch(topic.truncate(at(5))), SHAPES)
            return super().write(batch_of_table)

    tables = Slow()
    sink = StoreSink(tables, notes, tables, shared=shared)
    sink.apply(batch(topic.upsert(order(1), at(3))), SHAPES)
    written = [f"prepare {ORDERS.version}", "write 1"]
    assert tables.steps == ([*written, "sweep"] if shared else written)
    sink.sweep_late()
    assert tables.steps == [*written, "sweep"], "once"


def test_h473_rows_that_cannot_be_removed_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise ActiveError("another one feeds the store")

    def fail() -> None:
        raise StoreAway("the store is away")

    opened = replace(MemoryStore().open(), sweep_late=fail)
    with pytest.raises(ActiveError, match="another one feeds"):
        opened.commit(Watermark(epoch=1, lsn=8, offsets={}), refuse)
    [told] = [record for record in caplog.records if record.getMessage() == "late_rows_left"]
    assert vars(told)["reason"] == "the store is away"
