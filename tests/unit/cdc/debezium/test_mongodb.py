"""MongoDB's records as Debezium's manual documents them (connector for MongoDB, 3.x, "Data change events")."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.debezium.mongodb import apply_patch, id_text
from cdc.debezium.read import Change, PartitionReader, Settled, Unreadable
from cdc.position import Position

KEY = orjson.dumps(
    {
        "schema": {"type": "struct", "fields": [{"field": "id", "type": "string", "optional": False}]},
        "payload": {"id": '{"$oid": "596e275826f08b2730779e1f"}'},
    }
)
ID = "596e275826f08b2730779e1f"


def envelope(op: str, after: str | None, patch: dict[str, Any] | None = None, seconds: int = 1465491411) -> bytes:
    return orjson.dumps(
        {
            "op": op,
            "ts_ms": seconds * 1000 + 53,
            "before": None,
            "after": after,
            "updateDescription": patch,
            "source": {
                "version": "3.7.0.Final",
                "connector": "mongodb",
                "name": "fulfillment",
                "ts_ms": seconds * 1000,
                "snapshot": False,
                "db": "inventory",
                "collection": "customers",
                "rs": "rs0",
                "ord": 31,
                "wallTime": None,
            },
        }
    )


CREATED = '{"_id" : {"$oid" : "596e275826f08b2730779e1f"},"first_name" : "Anne","email" : "annek@noanswer.org"}'


def test_a_document_is_a_row_of_its_id_and_itself() -> None:
    reader = PartitionReader("fulfillment.inventory.customers", 0)
    found = reader.read(0, KEY, envelope("c", CREATED))
    assert isinstance(found, Change)
    assert found.key == orjson.dumps({"id": ID})
    assert found.pos == Position(1, (1465491411 << 21 | 31) << 3, 32)
    assert orjson.loads(found.value or b"")["after"] == {"id": ID, "document": CREATED}
    assert found.schema is not None
    assert [(c.name, c.kind, c.key_position) for c in found.schema.columns] == [
        ("id", "text", 1),
        ("document", "jsonb", None),
    ]
    assert str(found.schema.table) == "inventory.customers"


def test_a_delete_and_its_tombstone() -> None:
    reader = PartitionReader("fulfillment.inventory.customers", 0)
    deleted = reader.read(1, KEY, envelope("d", None))
    assert isinstance(deleted, Change)
    assert (deleted.op, deleted.value, deleted.key) == ("d", None, orjson.dumps({"id": ID}))
    assert isinstance(reader.read(2, KEY, None), Settled)


def test_a_patch_is_applied_to_the_document_that_is_held() -> None:
    patch = {"removedFields": ["email"], "updatedFields": '{"first_name": "Anne Marie"}', "truncatedArrays": None}
    reader = PartitionReader("t", 0, documents={ID: CREATED}.get)
    found = reader.read(0, KEY, envelope("u", None, patch))
    assert isinstance(found, Change)
    document = orjson.loads(orjson.loads(found.value or b"")["after"]["document"])
    assert document == {"_id": {"$oid": ID}, "first_name": "Anne Marie"}


def test_a_patch_without_its_document_is_told_with_the_setting_that_helps() -> None:
    found = PartitionReader("t", 0).read(0, KEY, envelope("u", None, {"updatedFields": '{"a":1}'}))
    assert isinstance(found, Unreadable)
    assert "change_streams_update_full" in found.reason


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ('{"$oid":"596e275826f08b2730779e1f"}', ID),
        ('"abc"', "abc"),
        ("1004", "1004"),
        ('{"$numberLong":"9007199254740993"}', "9007199254740993"),
        ('{"$binary": "a37RZHFCp8T", "$type": "04"}', '{"$binary": "a37RZHFCp8T", "$type": "04"}'),
    ],
)
def test_ids_of_any_type(key: str, text: str) -> None:
    assert id_text({"id": key}) == text


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ('{"a":[1,2,3]}', {"truncatedArrays": [{"field": "a", "size": 1}]}, {"a": [1]}),
        ('{"a":[1]}', {"updatedFields": '{"a.1":2}'}, {"a": [1, 2]}),
        ('{"a":{"b":{"c":1}}}', {"removedFields": ["a.b.c"]}, {"a": {"b": {}}}),
        ('{"a":1}', {"removedFields": ["gone"], "updatedFields": None}, {"a": 1}),
    ],
)
def test_patches(document: str, patch: dict[str, Any], expected: Any) -> None:
    assert orjson.loads(apply_patch(document, patch)) == expected


@pytest.mark.parametrize("path", ["x.y", "a.b.c", "l.7", "l.x.y"])
def test_a_patch_of_another_document_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="the document has no"):
        apply_patch('{"a":{"b":1},"l":[1]}', {"updatedFields": orjson.dumps({path: 1}).decode()})


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), _json, max_size=4), st.text("abc", min_size=1), _json)
def test_a_field_that_is_set_is_there_and_no_other_changes(document: dict[str, Any], name: str, value: Any) -> None:
    patched = orjson.loads(apply_patch(orjson.dumps(document).decode(), {"updatedFields": orjson.dumps({name: value})}))
    assert patched == {**document, name: value}
