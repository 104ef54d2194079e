"""A change as a person reads it."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from cdc.record.position import Position
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.events import Record, read
from cdc.wire.format import UNAVAILABLE
from cdc.wire.jsontree import loads, written
from tests.hostile_documents import EVERY

ORDERS = TableSchema(
    table=TableName("public", "orders"),
    topic="shop.public.orders",
    version=1,
    oid=1,
    encoding="readable",
    identity=Identity.FULL,
    columns=(
        Column(name="id", attnum=1, type="integer", type_oid=23, kind="int4", nullable=False, key_position=0),
        Column(name="status", attnum=2, type="text", type_oid=25, kind="text"),
        Column(name="note", attnum=3, type="jsonb", type_oid=3802, kind="jsonb"),
    ),
)


def record(op: str, before: Any, after: Any, key: Any = None, lsn: int = 0x16B3D48) -> Record:
    return Record(
        topic=ORDERS.topic,
        partition=0,
        offset=7,
        key=orjson.dumps(key or {"id": 42}),
        value=orjson.dumps({"before": before, "after": after, "op": op, "ts_ms": 1}),
        headers={"pos": Position(1, lsn, 1).text().encode(), "op": op.encode(), "ver": b"1"},
    )


OPEN = {"id": 42, "status": "open", "note": '{"a": 1}'}
PAID = {"id": 42, "status": "paid", "note": '{"a": 1}'}


@pytest.mark.parametrize(
    ("op", "before", "after", "line"),
    [
        ("u", OPEN, PAID, 'orders 42  update  0/16B3D48  {"status": "paid"}  was {"status": "open"}'),
        ("u", None, PAID, 'orders 42  update  0/16B3D48  {"id": 42, "status": "paid", "note": {"a": 1}}'),
        ("c", None, OPEN, 'orders 42  insert  0/16B3D48  {"id": 42, "status": "open", "note": {"a": 1}}'),
        ("r", None, OPEN, 'orders 42  row  0/16B3D48  {"id": 42, "status": "open", "note": {"a": 1}}'),
        ("d", OPEN | {"note": None}, None, 'orders 42  delete  0/16B3D48  was {"id": 42, "status": "open"}'),
        ("t", None, None, "orders  truncate  0/16B3D48"),
    ],
)
def test_a_line_reads_as_the_readme_shows(op: str, before: Any, after: Any, line: str) -> None:
    change = read(ORDERS, record(op, before, after, key={"__truncate": "public.orders"} if op == "t" else None))
    assert change is not None
    assert change.line("orders") == line


def test_json_has_the_whole_change() -> None:
    change = read(ORDERS, record("u", OPEN, PAID))
    assert change is not None
    shown = orjson.loads(change.json())
    assert shown["table"] == "public.orders"
    assert (shown["key"], shown["op"], shown["lsn"]) == ("42", "update", "0/16B3D48")
    assert (shown["before"]["status"], shown["after"]["status"]) == ("open", "paid")
    assert shown["after"]["note"] == {"a": 1}


def test_a_tombstone_says_nothing() -> None:
    bare = record("d", OPEN, None)
    assert (
        read(ORDERS, Record(topic="t", partition=0, offset=1, key=bare.key, value=None, headers=bare.headers)) is None
    )


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"op": "c", "after": {"note": 1}}'])
def test_foreign_bytes_are_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError):
        read(ORDERS, Record(topic="t", partition=0, offset=1, key=b"1", value=value, headers={}))


def test_h38_a_value_that_capture_could_not_have_shows_as_such() -> None:
    """Its placeholder is no JSON, though the column is."""
    change = read(ORDERS, record("u", None, {"id": 42, "status": "paid", "note": UNAVAILABLE}))
    assert change is not None
    assert change.line("orders").endswith('{"id": 42, "status": "paid", "note": "__debezium_unavailable_value"}')


@pytest.mark.parametrize("name", EVERY)
def test_w6_a_change_is_one_line_of_json_whatever_it_holds(name: str) -> None:
    change = read(ORDERS, record("u", None, {**PAID, "note": EVERY[name]}))
    assert change is not None
    assert change.line().count("\n") == change.json().count("\n") == change.json().count("\r") == 0
    assert written(loads(change.json(), str)["after"]["note"], json.dumps) == written(
        loads(EVERY[name], str), json.dumps
    )
