"""What somebody else put into a store: counted, written over, taken away, and never a traceback (hazard H101)."""

from __future__ import annotations

import orjson
import pytest

from cdc.verification.repair import record_key
from sinks.contract.port import STRANGE_ROW, CannotCarry, OpenSink, StoredRow
from tests.contract import damage
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store, rows
from tests.contract.topics import ORDERS, Topic, at, batch

FUTURE = at(2**40).text()


def fed(store: Store) -> tuple[OpenSink, Topic]:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.upsert(order(1), at(1)), topic.upsert(order(2), at(2))), SHAPES)
    sink.sink.show()
    return sink, topic


def seen(store: Store) -> OpenSink:
    """The store as another process opens it."""
    return store.open(parallel=True)


def test_h101_a_row_without_a_position_is_seen_as_such(store: Store) -> None:
    fed(store)[0].close()
    damage.plant(store, "2", None)
    damage.plant(store, "9", None)
    found = rows(seen(store), ORDERS)
    assert sorted(found) == ["1", "2", "9"]
    assert (found["1"].pos, found["9"].pos) == (at(1).text(), "")
    # A document that is written over in an index keeps a version, and by that it is judged.
    assert found["2"].pos == (at(2, 0xFFFFFFFF).text() if store.kind == "opensearch" else "")
    assert orjson.loads(found["9"].row or b"")["status"] == "foreign"
    one = seen(store).reader.get(ORDERS, "9")
    assert one is not None and (one.key, one.pos) == ("9", "")


def test_h101_any_change_is_newer_than_a_row_without_a_position(store: Store) -> None:
    sink, topic = fed(store)
    damage.plant(store, "2", None)
    damage.plant(store, "9", None)
    changes = [topic.upsert(order(2, "paid"), at(3)), topic.upsert(order(9, "new"), at(3, 2))]
    done = sink.sink.apply(batch(changes), SHAPES)
    assert (done.applied, done.stale, done.refused) == (2, 0, ())
    assert statuses(sink) == {"1": "open", "2": "paid", "9": "new"}


def test_h101_a_row_without_a_position_fills_nothing(store: Store) -> None:
    sink, topic = fed(store)
    damage.plant(store, "2", None, note="from nowhere")
    lacking = topic.row("u", {"id": 2, "status": "paid", "note": "__debezium_unavailable_value"}, at(3))
    sink.sink.apply(batch(lacking), SHAPES)
    shown = rows(sink, ORDERS)["2"].row or b""
    assert not (b"paid" in shown and b"from nowhere" in shown)


def test_h101_a_future_position_is_removed_and_changes_count(store: Store) -> None:
    sink, topic = fed(store)
    damage.plant(store, "2", FUTURE)
    later = topic.upsert(order(2, "paid"), at(3))
    assert sink.sink.apply(batch(later), SHAPES).stale == 1, "ignored, until the log is as far as that"
    sink.sink.show()
    mender = seen(store)
    assert rows(mender, ORDERS)["2"].pos == FUTURE
    assert mender.discards is not None
    mender.discards.remove(ORDERS, {"1": FUTURE, "2": FUTURE, "3": FUTURE})
    mender.sink.show()
    assert sorted(rows(mender, ORDERS)) == ["1"], "what has another position stays"
    assert mender.sink.apply(batch(topic.upsert(order(2, "repaired"), at(4))), SHAPES).applied == 1
    assert statuses(mender) == {"1": "open", "2": "repaired"}


def test_h101_rows_without_a_position_can_be_taken_away(store: Store) -> None:
    fed(store)[0].close()
    damage.plant(store, "9", None)
    mender = seen(store)
    assert mender.discards is not None
    mender.discards.remove(ORDERS, {"1": "", "9": ""})
    mender.sink.show()
    # A search index keeps it: any row is above it there, also the delete that a repair writes.
    assert sorted(rows(mender, ORDERS)) == (["1", "2", "9"] if store.kind == "opensearch" else ["1", "2"])
    gone = Topic().delete(order(9), at(5))
    mender.sink.apply(batch(gone), SHAPES)
    assert sorted(statuses(mender)) == ["1", "2"]


def test_h101_keys_of_another_type_are_seen_and_taken_away(store: Store) -> None:
    if store.kind != "redis":
        pytest.skip("a key has a type in a cache alone")
    sink, topic = fed(store)
    with damage.redis_of(store) as client:
        client.delete("shop:public.orders:2")
        client.set("shop:public.orders:2", "text")
        client.lpush("shop:public.orders:9", "list")
        client.hset("shop:public.orders:1", "pos", "garbage")
        client.delete("shop:_watermark")
        client.set("shop:_watermark", "text")
    found = rows(seen(store), ORDERS)
    assert {key: row.pos for key, row in found.items()} == {"1": "garbage", "2": "", "9": ""}
    refused = sink.sink.apply(batch(topic.upsert(order(2, "paid"), at(3))), SHAPES).refused
    assert [one.reason for one in refused] == ["the cache holds something else under this key"]
    assert sink.watermarks.read() is None
    mender = seen(store)
    assert mender.discards is not None
    mender.discards.remove(ORDERS, {"1": "garbage", "2": "", "9": ""})
    assert mender.sink.apply(batch(topic.upsert(order(2, "paid"), at(3))), SHAPES).applied == 1
    assert statuses(mender) == {"2": "paid"}


def test_h101_a_column_of_another_form_is_one_strange_row(store: Store) -> None:
    if store.kind not in damage.SQL:
        pytest.skip("a row's own columns can hold anything in a database alone")
    sink, topic = fed(store)
    damage.execute(store, f"update {damage.sql_table(store)} set _exact = 'no JSON' where _key = '2'")
    found = rows(seen(store), ORDERS)
    assert {key: (one.pos, one.row == STRANGE_ROW) for key, one in found.items()} == {
        "1": (at(1).text(), False),
        "2": (at(2).text(), True),
    }
    assert seen(store).reader.get(ORDERS, "2") == found["2"]
    lacking = topic.row("u", {"id": 2, "status": "paid", "note": "__debezium_unavailable_value"}, at(3))
    done = sink.sink.apply(batch(lacking, topic.upsert(order(1, "paid"), at(3))), SHAPES)
    assert (done.applied, [one.key for one in done.refused]) == (1, [b'{"id":2}'])
    assert "cdc verify --repair" in done.refused[0].reason
    assert sink.sink.apply(batch(topic.upsert(order(2, "mended"), at(4))), SHAPES).applied == 1
    assert statuses(sink) == {"1": "paid", "2": "mended"}


@pytest.mark.parametrize("key", ["2", "9"])
def test_h101_a_key_kept_as_bytes_is_seen_and_taken_away(store: Store, key: str) -> None:
    """Beside the row under the text that reads the same."""
    if not store.kind.startswith("sqlite"):
        pytest.skip("a column of texts can hold bytes in SQLite alone")
    fed(store)
    columns = "status, note, _key, _pos, _deleted, _exact"
    table = damage.sql_table(store)
    values = f"'foreign', note, cast('{key}' as blob), cast(_pos as blob), _deleted, _exact"
    damage.execute(store, f"insert into {table} (id, {columns}) select id, {values} from {table} where _key = '2'")
    named = f"%X'{key.encode().hex().upper()}'"
    found = rows(seen(store), ORDERS)
    assert sorted(found) == [named, "1", "2"]
    assert record_key(ORDERS, named) is None, "so a repair takes it away"
    mender = seen(store)
    assert mender.discards is not None
    mender.discards.remove(ORDERS, {named: found[named].pos})
    assert statuses(mender) == {"1": "open", "2": "open"}


@pytest.mark.by_spark("delta-spark")
def test_h101_a_key_with_several_rows_is_seen_and_taken_away(store: Store) -> None:
    if store.kind not in ("delta", "iceberg"):
        pytest.skip("a key is there once by the store's own rule")
    sink, topic = fed(store)
    damage.copy_row(store, "2")
    found = [row["key"] for part in seen(store).reader.scan(ORDERS) for row in part.to_pylist()]
    assert sorted(found) == ["1", "2", "2"]
    assert seen(store).reader.get(ORDERS, "2") == StoredRow(key="2", pos="", row=STRANGE_ROW)
    mender = seen(store)
    assert mender.discards is not None
    mender.discards.remove(ORDERS, {"1": "", "2": ""})
    assert sorted(rows(mender, ORDERS)) == ["1"]
    assert sink.sink.apply(batch(topic.upsert(order(2, "mended"), at(4))), SHAPES).applied == 1
    assert statuses(sink) == {"1": "open", "2": "mended"}


def test_h101_a_delete_and_a_row_of_one_key_are_several(store: Store) -> None:
    if store.kind not in ("delta", "iceberg"):
        pytest.skip("a key is there once by the store's own rule")
    fed(store)
    damage.copy_row(store, "2", deleted=True)
    assert seen(store).reader.get(ORDERS, "2") == StoredRow(key="2", pos="", row=STRANGE_ROW)


def test_h101_an_own_column_removed_is_a_table_that_waits(store: Store) -> None:
    if store.kind not in ("delta", "iceberg", *damage.SQL):
        pytest.skip("only a warehouse has columns of its own")
    sink, _ = fed(store)
    damage.remove_exact(store)
    with pytest.raises(CannotCarry):
        list(seen(store).reader.scan(ORDERS))
    with pytest.raises(CannotCarry):
        seen(store).reader.get(ORDERS, "2")
    sink.close()
