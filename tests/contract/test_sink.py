"""The contract of a sink, over every store: what sinks/port.py promises, case by case."""

from __future__ import annotations

import itertools
import random

import orjson
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc.canonical import canonical_row
from cdc.plain import plain_row
from cdc.position import Position
from cdc.progress import Watermark
from sinks.batch import Event, events_of
from sinks.port import OpenSink, StoredRow
from tests.contract.stores import Store, live, rows
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, chunk_at, column, shape, snapshot_at
from tests.contract.values import EVERYTHING, HARD_ROWS

SHAPES = Shapes(ORDERS)


def order(number: int, status: str = "open") -> dict[str, object]:
    return {"id": number, "status": status, "note": None}


def statuses(sink: OpenSink) -> dict[str, str]:
    return {key: orjson.loads(row)[1] for key, row in live(sink, ORDERS).items()}


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


def test_h10_changes_of_one_commit_are_told_apart_by_their_number(store: Store) -> None:
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


def test_h83_a_replayed_event_never_covers_a_chunk_row_of_its_commit(store: Store) -> None:
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


def test_h82_a_sweep_waits_for_the_mark_of_each_partition(store: Store) -> None:
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


def test_a_watermark_is_read_back_as_written(store: Store) -> None:
    sink = store.open()
    assert sink.watermarks.read() is None
    mark = Watermark(epoch=2, lsn=0x16B3D48, offsets={"shop.public.orders": {0: 17, 11: 2**40}})
    sink.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    sink.commit(mark)
    assert sink.watermarks.read() == mark
    later = Watermark(epoch=2, lsn=0x16B3D50, offsets=mark.offsets)
    sink.watermarks.write(later)
    assert store.open().watermarks.read() == later


def test_a_commit_shows_the_rows_to_others(store: Store) -> None:
    sink, other = store.open(), store.open()
    sink.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=8))
    assert [row["key"] for found in other.reader.scan(ORDERS) for row in found.to_pylist()] == ["1"]


def test_h67_poison_is_refused_and_the_rest_flows(store: Store) -> None:
    sink, topic = store.open(), Topic()
    good = topic.upsert(order(1), at(1))
    key, pos = b'{"id":2}', at(2).text()
    value = topic.envelope("u", at(2), after=order(2))
    topic.raw(None, value, pos, "u", 1)
    topic.raw(b"not json", value, pos, "u", 1)
    topic.raw(b"[2]", value, pos, "u", 1)
    topic.raw(b'{"other":2}', value, pos, "u", 1)
    topic.raw(key, b"\xff\xfe", pos, "u", 1)
    topic.raw(b'{"id":3}', value[:-5], pos, "u", 1)
    topic.raw(b'{"id":4}', value.replace(b'"status":"open"', b'"status":"open'), pos, "u", 1)
    topic.raw(b'{"id":5}', b'{"after":null}', pos, "u", 1)
    topic.raw(b'{"id":6}', value, pos, "u", 99)
    topic.raw(b'{"id":7}', value, pos, "u", None)
    topic.raw(b'{"id":8}', value, None, "u", 1)
    topic.raw(b'{"id":9}', value, "0" * 31, "u", 1)
    topic.raw(b'{"id":10}', value, pos.upper().replace("0", "F", 1), "u", 1)
    topic.raw(b'{"id":11}', value, pos, "x", 1)
    topic.raw(b'{"id":12}', value, pos, None, 1)
    topic.raw(b'{"__mystery":1}', None, pos, "t", 1)
    topic.raw(b'{"__sweep":1}', b"{}", pos, "t", 1)
    done = sink.sink.apply(events_of(topic.events), SHAPES)
    assert done.applied == 1
    assert sorted(refused.offset for refused in done.refused) == [e.offset for e in topic.events if e != good]
    for refused in done.refused:
        original = topic.events[refused.offset]
        assert (refused.key, refused.value, refused.pos) == (original.key, original.value, original.pos)
        assert refused.reason
        assert "open" not in refused.reason
    assert statuses(sink) == {"1": "open"}


def test_events_of_a_topic_that_is_not_ours_are_refused(store: Store) -> None:
    sink = store.open()
    foreign = Event("shop.public.strange", 0, 5, b'{"id":1}', b"{}", at(1).text(), "u", 1)
    done = sink.sink.apply(batch(foreign, Topic().upsert(order(1), at(1))), SHAPES)
    assert [refused.topic for refused in done.refused] == ["shop.public.strange"]
    assert done.applied == 1


def test_h38_an_unavailable_value_comes_from_the_batch(store: Store) -> None:
    sink, topic = store.open(), Topic()
    made = topic.row("c", {"id": 1, "status": "a", "note": "a long note"}, at(1))
    other = topic.upsert({"id": 1, "status": "b", "note": "__debezium_unavailable_value"}, at(2))
    last = topic.upsert({"id": 1, "status": "c", "note": "__debezium_unavailable_value"}, at(3))
    done = sink.sink.apply(batch(last, made, other), SHAPES)
    assert done.applied == 1
    assert live(sink, ORDERS)["1"] == canonical_row(b'{"id":1,"status":"c","note":"a long note"}', ORDERS)


def test_h38_an_unavailable_value_comes_from_an_event_of_an_earlier_shape(store: Store) -> None:
    columns = (column("id", "int8", key=1), column("status", "text"), column("note", "text"))
    later = shape(*columns, column("added", "int4"), version=2)
    sink, shapes, topic, grown = store.open(), Shapes(ORDERS, later), Topic(), Topic(later)
    lacking = {"id": 1, "status": "c", "note": "__debezium_unavailable_value"}
    sink.sink.apply(batch(topic.row("c", {"id": 1, "status": "a", "note": "old"}, at(1))), shapes)
    new = topic.upsert({"id": 1, "status": "b", "note": "new"}, at(2))
    last = grown.upsert({**lacking, "added": 5}, at(4))._replace(offset=9)
    done = sink.sink.apply(batch(new, topic.upsert(lacking, at(3)), last), shapes)
    assert (done.applied, done.refused) == (1, ())
    assert live(sink, later)["1"] == canonical_row(b'{"id":1,"status":"c","note":"new","added":5}', later)


def test_h38_an_unavailable_value_comes_from_the_store(store: Store) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(topic.row("c", {"id": 1, "status": "a", "note": "a long note"}, at(1))), SHAPES)
    last = topic.upsert({"id": 1, "status": "c", "note": "__debezium_unavailable_value"}, at(3))
    done = sink.sink.apply(batch(last, topic.upsert(order(2), at(4))), SHAPES)
    assert (done.applied, done.refused) == (2, ())
    assert live(sink, ORDERS)["1"] == canonical_row(b'{"id":1,"status":"c","note":"a long note"}', ORDERS)


def test_h38_a_value_that_nobody_has_is_refused(store: Store) -> None:
    sink, topic = store.open(), Topic()
    unknown = topic.upsert({"id": 1, "status": "c", "note": "__debezium_unavailable_value"}, at(3))
    created = topic.row("c", {"id": 2, "status": "c", "note": "__debezium_unavailable_value"}, at(4))
    sink.sink.apply(batch(topic.row("c", {"id": 2, "status": "c", "note": "another row's"}, at(1))), SHAPES)
    done = sink.sink.apply(batch(unknown, created, topic.upsert(order(3), at(4))), SHAPES)
    assert [refused.key for refused in done.refused] == [unknown.key, created.key]
    assert all("note" in refused.reason for refused in done.refused)
    assert done.applied == 1
    assert "1" not in rows(sink, ORDERS)


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


def test_a_table_that_was_never_written_is_empty(store: Store) -> None:
    sink = store.open()
    assert list(sink.reader.scan(ORDERS)) == []
    assert sink.reader.get(ORDERS, "1") is None
    sink.sink.prepare(ORDERS)
    sink.sink.prepare(ORDERS)
    assert rows(sink, ORDERS) == {}


def test_h85_a_column_added_later_appears_and_old_shapes_still_fit(store: Store) -> None:
    wider = shape(
        *ORDERS.columns,
        column("weight", "float8"),
        column("tags", "text", array=True),
        column("50% off", "int4"),
        version=2,
    )
    sink, shapes = store.open(), Shapes(ORDERS, wider)
    old, new = Topic(ORDERS), Topic(wider)
    sink.sink.apply(batch(old.upsert(order(1), at(1))), shapes)
    row = {**order(2), "weight": 1.5, "tags": ["a", None, "b"], "50% off": 7}
    sink.sink.apply(batch(new.upsert(row, at(2)), old.upsert(order(3), at(1))), shapes)
    expected = {"1": order(1), "2": row, "3": order(3)}
    assert live(sink, wider) == {k: canonical_row(orjson.dumps(v), wider) for k, v in expected.items()}
    restarted = store.open()
    restarted.sink.apply(batch(old.upsert(order(4), at(5))), shapes)
    assert len(live(restarted, wider)) == 4


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


def test_spark_hands_over_large_strings_and_many_chunks(store: Store) -> None:
    sink, topic = store.open(), Topic()
    for number in range(10):
        topic.upsert(order(number), at(number))
    table = events_of(topic.events)
    chunked = pa.concat_tables([table.slice(n, 1) for n in range(10)])
    large = chunked.cast(pa.schema([f.with_type(_large(f.type)) for f in chunked.schema]))
    assert sink.sink.apply(large, SHAPES).applied == 10
    assert len(live(sink, ORDERS)) == 10


def _large(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind


def as_in_a_topic(drawn: list[tuple[str, int, Position, str]]) -> list[tuple[str, int, Position, str]]:
    """In the order of positions, each streamed position once, deletes and truncates streamed."""
    made: dict[object, tuple[str, int, Position, str]] = {}
    for op, number, pos, text in drawn:
        place = pos if op in "ur" or pos.streamed else pos._replace(tx_seq=30)
        made[place if place.streamed else (place, number, text)] = (op, number, place, text)
    return sorted(made.values(), key=lambda change: change[2])


positions = st.builds(
    Position, st.just(1), st.integers(1, 6).map(lambda n: 0x1000000 + n * 8), st.sampled_from([0, 10, 20, 0xFFFFFFFF])
)
# Postgres has no NUL in a text, neither as a source nor as a store.
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3)
changes = st.lists(
    st.tuples(st.sampled_from("urdt"), st.integers(1, 4), positions, words), min_size=1, max_size=14
).map(as_in_a_topic)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=changes, seed=st.integers(0, 2**16), cuts=st.lists(st.integers(0, 14), max_size=3))
def test_any_order_and_any_repetition_end_the_same(
    store: Store, changes: list[tuple[str, int, Position, str]], seed: int, cuts: list[int]
) -> None:
    """Per key the newest by (pos, offset) above the floor; what came before is replayed in any order first."""
    corner = store.fresh()
    sink, topic, model = corner.open(), Topic(), dict[int, tuple[str, int, str | None]]()
    floor = ""
    for op, number, pos, text in changes:
        offset = len(topic.events)
        if op == "t":
            topic.truncate(pos)
            floor = max(floor, pos.text())
        elif op == "d":
            gone = topic.delete(order(number), pos)
            model[number] = max(model.get(number, ("", -1, None)), (gone[-1].pos or "", offset + 1, None))
        else:
            topic.row(op, order(number, text), pos)
            model[number] = max(model.get(number, ("", -1, None)), (pos.text(), offset, text))
    shuffled = topic.events[:]
    random.Random(seed).shuffle(shuffled)
    sink.sink.apply(events_of(shuffled[: len(shuffled) // 2]), SHAPES)
    edges = sorted({0, len(topic.events), *(min(cut, len(topic.events)) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        sink.sink.apply(events_of(topic.events[start:end]), SHAPES)
        sink.sink.apply(events_of(topic.events[start:end]), SHAPES)
    expected = {str(n): text for n, (pos, _, text) in model.items() if text is not None and pos >= floor}
    assert statuses(sink) == expected


def test_rows_keep_their_values(store: Store) -> None:
    """The plain values of every kind come back, to the last digit."""
    sink, topic = store.open(), Topic(EVERYTHING)
    for number, row in enumerate(HARD_ROWS):
        topic.upsert({"id": number, **row}, at(number))
    done = sink.sink.apply(events_of(topic.events), Shapes(EVERYTHING))
    assert done.refused == ()
    found = live(sink, EVERYTHING)
    for number, row in enumerate(HARD_ROWS):
        plain = orjson.dumps(plain_row({"id": number, **row}, EVERYTHING))
        assert found[str(number)] == canonical_row(plain, EVERYTHING), row
