"""MongoDB's documented records as changes: documents, deletes, and their order."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.wire.debezium.reading import DebeziumChange, DebeziumReader, UnreadableRecord, id_text
from cdc.wire.envelope import row_reader
from tests.unit.cdc.wire.debezium.mongodb import ANNE, ANNE_MARIE, CREATED, CUSTOMERS, ID, RENAMED, TOPIC, envelope, key

SCHEMAED_KEY = orjson.dumps(
    {
        "schema": {"type": "struct", "fields": [{"field": "id", "type": "string", "optional": False}]},
        "payload": {"id": f'{{"$oid": "{ID}"}}'},
    }
)


def read(value: bytes | None) -> DebeziumChange:
    found = DebeziumReader().read(TOPIC, 0, key(), value)
    assert isinstance(found, DebeziumChange)
    return found


def row(change: DebeziumChange) -> Any:
    """As a sink cuts it out of the value."""
    return orjson.loads(row_reader([c.name for c in CUSTOMERS.columns])(change.value or b""))


@pytest.mark.parametrize("bytes_of_key", [SCHEMAED_KEY, key()])
def test_a_document_is_a_row_of_its_id_and_itself(bytes_of_key: bytes) -> None:
    found = DebeziumReader().read(TOPIC, 0, bytes_of_key, envelope("c", after=CREATED))
    assert isinstance(found, DebeziumChange)
    assert found.key == orjson.dumps({"id": ID})
    assert row(found) == {"id": ID, "document": CREATED}
    assert found.schema == CUSTOMERS
    assert [(c.name, c.kind, c.key_position) for c in CUSTOMERS.columns] == [
        ("id", "text", 1),
        ("document", "jsonb", None),
    ]
    assert str(CUSTOMERS.table) == "inventory.customers"


def test_the_embedded_schema_makes_no_difference() -> None:
    plain = envelope("u", after=ANNE_MARIE, patch=RENAMED)
    schema = orjson.dumps({"type": "struct", "fields": [{"field": name} for name in ("after", "op", "source")]})
    assert read(b'{"schema":%b,"payload":%b}' % (schema, plain)) == read(plain)


def test_an_update_with_its_document_is_that_document() -> None:
    """``change_streams_update_full_with_pre_image``: the manual's update, all three members."""
    assert row(read(envelope("u", before=ANNE, after=ANNE_MARIE, patch=RENAMED)))["document"] == ANNE_MARIE


def test_a_replace_has_a_document_and_no_patch() -> None:
    assert row(read(envelope("u", after=ANNE)))["document"] == ANNE


@pytest.mark.parametrize("before", [None, ANNE])
@pytest.mark.parametrize("description", [None, RENAMED])
def test_h67_an_update_without_its_document_is_refused(before: str | None, description: Any) -> None:
    reader = DebeziumReader(documents=True)
    found = reader.read(TOPIC, 0, key(), envelope("u", before=before, patch=description))
    assert found == UnreadableRecord("it holds no whole document: capture.mode=change_streams_update_full brings it")
    whole = reader.read(TOPIC, 1, key(), envelope("u", after=ANNE_MARIE, patch=RENAMED))
    assert isinstance(whole, DebeziumChange)
    assert row(whole)["document"] == ANNE_MARIE


def test_a_delete_and_its_tombstone() -> None:
    reader = DebeziumReader(documents=True)
    for offset, value in enumerate((envelope("d", before=ANNE), None)):
        deleted = reader.read(TOPIC, offset, key(), value)
        assert isinstance(deleted, DebeziumChange)
        assert (deleted.op, deleted.value, deleted.key) == ("d", None, orjson.dumps({"id": ID}))


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
