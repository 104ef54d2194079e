"""Each form of record as a reader passes it on: its row, table and schema, and what is refused."""

from __future__ import annotations

import string
from typing import Any

import orjson
import pytest

from cdc.record.topic_names import TableName
from cdc.wire.debezium.reading import DebeziumChange, DebeziumReader, UnreadableRecord
from tests.unit.cdc.wire.debezium import mongodb

TOPIC = "d.public.t"
KEY = b'{"id":1}'
POSTGRES = {"connector": "postgresql", "schema": "s", "table": "t", "snapshot": "false", "sequence": '["4096","1"]'}
MYSQL = {"connector": "mysql", "db": "shop", "table": "t", "snapshot": "false", "file": "bin.1", "pos": 4}
ID = {"field": "id", "type": "int32", "optional": False}
DAY = {"field": "day", "type": "int32", "optional": True, "name": "io.debezium.time.Date"}
WORD = {"field": "word", "type": "string", "optional": True}
BITS = {"field": "bits", "type": "bytes", "optional": True, "name": "io.debezium.data.Bits"}


def payload(op: str, after: Any, source: dict[str, Any] = POSTGRES, **more: Any) -> dict[str, Any]:
    return {"before": None, "after": after, "source": source, "op": op, "ts_ms": 7} | more


def embedding(content: Any, *row: dict[str, Any]) -> bytes:
    """The record with the schema of an envelope whose row has these fields. Without any: of one that is no struct."""
    after = {"field": "after", "type": "struct", "fields": list(row)} if row else {"field": "after", "type": "string"}
    fields = [after, {"field": "source", "type": "struct"}, {"field": "op", "type": "string"}]
    return orjson.dumps({"schema": {"type": "struct", "fields": fields}, "payload": content})


def flat(content: Any) -> bytes:
    return orjson.dumps({"schema": {"type": "struct", "fields": [ID]}, "payload": content})


def read(
    value: bytes | None, reader: DebeziumReader | None = None, *, key: bytes = KEY, topic: str = TOPIC
) -> DebeziumChange:
    found = (reader or DebeziumReader()).read(topic, 0, key, value)
    assert isinstance(found, DebeziumChange), found
    return found


def refused(value: bytes) -> str:
    found = DebeziumReader().read(TOPIC, 0, KEY, value)
    assert isinstance(found, UnreadableRecord), found
    return found.reason


def test_a_row_that_is_readable_goes_on_byte_for_byte() -> None:
    content = payload("u", {"id": 1, "word": "a"}, before={"id": 1, "word": "b"})
    assert read(embedding(content, ID, WORD)).value == orjson.dumps(content)


def test_a_row_made_readable_keeps_all_but_the_row_before() -> None:
    content = payload("u", {"id": 1, "day": 1}, before={"id": 1, "day": 0})
    made = orjson.loads(read(embedding(content, ID, DAY)).value or b"")
    assert made == content | {"before": None, "after": {"id": 1, "day": "1970-01-02Z"}}


def test_h125_columns_that_a_row_lacks_are_not_added() -> None:
    made = read(embedding(payload("u", {"id": 1, "day": 1}), ID, DAY, BITS)).value
    assert orjson.loads(made or b"")["after"] == {"id": 1, "day": "1970-01-02Z"}


def test_h125_a_null_of_another_database_is_one() -> None:
    made = read(embedding(payload("u", {"id": 1, "day": 1, "bits": None}, MYSQL), ID, DAY, BITS)).value
    assert orjson.loads(made or b"")["after"] == {"id": 1, "day": "1970-01-02Z", "bits": None}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (embedding(payload("u", {"id": 1, "day": "x"}), ID, DAY), "the value of column day does not fit its type"),
        (orjson.dumps(payload("u", None)), "it holds no row"),
        (orjson.dumps(payload("c", "text")), "it holds no row"),
        (orjson.dumps({"id": 1, "__op": "m"}), "not a change: its op is m"),
    ],
)
def test_h67_what_has_no_row_to_apply_is_refused(value: bytes, reason: str) -> None:
    assert refused(value) == reason


def test_h67_only_the_four_documented_ops_are_changes() -> None:
    others = sorted(set(string.ascii_letters + string.punctuation) - set("cudrt"))
    assert [refused(orjson.dumps(payload(op, {"id": 1}))) for op in others] == [
        f"not a change: its op is {op}" for op in others
    ]


def test_an_embedded_schema_without_a_row_counts_as_none() -> None:
    """An envelope whose ``after`` is no struct says nothing of columns: the schema topic has them."""
    found = read(embedding(payload("u", {"id": 1, "word": "a"})))
    assert (found.ver, found.schema) == (0, None)


def test_a_flat_row_goes_on_as_a_small_envelope() -> None:
    found = read(orjson.dumps({"id": 1, "word": "a", "__op": "c", "__deleted": "false", "__source_ts_ms": 7}))
    assert orjson.loads(found.value or b"") == {"before": None, "after": {"id": 1, "word": "a"}, "op": "c"}


def test_a_flat_delete_is_one_by_its_op_alone() -> None:
    found = read(orjson.dumps({"id": 1, "word": "a", "__op": "d"}))
    assert (found.op, found.value) == ("d", None)


def test_a_flat_rows_column_source_may_name_a_connector() -> None:
    row = {"id": 1, "source": {"connector": "rs232"}}
    assert orjson.loads(read(orjson.dumps(row)).value or b"")["after"] == row


@pytest.mark.parametrize(
    ("fields", "table"),
    [
        ({}, "public.t"),
        ({"__source_schema": "a"}, "a.t"),
        ({"__schema": "b"}, "b.t"),
        ({"__db": "c"}, "c.t"),
        ({"__source_schema": "a", "__schema": "b", "__db": "c"}, "a.t"),
        ({"__schema": "b", "__db": "c"}, "b.t"),
        ({"__source_table": "x"}, "public.x"),
        ({"__table": "y"}, "public.y"),
        ({"__source_table": "x", "__table": "y"}, "public.x"),
    ],
)
def test_a_flat_rows_table_is_what_its_fields_say_first(fields: dict[str, str], table: str) -> None:
    schema = read(flat({"id": 1} | fields)).schema
    assert schema is not None
    assert str(schema.table) == table


def test_a_flat_rows_table_without_a_schema_is_its_topic() -> None:
    schema = read(flat({"id": 1}), topic="orders").schema
    assert schema is not None
    assert schema.table == TableName("", "orders")


def test_a_document_goes_on_in_the_order_of_our_envelopes() -> None:
    value = mongodb.envelope("u", after=mongodb.ANNE, patch=mongodb.RENAMED)
    found = DebeziumReader().read(mongodb.TOPIC, 3, mongodb.key(), value)
    assert isinstance(found, DebeziumChange)
    told, made = orjson.loads(value), orjson.loads(found.value or b"")
    assert list(made) == ["before", "after", "source", "op", "ts_ms"]
    assert (made["before"], made["source"], made["op"], made["ts_ms"]) == (None, told["source"], "u", told["ts_ms"])


def test_h256_a_key_that_moves_is_seen_in_unchanged_rows() -> None:
    """Both columns may not be null before and behind it: the schema of the rows is the same text."""
    reader, code = DebeziumReader(), {"field": "code", "type": "int32", "optional": False}
    value = embedding(payload("c", {"id": 1, "code": 2}), ID, code)
    keys = [b'{"id":1}', b'{"id":1}', b'{"code":2}', b'{"code":2}']
    found = [read(value, reader, key=key) for key in keys]
    schemas = [one.schema for one in found if one.schema is not None]
    named = [[column.name for column in schema.columns if column.key_position is not None] for schema in schemas]
    assert named == [["id"], ["id"], ["code"], ["code"]]
    assert (schemas[0] is schemas[1], schemas[2] is schemas[3]) == (True, True), "made once for each key"
    assert [one.key for one in found] == keys


def test_two_tables_may_embed_one_schema() -> None:
    """Flat rows name no table in theirs."""
    reader = DebeziumReader()
    tables = [read(flat({"id": 1}), reader, topic=topic).schema for topic in ("d.s.one", "d.s.two", "d.s.one")]
    assert [str(schema.table) for schema in tables if schema is not None] == ["s.one", "s.two", "s.one"]
