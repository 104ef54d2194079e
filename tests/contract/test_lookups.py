"""Keys, over every store: kept apart, looked up, scanned."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from cdc.verification.ports import LooksUpMany
from sinks.contract.batch import events_of
from sinks.contract.port import StoredRow
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store, live, rows
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape
from tests.single_rows import canonical_row


def test_h90_keys_of_any_text_stay_apart(store: Store) -> None:
    columns = (column("a", "text", key=1), column("b", "text", key=2))
    ab, a = shape(*columns, table="a:b"), shape(*columns, table="a")
    sink, shapes = store.open(), Shapes(ab, a)
    texts = ["", ":", "%", "%3A", "a:b", "ü", "'\"\\", "\n\t", " ", "/", "*", "A", "x" * 3000, "\U0001f600"]
    pairs = [{"a": one, "b": two} for one in texts for two in ("1", ":1", one)]
    unique = {(pair["a"], pair["b"]): pair for pair in pairs}.values()
    for table in (ab, a):
        topic = Topic(table)
        for number, pair in enumerate(unique):
            topic.upsert(pair, at(number))
        done = sink.sink.apply(events_of(topic.events), shapes)
        assert (done.applied, done.refused) == (len(unique), ())
    for table in (ab, a):
        expected = {canonical_row(orjson.dumps(pair), table) for pair in unique}
        assert set(live(sink, table).values()) == expected
        assert len(live(sink, table)) == len(unique)


def test_v13_a_null_in_a_views_key_is_no_text(store: Store) -> None:
    places = replace(column("a", "text", key=1), nullable=True), replace(column("b", "int4", key=2), nullable=True)
    groups = shape(*places, column("n", "int8"), schema="view", table="groups")
    sink, shapes, topic = store.open(), Shapes(groups), Topic(groups)
    texts = [None, "null", "%null", "", "None", "NULL", "\\N"]
    rows = [{"a": one, "b": two, "n": 1} for one in texts for two in (None, 0)]
    events = [topic.upsert(row, at(number)) for number, row in enumerate(rows)]
    assert sink.sink.apply(batch(*events), shapes).applied == len(rows)
    assert set(live(sink, groups).values()) == {canonical_row(orjson.dumps(row), groups) for row in rows}
    gone = sink.sink.apply(batch(topic.delete({"a": None, "b": None}, at(99))), shapes)
    sink.sink.show()
    assert gone.deleted == 1
    assert len(live(sink, groups)) == len(rows) - 1
    assert sink.reader.get(groups, "%null:%null") == StoredRow(key="%null:%null", pos=at(99, 2).text(), row=None)
    found = sink.reader.get(groups, "%25null:%null")
    assert found is not None
    assert orjson.loads(found.row or b"{}")["a"] == "%null"


def test_the_one_row_of_a_view_has_a_key(store: Store) -> None:
    total = shape(column("n", "int8"), column("total", "numeric"), schema="view", table="total")
    sink, shapes, topic = store.open(), Shapes(total), Topic(total)
    for number in (1, 2):
        sink.sink.apply(batch(topic.upsert({"n": number, "total": None}, at(number))), shapes)
    sink.sink.show()
    assert topic.events[0].key == b"{}"
    assert live(sink, total) == {"all": canonical_row(b'{"n":2,"total":null}', total)}
    sink.sink.apply(batch(topic.delete({}, at(3))), shapes)
    sink.sink.show()
    assert live(sink, total) == {}


def test_a_key_can_be_looked_up(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.upsert(order(1), at(1)), topic.delete(order(2), at(2))), SHAPES)
    sink.sink.show()
    found, gone = sink.reader.get(ORDERS, "1"), sink.reader.get(ORDERS, "2")
    assert found is not None
    assert found.row is not None
    assert canonical_row(found.row, ORDERS) == canonical_row(orjson.dumps(order(1)), ORDERS)
    assert gone == StoredRow(key="2", pos=at(2, 2).text(), row=None)
    assert sink.reader.get(ORDERS, "3") is None


def test_a_key_can_be_looked_up_after_it_was_written_again(store: Store) -> None:
    """Delta's second write is a merge, whose statistics a filter on the dataset cannot be compared with."""
    sink, topic = store.open(), Topic()
    for number in (1, 2, 3):
        sink.sink.apply(batch(topic.upsert(order(1), at(number)), topic.upsert(order(9), at(number))), SHAPES)
        sink.sink.show()
    found = sink.reader.get(ORDERS, "1")
    assert found is not None
    assert found.pos == at(3).text()
    assert sink.reader.get(ORDERS, "it's") is None


@pytest.mark.by_spark("iceberg")
def test_many_keys_are_looked_up_as_one_is(store: Store) -> None:
    sink, topic = store.open(), Topic()
    reader = sink.reader
    if not isinstance(reader, LooksUpMany):
        pytest.skip("this store is asked for one key at a time")
    assert reader.get_many(ORDERS, ["1"]) == {}
    events = [topic.upsert({**order(1), "id": number}, at(number)) for number in range(1, 700)]
    sink.sink.apply(batch(*events, topic.delete({**order(1), "id": 7}, at(900))), SHAPES)
    sink.sink.show()
    wanted = [str(number) for number in range(1, 800, 3)]
    found = reader.get_many(ORDERS, wanted)
    assert sorted(found) == sorted(key for key in wanted if int(key) < 700)
    assert {key: reader.get(ORDERS, key) for key in wanted[:20]} == {key: found.get(key) for key in wanted[:20]}
    assert found["7"].row is None
    assert reader.get_many(ORDERS, []) == {}


def test_a_table_that_was_never_written_is_empty(store: Store) -> None:
    sink = store.open()
    assert list(sink.reader.scan(ORDERS)) == []
    assert sink.reader.get(ORDERS, "1") is None
    sink.sink.prepare(ORDERS)
    sink.sink.prepare(ORDERS)
    assert rows(sink, ORDERS) == {}


def test_two_tables_in_one_batch(store: Store) -> None:
    other = shape(column("id", "uuid", key=1), column("n", "int4"), table="Oth%ers", schema="Sh'op")
    sink, one, two = store.open(), Topic(), Topic(other)
    uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    sink.sink.apply(batch(one.upsert(order(1), at(1)), two.upsert({"id": uuid, "n": 5}, at(1))), Shapes(ORDERS, other))
    assert list(live(sink, ORDERS)) == ["1"]
    assert live(sink, other) == {uuid: canonical_row(orjson.dumps({"id": uuid, "n": 5}), other)}


def test_many_rows_are_written_and_scanned(store: Store) -> None:
    sink, topic = store.open(), Topic(partitions=4)
    for number in range(3_000):
        topic.row("c", order(number, f"s{number % 7}"), at(number))
    assert sink.sink.apply(events_of(topic.events), SHAPES).applied == 3_000
    found = statuses(sink)
    assert len(found) == 3_000
    assert found["2999"] == f"s{2999 % 7}"
