"""Records that real connectors wrote, in every form, as changes of ours."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.position import Position
from cdc.wire.debezium.reading import UNVERSIONED, DebeziumChange, DebeziumReader, UnreadableRecord
from cdc.wire.format import UNAVAILABLE
from tests.contract.topics import column, numeric, shape
from tests.single_rows import store_key
from tests.unit.cdc.wire.debezium.recorded import Recorded, after, changes, read_all, recorded

ALL = (
    "sh_operations",
    "sh_keys",
    "sh_replica_identity",
    "snapshots",
    "snapshots_schemas",
    "key_schemas",
    "key_plain",
    "flat",
    "flat_schemas",
    "mariadb",
)


@pytest.mark.parametrize("name", ALL)
def test_h105_a_position_is_the_records_offset(name: str) -> None:
    """Eight apart, below every position of ours, and never that of a row of our snapshots."""
    records = [r for r in recorded(name) if r.key is not None]
    for record, found in zip(records, read_all(records), strict=True):
        if isinstance(found, DebeziumChange):
            assert found.pos == Position(0, (record.offset + 1) * 8, 1)
            assert found.pos < Position(1, 0, 0)
            assert found.pos.document_version() == (record.offset + 1) * 8 + 1


@pytest.mark.parametrize("name", ALL)
def test_the_newest_by_position_is_the_last_of_each_key(name: str) -> None:
    """What a sink keeps, by (pos, offset), is what the topic's order says."""
    newest: dict[tuple[str, bytes], tuple[Position, int, Any]] = {}
    last: dict[tuple[str, bytes], Any] = {}
    records = [r for r in recorded(name) if r.key is not None]
    for record, found in zip(records, read_all(records), strict=True):
        if not isinstance(found, DebeziumChange):
            continue
        key = (record.topic, found.key)
        last[key] = after(found)
        if key not in newest or newest[key][:2] <= (found.pos, record.offset):
            newest[key] = (found.pos, record.offset, after(found))
    assert {key: row for key, (_, _, row) in newest.items()} == last


def test_without_schemas_values_and_keys_stay_as_they_are() -> None:
    records = recorded("sh_operations")
    first, *_ = found = changes(records)
    assert first == DebeziumChange(
        b'{"id":1}', records[0].value, Position(0, (records[0].offset + 1) * 8, 1), "r", UNVERSIONED, None
    )
    assert {change.op for change in found} == {"r", "c", "u", "d"}


def test_a_tombstone_is_a_delete_at_its_own_offset() -> None:
    """The delete before it may be compacted away. Twice is harmless."""
    records = recorded("sh_operations")
    found = read_all(records)
    tombstones = [(r, c) for r, c in zip(records, found, strict=True) if r.value is None]
    assert tombstones
    for record, change in tombstones:
        assert isinstance(change, DebeziumChange)
        assert (change.op, change.value, change.key) == ("d", None, record.key)
        assert change.pos == Position(0, (record.offset + 1) * 8, 1)


def test_a_truncate_removes_nothing() -> None:
    found = read_all(recorded("sh_truncate_emitted"))
    reasons = [one.reason for one in found if isinstance(one, UnreadableRecord)]
    assert reasons
    assert all("a truncate, which has no place" in reason for reason in reasons)


KEYS = {
    "date": ({"d": 19_000}, {"d": "2022-01-08Z"}),
    "numeric": ({"d": "bg=="}, {"d": "1.10"}),
    "text": ({"d": "bg=="}, {"d": "bg=="}),
}


@pytest.mark.parametrize("kind", KEYS)
def test_h570_a_lone_tombstones_key_is_read_by_the_newest_shape(kind: str) -> None:
    """In Debezium's default encoding: its rows' keys come out readable, and no row is there to say how."""
    told, readable = KEYS[kind]
    made = numeric("d", 9, 2) if kind == "numeric" else column("d", kind)
    newest = shape(replace(made, key_position=1), encoding="readable")
    for names in (told, readable):
        precise = names is told
        found = DebeziumReader(precise=precise).read("t", 5, orjson.dumps(names), None, newest)
        assert isinstance(found, DebeziumChange)
        assert orjson.loads(found.key) == readable


def test_h570_a_key_is_read_by_the_schema_that_it_embeds() -> None:
    date = {"field": "d", "type": "int32", "optional": False, "name": "io.debezium.time.Date", "version": 1}
    key = orjson.dumps({"schema": {"type": "struct", "fields": [date]}, "payload": {"d": 19_000}})
    found = DebeziumReader().read("d.s.t", 5, key, None)
    assert isinstance(found, DebeziumChange)
    assert found.key == b'{"d":"2022-01-08Z"}'
    unfit = orjson.dumps({"schema": {"type": "struct", "fields": [date]}, "payload": {"d": "no number"}})
    assert isinstance(DebeziumReader().read("d.s.t", 5, unfit, None), UnreadableRecord)


@pytest.mark.parametrize("name", ["key_schemas", "key_plain"])
def test_keys_of_any_type_are_readable_in_every_record_of_a_row(name: str) -> None:
    found = changes(recorded(name))
    assert {c.key for c in found} == {b'{"n":"1.50","ts":"2020-01-01T10:00:00Z"}'}
    assert [c.op for c in found] in (["r", "u", "d", "d", "c"], ["r", "u", "d", "c"])
    schema = found[0].schema
    assert schema is not None
    assert store_key(schema, found[0].key) == "1.50:2020-01-01T10%3A00%3A00Z"


def test_h125_an_update_without_its_values_is_refused() -> None:
    """The row behind it is whole, so it is taken."""
    first, unchanged, *_ = records = recorded("toast_schemas")
    _, refused = read_all(records[:2])
    assert isinstance(refused, UnreadableRecord)
    assert refused.reason.startswith("it lacks the value of by, t, which did not change")
    whole = (first.value or b"").replace(b'"op":"r"', b'"op":"u"').replace(b'"op":"c"', b'"op":"u"')
    behind = read_all([first, unchanged, first._replace(offset=unchanged.offset + 1, value=whole)])[2]
    assert isinstance(behind, DebeziumChange)
    assert after(behind)["t"] == "t" * 3000


def test_h125_flat_rows_without_values_are_refused_too() -> None:
    for row in (b'{"id":1,"v":"%b"}', b'{"op":"u","after":{"id":1,"v":"%b"},"before":null,"source":%%b}'):
        source = b'{"connector":"postgresql","schema":"s","table":"t","sequence":"[null,null]"}'
        value = row % UNAVAILABLE.encode()
        found = DebeziumReader().read("d.s.t", 0, b'{"id":1}', value.replace(b"%b", source))
        assert isinstance(found, UnreadableRecord), found
        assert found.reason.startswith("it lacks the value of v, which did not change")


def test_flat_rows_are_ordered_by_their_offsets() -> None:
    found = changes(recorded("flat"))
    assert [(c.op, after(c) and after(c)["v"]) for c in found] == [
        ("u", "a"),
        ("u", "b"),
        ("u", "c"),
        ("d", None),
        ("u", "x"),
    ]
    assert [c.pos for c in found] == sorted(c.pos for c in found)


def test_flat_rows_lose_the_fields_that_were_added() -> None:
    found = changes(recorded("flat_schemas"))
    assert [c.op for c in found] == ["r", "r", "u", "d", "d", "c"]
    assert after(found[2]) == {"id": 1, "v": "c", "at": "2020-01-01T10:00:00Z"}
    schema = found[0].schema
    assert schema is not None
    assert [c.name for c in schema.columns] == ["id", "v", "at"]
    assert str(schema.table) == "public.flat"


@pytest.mark.parametrize("said", [b'"true"', b"true"])
def test_a_flat_delete_says_so_where_operations_were_not_added(said: bytes) -> None:
    """With ``delete.tombstone.handling.mode=rewrite`` and without ``add.fields=op`` there is ``__deleted`` alone."""
    row, gone = b'{"id":1,"v":"a","__deleted":"false"}', b'{"id":1,"v":null,"__deleted":%b}' % said
    records = [Recorded("e11.public.flat", 0, number, b'{"id":1}', value) for number, value in enumerate((row, gone))]
    found = changes(records)
    assert [(c.op, after(c)) for c in found] == [("u", {"id": 1, "v": "a"}), ("d", None)]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (b"{}", b"not json", "not readable"),
        (b'{"id":1}', b"[1]", "no JSON object"),
        (b'{"id":1}', b'{"schema":{"type":"struct"},"payload":{"op":"c"}}', "not readable"),
        (b"7", b'{"op":"c","source":{}}', "key is no JSON object"),
        (None, b'{"op":"c","source":{"connector":"postgresql","sequence":"[null,null]"}}', "no key"),
        (b'{"id":1}', b'{"op":"c","source":{"connector":"db2","db":"d","table":"t"},"after":7}', "it holds no row"),
        (b'{"id":1}', b'{"op":"m","source":{"connector":"postgresql"}}', "its op is m"),
        (None, None, "no key"),
    ],
)
def test_h67_what_is_none_of_debeziums_is_told_apart(key: bytes | None, value: bytes | None, words: str) -> None:
    found = DebeziumReader().read("t", 0, key, value)
    assert isinstance(found, UnreadableRecord)
    assert words in found.reason


@given(st.sampled_from(recorded("key_schemas") + recorded("snapshots")[:4]), st.data())
def test_h67_no_bytes_make_the_reader_raise(record: Recorded, data: st.DataObject) -> None:
    value = record.value or b"null"
    at = data.draw(st.integers(0, len(value)))
    other = data.draw(st.binary(max_size=8))
    mangled = value[:at] + other + value[at + len(other) :]
    found = DebeziumReader().read("t", 0, data.draw(st.sampled_from([record.key, other, None])), mangled)
    assert isinstance(found, DebeziumChange | UnreadableRecord)


def test_h126_columns_may_be_named_schema_and_payload() -> None:
    """As JsonConverter's own two members, in a key and in a flat row of nothing else."""
    key, row = b'{"schema":"public","payload":7}', b'{"schema":"public","payload":"x"}'
    reader = DebeziumReader()
    found = reader.read("d.s.t", 0, key, row)
    assert isinstance(found, DebeziumChange), found
    assert (orjson.loads(found.key), after(found)) == (orjson.loads(key), orjson.loads(row))
    deleted = reader.read("d.s.t", 1, key, None)
    assert isinstance(deleted, DebeziumChange)
    assert (deleted.op, orjson.loads(deleted.key)) == ("d", orjson.loads(key))
