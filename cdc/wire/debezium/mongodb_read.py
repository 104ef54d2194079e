"""MongoDB's documents: JSON strings in the envelope, ids of any type.

Format: Debezium's connector for MongoDB (3.x) writes ``after`` as a string of extended JSON in strict mode, and the key
as ``{"id": "<extended JSON>"}`` (``MongoDbCollectionSchema.valueFromDocumentChangeStream``, ``JsonSerialization``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName
from cdc.wire.debezium.shape import EMBEDDED_VERSIONS

ID, DOCUMENT = "id", "document"


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
    """A change's document as JSON text. ValueError where the record holds none, as where what changed came alone, or
    where the document was gone when the connector asked for it: then its delete follows."""
    after = payload.get("after")
    if after is None:
        raise ValueError("it holds no whole document: capture.mode=change_streams_update_full brings it")
    return str(after)
