from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from cdc.record.schema import Identity, TableSchema
from cdc.record.state import RequestState
from snapshot.first.manifest import Ledger, Manifest, Sizing
from snapshot.source.planned_tables import InspectedTable, Inspection, TableForm
from tests.memory_log import MemoryCompactedTopic
from tests.unit.snapshot.first.test_manifest import INTENT, SLOT, read
from tests.unit.snapshot.source.example_forms import leaf, look

SIZING = Sizing(workers=2, most_bytes=10 * 8192, server_version=180_000)


def seen(*looks: TableForm, late: tuple[str, ...] = ()) -> Inspection:
    found = {}
    for one in looks:
        schema = TableSchema(
            table=one.table,
            topic=one.topic,
            version=one.version,
            oid=one.oid,
            encoding="readable",
            identity=Identity.DEFAULT,
            columns=(),
        )
        found[str(one.table)] = InspectedTable(form=one, schema=schema, condition=None)
    return Inspection(found, list(late))


ORDERS = look(leaf(1, 40), name="orders", oid=1)
ITEMS = look(leaf(2, 40), name="items", oid=9)


def begun(*looks: TableForm) -> tuple[Ledger, MemoryCompactedTopic]:
    topic = MemoryCompactedTopic()
    ledger = Ledger(topic)
    ledger.plan(INTENT, seen(*looks), SIZING)
    ledger.open(SLOT, [str(one.table) for one in looks], rows=True)
    return ledger, topic


def requests(topic: MemoryCompactedTopic) -> dict[str, RequestState]:
    found = [
        RequestState.from_json(value) for key, value in topic.read().items() if orjson.loads(key)["what"] == "request"
    ]
    return {one.table: one for one in found}


def test_the_intent_and_the_plan_are_there_before_the_slot() -> None:
    topic = MemoryCompactedTopic()
    Ledger(topic).plan(INTENT, seen(ORDERS), SIZING)
    manifest = Manifest(topic.read())
    assert manifest.intent == INTENT
    assert manifest.slot is None
    assert len(manifest.chunks("public.orders")) == 4


def test_without_rows_the_slot_is_the_whole_snapshot() -> None:
    topic = MemoryCompactedTopic()
    ledger = Ledger(topic)
    ledger.plan(INTENT, None, SIZING)
    ledger.open(SLOT, ["public.orders"], rows=False)
    manifest = Manifest(topic.read())
    assert manifest.complete
    assert manifest.left() == []


def test_h20_a_new_cut_keeps_what_is_done_and_asks_for_nothing() -> None:
    ledger, topic = begun(ORDERS, ITEMS)
    first = ledger.manifest.left()[0]
    ledger.finish([read(first)])
    assert ledger.cut(5000, seen(ORDERS, ITEMS), SIZING) == []
    manifest = Manifest(topic.read())
    assert len(manifest.left()) == 7
    assert manifest.head is not None
    assert manifest.head.last_cut_lsn == 5000
    assert requests(topic) == {}


def test_h71_a_rewritten_table_is_read_again_and_once_more_later() -> None:
    ledger, topic = begun(ORDERS, ITEMS)
    ledger.finish([read(ledger.manifest.left()[0])])
    rewritten = look(leaf(1, 20, filenode=99), name="orders", oid=1)
    [said] = ledger.cut(5000, seen(rewritten, ITEMS), SIZING)
    assert "public.orders was rewritten" in said
    manifest = Manifest(topic.read())
    assert {c.filenode for c in manifest.left() if c.table == "public.orders"} == {99}
    assert len([c for c in manifest.left() if c.table == "public.orders"]) == 2
    assert len([c for c in manifest.left() if c.table == "public.items"]) == 4
    assert requests(topic)["public.orders"].after_lsn == 5000
    assert ledger.requests == ["public.orders was rewritten or truncated"]


def test_h71_a_table_rewritten_after_its_reading_is_requested() -> None:
    ledger, topic = begun(ORDERS)
    ledger.finish([read(chunk) for chunk in ledger.manifest.left()])
    rewritten = look(leaf(1, 20, filenode=99), name="orders", oid=1)
    assert ledger.cut(5000, seen(rewritten), SIZING) == []
    assert Manifest(topic.read()).left() == []
    assert requests(topic)["public.orders"].after_lsn == 5000
    assert ledger.changed(seen(rewritten)) == ["public.orders"]
    ledger.complete(6000, seen(rewritten))
    assert Manifest(topic.read()).complete
    assert requests(topic)["public.orders"].after_lsn == 6000


def test_h86_at_the_end_a_table_that_changed_is_read_once_more() -> None:
    ledger, topic = begun(ORDERS, ITEMS)
    ledger.finish([read(chunk) for chunk in ledger.manifest.left()])
    grown = look(leaf(1, 40), leaf(5, 10), name="orders", oid=1)
    [said] = ledger.cut(5000, seen(grown, ITEMS), SIZING, read_too=True)
    assert "public.orders has other partitions now" in said
    assert {chunk.table for chunk in Manifest(topic.read()).left()} == {"public.orders"}
    assert ledger.changed(seen(grown, ITEMS)) == []


def test_a_table_that_is_not_captured_any_more_is_left_out() -> None:
    ledger, topic = begun(ORDERS, ITEMS)
    [said] = ledger.cut(5000, seen(ITEMS), SIZING)
    assert "public.orders is not captured any more" in said
    assert {chunk.table for chunk in Manifest(topic.read()).left()} == {"public.items"}
    assert ledger.cut(5001, seen(ITEMS), SIZING) == [], "said once"


def test_h73_a_table_that_came_after_the_slot_waits() -> None:
    ledger, topic = begun(ORDERS)
    assert ledger.cut(5000, seen(ORDERS, late=("public.items",)), SIZING) == []
    assert {chunk.table for chunk in Manifest(topic.read()).left()} == {"public.orders"}
    assert requests(topic)["public.items"].reason == "public.items came after the slot"


def test_other_columns_mean_a_new_reading_in_the_new_shape() -> None:
    ledger, topic = begun(ORDERS)
    ledger.finish([read(ledger.manifest.left()[0])])
    [said] = ledger.cut(5000, seen(replace(ORDERS, version=2)), SIZING)
    assert "has other columns now" in said
    state = Manifest(topic.read()).table("public.orders")
    assert state is not None
    assert (state.version, state.generation) == (2, 2)


def test_a_table_without_a_whole_plan_is_read_from_its_beginning() -> None:
    """Writing its plan was cut short: what stands of it does not count."""
    ledger, topic = begun(ORDERS)
    assert ledger.changed(seen(ORDERS, ITEMS)) == []
    assert ledger.cut(5000, seen(ORDERS, ITEMS), SIZING) == [
        "public.items has no whole plan: it is read from its beginning"
    ]
    assert [chunk.table for chunk in Manifest(topic.read()).left()].count("public.items") == 4
    assert requests(topic) == {}


def test_h20_another_process_goes_on_from_what_the_topic_holds() -> None:
    ledger, topic = begun(ORDERS, ITEMS)
    ledger.finish([read(ledger.manifest.left()[0])])
    other = Ledger(topic)
    assert other.manifest.left() == [], "before it has read"
    found = other.read()
    assert found is other.manifest
    assert (found.slot, found.left()) == (SLOT, ledger.manifest.left())


def test_an_intent_is_noted_before_the_slot_and_withdrawn() -> None:
    topic = MemoryCompactedTopic()
    ledger = Ledger(topic)
    ledger.began(INTENT)
    assert Manifest(topic.read()).intent == INTENT
    ledger.withdraw()
    assert Manifest(topic.read()).intent is None


def test_complete_is_never_written_while_a_chunk_is_left() -> None:
    ledger, topic = begun(ORDERS)
    with pytest.raises(ValueError, match="4 chunks are left"):
        ledger.complete(5000, seen(ORDERS))
    assert not Manifest(topic.read()).complete


def test_nothing_to_note_writes_nothing() -> None:
    ledger, topic = begun(ORDERS)
    writes = topic.writes
    ledger.finish([])
    assert topic.writes == writes
