"""What every store goes through with a batch: places first, newest shape first; and when it begins anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from cdc.process.errors import ActiveError
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.batch_plan import TableBatch
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import Applied, PlaceMissing, StoreAway, StoredRow
from sinks.contract.store import StoreSink
from sinks.contract.table_places import Places, PlaceStep, TablePlace
from tests.contract.orders import SHAPES, order
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch
from tests.unit.sinks.contract.test_notes import Written


@dataclass
class Tables:
    """A store of tables that notes what it is asked."""

    missing: bool = False
    steps: list[str] = field(default_factory=list)

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        self.steps.append(f"prepare {schema.version}{' older' if older else ''}")

    def write(self, batch: TableBatch) -> Applied:
        self.steps.append(f"write {len(batch)}{' place' if batch.place is not None else ''}")
        if self.missing:
            raise PlaceMissing("its table is gone")
        return Applied(applied=len(batch))

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        return {}

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        self.steps.append("sweep")

    def place(self, schema: TableSchema) -> bytes | None:
        return None

    def put_places(self, steps: Sequence[PlaceStep]) -> None:
        self.steps += [f"place {step.schema.table.table}" for step in steps]

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        self.steps.append("empty" if empty else "keep")

    def show(self) -> None:
        self.steps.append("show")

    def close(self) -> None:
        self.steps.append("close")


def made(tables: Tables, notes: Written | None = None, *, moved: bool = False) -> StoreSink:
    return StoreSink(tables, notes or Written(), tables, places=Places(tables), shared=False, moved=lambda: moved)


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


def led(tables: Tables) -> tuple[StoreSink, Places]:
    """A sink whose store writes a place with rows, and a batch that leads to one."""
    places = Places(tables, with_rows=True)
    places.lead([(ORDERS, TablePlace(topic_id="id", offsets={0: 9}))])
    return StoreSink(tables, Written(), tables, places=places, shared=False), places


def test_a_place_goes_with_the_last_rows_of_a_batch() -> None:
    tables, topic = Tables(), Topic()
    sink, places = led(tables)
    lacking = topic.row("u", {"id": 2, "status": "paid", "note": "__debezium_unavailable_value"}, at(2))
    sink.apply(batch(topic.upsert(order(1), at(1))), SHAPES)
    assert tables.steps[-1] == "write 1 place"
    places.finish()
    assert tables.steps[-1] == "write 1 place", "it is written"
    sink, places = led(tables)
    sink.apply(batch(topic.upsert(order(1), at(3)), lacking), SHAPES)
    assert "write 1" in tables.steps[-2:], "a part of its rows has no place"
    places.finish()
    assert tables.steps[-1] == "place orders"


def test_a_place_waits_for_what_stood_before_a_refused_record() -> None:
    tables, topic = Tables(), Topic()
    sink, places = led(tables)
    broken = topic.raw(b'{"id":2}', b'{"before":null,"aft', at(2).text(), "u", 1)
    assert sink.apply(batch(topic.upsert(order(1), at(1)), broken), SHAPES).refused
    assert tables.steps[-1] == "write 1"
    places.finish()
    assert tables.steps[-1] == "place orders"


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
    raised = StoreSink(Tables(), notes, Tables(), places=Places(Tables()), shared=True)

    class Slow(Tables):
        def write(self, batch_of_table: TableBatch) -> Applied:
            raised.apply(batch(topic.truncate(at(5))), SHAPES)
            return super().write(batch_of_table)

    tables = Slow()
    sink = StoreSink(tables, notes, tables, places=Places(tables), shared=shared)
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
