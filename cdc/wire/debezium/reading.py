"""A record of Debezium's, of any form, as a change: key, envelope, position, op and the shape of its row.

Forms: with the embedded schema (``schema`` and ``payload``) or without. The full envelope or the flat row of
ExtractNewRecordState. Readable or default encodings. Documents of MongoDB. Values come out in the readable
encoding where the schema is embedded. Without it they stay as they are, and the schema topic has their types.

Each record is read by itself. Its position is that of its partition, which is the order that Debezium promises, for
every database that it has. Positions of two partitions mean nothing beside each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from cdc.record.documents import dumped
from cdc.record.position import Position
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.debezium.wrapped import (
    EMBEDDED_VERSIONS,
    Shape,
    Wrapped,
    Wrappings,
    is_flat_field,
    is_wrapped,
    shape_of,
    without_halves,
)
from cdc.wire.envelope import is_unavailable, missing
from cdc.wire.plain import readable_key

UNVERSIONED = 0
"""``ver`` of a record without an embedded schema: the newest version that the schema topic holds."""
_EPOCH = 0
"""Below each one of the native capture, which may go on with the topics."""
_OPS = frozenset("cudr")


class DebeziumChange(NamedTuple):
    """One change, as :class:`sinks.contract.batch.Event` has it. ``schema``: the embedded one. None for the schema
    topic's."""

    key: bytes
    value: bytes | None
    pos: Position
    op: str
    ver: int
    schema: TableSchema | None


class UnreadableRecord(NamedTuple):
    """A record that is not one of Debezium's, or lacks what is needed. Never dropped silently."""

    reason: str


class _Refused(ValueError):
    """Becomes :class:`UnreadableRecord`, in these words."""


class DebeziumReader:
    """Reads records, in any order. Raises nothing, for any bytes. It remembers schemas that records embed, and no more.

    ``documents``: the records are MongoDB's. ``precise``: decimals of keys are bytes, and no text. Both are asked of
    keys that come without a row: those of tombstones.
    """

    def __init__(self, *, documents: bool = False, precise: bool = False) -> None:
        self._documents = documents
        self._precise = precise
        self._wrappings = Wrappings()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reader, (self._documents, self._precise)

    def read(
        self, topic: str, offset: int, key: bytes | None, value: bytes | None, newest: TableSchema | None = None
    ) -> DebeziumChange | UnreadableRecord:
        """One record. ``newest``: the topic's newest shape that the schema topic has. A tombstone is read by it."""
        try:
            return self._read(topic, _place(offset), key, value, newest)
        except _Refused as refusal:
            return UnreadableRecord(str(refusal))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as fault:
            return UnreadableRecord(f"not a record of Debezium's: it is not readable ({type(fault).__name__})")

    def _read(
        self, topic: str, pos: Position, key: bytes | None, value: bytes | None, newest: TableSchema | None
    ) -> DebeziumChange:
        wrapped = self._wrappings.unwrap(value) if value is not None else None
        if wrapped is not None and isinstance(wrapped.payload, dict) and wrapped.payload.get("op") == "t":
            _refuse_truncate(wrapped.payload)
        names = _key_of(key)
        if wrapped is None or wrapped.payload is None:
            return DebeziumChange(self._lone_key(topic, key, names, newest), None, pos, "d", UNVERSIONED, None)
        payload = wrapped.payload
        if not isinstance(payload, dict):
            raise _Refused("not a record of Debezium's: its value is no JSON object")
        if not _is_envelope(payload):
            return _flat_row(topic, names, wrapped, pos)
        if payload["op"] not in _OPS:
            raise _Refused(f"not a change: its op is {payload['op']}")
        if payload["source"].get("connector") == "mongodb":
            return _document(topic, names, payload, pos)
        return _row(topic, names, wrapped, pos)

    def _lone_key(self, topic: str, key: bytes | None, names: Mapping[str, Any], newest: TableSchema | None) -> bytes:
        """The key of a tombstone as rows have it: by the schema that it embeds itself, or by the table's newest."""
        if self._documents:
            return dumped({ID: id_text(names)})
        document: Any = orjson.loads(key or b"null")
        if is_wrapped(document) and document["schema"] is not None:
            return dumped(_readable(shape_of(document["schema"]["fields"], (), _flat_table(topic, {}), topic), names))
        return dumped(names if newest is None else readable_key(newest, names, precise=self._precise))


def _reader(documents: bool, precise: bool) -> DebeziumReader:
    return DebeziumReader(documents=documents, precise=precise)


def _place(offset: int) -> Position:
    """Eight apart, as LSNs are: a search index makes its versions of them. No row of a snapshot has this tx_seq."""
    return Position(_EPOCH, (offset + 1) << 3, 1)


def _row(topic: str, names: Mapping[str, Any], wrapped: Wrapped, pos: Position) -> DebeziumChange:
    payload = wrapped.payload
    shape = _shape(wrapped, names, _table_of(payload["source"]), topic)
    if payload["op"] == "d":
        return _change(shape, names, None, pos, "d")
    if not isinstance(payload["after"], dict):
        raise _Refused("it holds no row")
    _require_whole(payload["after"], shape)
    if shape is None or not shape.conversions:
        return _change(shape, names, wrapped.text, pos, payload["op"])
    row = _readable(shape, payload["after"])
    return _change(shape, names, dumped({**payload, "before": None, "after": row}), pos, payload["op"])


def _flat_row(topic: str, names: Mapping[str, Any], wrapped: Wrapped, pos: Position) -> DebeziumChange:
    payload = wrapped.payload
    row = {name: value for name, value in payload.items() if not is_flat_field(name)}
    shape = _shape(wrapped, names, _flat_table(topic, payload), topic)
    op = str(payload.get("__op") or "u")
    if str(payload.get("__deleted")).lower() == "true" or op == "d":
        return _change(shape, names, None, pos, "d")
    if op not in _OPS:
        raise _Refused(f"not a change: its op is {op}")
    _require_whole(row, shape)
    after = row if shape is None else _readable(shape, row)
    return _change(shape, names, dumped({"before": None, "after": after, "op": op}), pos, op)


def _document(topic: str, names: Mapping[str, Any], payload: Mapping[str, Any], pos: Position) -> DebeziumChange:
    schema, op = collection_schema(_table_of(payload["source"]), topic), payload["op"]
    key = dumped({ID: id_text(names)})
    if op == "d":
        return DebeziumChange(key, None, pos, op, schema.version, schema)
    try:
        document = document_after(payload)
    except ValueError as fault:
        raise _Refused(str(fault)) from None
    row = {ID: id_text(names), DOCUMENT: document}
    # In the order of our own envelopes, by which a row is cut out of its record.
    envelope = {"before": None, "after": row, "source": payload["source"], "op": op, "ts_ms": payload.get("ts_ms")}
    return DebeziumChange(key, dumped(envelope), pos, op, schema.version, schema)


def _shape(wrapped: Wrapped, names: Mapping[str, Any], table: TableName, topic: str) -> Shape | None:
    embedded = wrapped.embedded
    return None if embedded is None or embedded.fields is None else embedded.shaped(tuple(names), table, topic)


def _change(
    shape: Shape | None, names: Mapping[str, Any], value: bytes | None, pos: Position, op: str
) -> DebeziumChange:
    if shape is None:
        return DebeziumChange(dumped(names), value, pos, op, UNVERSIONED, None)
    key = dumped(_readable(shape, names))
    return DebeziumChange(key, value, pos, op, shape.schema.version, shape.schema)


def _readable(shape: Shape, row: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return shape.readable(row)
    except ValueError as fault:
        raise _Refused(str(fault)) from None


def _require_whole(row: Mapping[str, Any], shape: Shape | None) -> None:
    """Nothing here has a value that did not change and was not sent."""
    lacking = missing(row, shape.schema) if shape else [name for name, one in row.items() if is_unavailable(one)]
    if lacking:
        named = ", ".join(lacking)
        raise _Refused(f"it lacks the value of {named}, which did not change: the next whole record of its key has it")


def _refuse_truncate(payload: Mapping[str, Any]) -> None:
    """It stands in one partition, and nothing says where in the others."""
    if _is_envelope(payload):
        raise _Refused("a truncate, which has no place among the records of other partitions: no row is removed")


def _is_envelope(payload: Mapping[str, Any]) -> bool:
    """Whether it is the full envelope. A flat row may have columns named ``op`` and ``source``."""
    source = payload.get("source")
    return "op" in payload and isinstance(source, dict) and "connector" in source


def _key_of(key: bytes | None) -> Mapping[str, Any]:
    document: Any = orjson.loads(key) if key is not None else None
    if is_wrapped(document):
        document = document["payload"]
    if document is not None and not isinstance(document, dict):
        raise _Refused("its key is no JSON object")
    if not document:
        raise _Refused("it has no key, and so no row that it changes")
    return document


def _table_of(source: Mapping[str, Any]) -> TableName:
    """The table by its schema, or by its database where that is all there is."""
    return TableName(str(source.get("schema") or source["db"]), str(source.get("table") or source["collection"]))


def _flat_table(topic: str, payload: Mapping[str, Any]) -> TableName:
    """By the fields that the transformation adds, else by the topic's name."""
    *_, schema, table = ("", "", *topic.split("."))
    named = payload.get("__source_schema") or payload.get("__schema") or payload.get("__db")
    return TableName(str(named or schema), str(payload.get("__source_table") or payload.get("__table") or table))


# MongoDB's documents: JSON strings in the envelope, ids of any type.
#
# Format: Debezium's connector for MongoDB (3.x) writes ``after`` as a string of extended JSON in strict mode, and the
# key as ``{"id": "<extended JSON>"}`` (``MongoDbCollectionSchema.valueFromDocumentChangeStream``,
# ``JsonSerialization``).

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


def is_read_row(value: bytes | None) -> bool:
    """Whether a record of Debezium's is a row that a snapshot read: by its operation, or by its text where it is not
    JSON.

    >>> is_read_row(b'{"payload": {"op": "r", "source": {}}}'), is_read_row(b'{"op": "c"}'), is_read_row(None)
    (True, False, False)
    >>> is_read_row(b'{"id": 1, "__op": "r"}'), is_read_row(bytes([0, 0, 0, 0, 7]) + b"incremental")
    (True, True)
    """
    if value is None:
        return False
    try:
        document: Any = orjson.loads(without_halves(value))
    except orjson.JSONDecodeError:
        return b"incremental" in value
    if isinstance(document, dict) and "payload" in document and document.keys() <= {"schema", "payload"}:
        document = document["payload"]
    if not isinstance(document, dict):
        return False
    return document.get("__op") == "r" or (document.get("op") == "r" and "source" in document)
