"""MongoDB's documents: JSON strings in the envelope, ids of any type, and updates that are patches.

Format: Debezium's connector for MongoDB (3.x) writes ``after`` as a string of extended JSON in strict mode, the key
as ``{"id": "<extended JSON>"}`` and, where the whole document is not looked up, ``updateDescription``
(``MongoDbCollectionSchema.valueFromDocumentChangeStream``, ``JsonSerialization``).

A patch is made a document here if the record holds the one before the change (``*_with_pre_image``). Else it stays
a patch: its row has the placeholder of a value that did not come along, and the sink applies the
``updateDescription`` that the record goes on to hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName
from cdc.wire.debezium.patch import AmbiguousPath, Patch, Patched
from cdc.wire.debezium.shape import EMBEDDED_VERSIONS
from cdc.wire.format import UNAVAILABLE

ID, DOCUMENT = "id", "document"
PATCH = "updateDescription"
UNBROKEN_FROM = "unbrokenFrom"
"""Member of a patch's envelope: the position from which on no record is missing before it. Where it is left out,
none is. Of an update that lacks a value: where its run began. A row that was stored before may not fill it."""


def collection_schema(table: TableName, topic: str) -> TableSchema:
    """A collection as a table: the document's id as text, and the document."""
    return TableSchema(
        table=table,
        topic=topic,
        version=EMBEDDED_VERSIONS,
        oid=0,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=(
            Column(name=ID, attnum=1, type="text", type_oid=0, kind="text", nullable=False, key_position=1),
            Column(name=DOCUMENT, attnum=2, type="jsonb", type_oid=0, kind="jsonb"),
        ),
    )


def id_text(key: Mapping[str, Any]) -> str:
    """The id of a key, as text: what an ObjectId, a string or a number holds, the JSON of anything else.

    >>> id_text({"id": '{"$oid": "596e275826f08b2730779e1f"}'}), id_text({"id": '"a"'}), id_text({"id": "1004"})
    ('596e275826f08b2730779e1f', 'a', '1004')
    >>> id_text({"id": '{"$numberLong": "7"}'}), id_text({"id": '{"a":1}'})
    ('7', '{"a":1}')
    """
    text = key[ID]
    value = orjson.loads(text)
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((kind, inner),) = value.items()
        if kind in ("$oid", "$numberLong", "$numberInt", "$numberDecimal", "$uuid") and isinstance(inner, str):
            return inner
    return str(text)


def document_after(payload: Mapping[str, Any]) -> str:
    """A change's document as JSON text, or the placeholder where it is for the sink to make. ValueError where the
    record holds neither a document nor a patch.

    >>> patch = {"removedFields": ["b"], "updatedFields": '{"a": 2}', "truncatedArrays": None}
    >>> document_after({"before": '{"a": 1, "b": 1, "c": 1}', "after": None, "updateDescription": patch})
    '{"a":2,"c":1}'
    >>> document_after({"before": None, "after": None, "updateDescription": patch})
    '__debezium_unavailable_value'
    """
    after = payload.get("after")
    if after is not None:
        return str(after)
    description = payload.get(PATCH)
    if not isinstance(description, dict):
        raise ValueError("it holds neither a document nor a patch")
    patch = Patch.read(description, orjson.loads)
    made = _from_before(payload.get("before"), patch)
    return UNAVAILABLE if made is None else made


def _from_before(before: Any, patch: Patch) -> str | None:
    try:
        document = orjson.loads(before) if isinstance(before, str) else None
        if not isinstance(document, dict):
            return None
        made = Patched(document)
        made.apply(patch)
    except (orjson.JSONDecodeError, AmbiguousPath):
        return None
    return None if made.unplaced else orjson.dumps(made.document).decode()
