"""A record of Debezium's, of any form, as a change: key, envelope, position, op and the shape of its row.

Forms: with the embedded schema (``schema`` and ``payload``) or without. The full envelope or the flat row of
ExtractNewRecordState. Readable or default encodings. Documents of MongoDB. Values come out in the readable
encoding where the schema is embedded. Without it they stay as they are, and the schema topic has their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from cdc.epochs import EpochsState
from cdc.json_bytes import dumped
from cdc.position import SNAPSHOT_SEQ, Position
from cdc.schema import TableSchema
from cdc.topic import TableName
from cdc.wire.debezium.falls import Falls, ServerMove
from cdc.wire.debezium.mongodb_read import (
    DOCUMENT,
    ID,
    collection_schema,
    document_after,
    id_text,
)
from cdc.wire.debezium.order import (
    FIRST,
    FIRST_OF_TABLE,
    INCREMENTAL,
    LAST,
    Unordered,
    position_of,
    snapshot_marker,
)
from cdc.wire.debezium.shape import Shape, shape_of
from cdc.wire.debezium.wrapped import Embedded, Wrapped, Wrappings, is_flat_field, is_wrapped
from cdc.wire.unavailable import is_unavailable, missing

UNVERSIONED = 0
"""``ver`` of a record without an embedded schema: the newest version that the schema topic holds."""

_OPS = frozenset("cudrt")


class DebeziumChange(NamedTuple):
    """One change, as :class:`sinks.batch.Event` has it. ``schema``: the embedded one. None for the schema topic's.

    ``lone``: of a tombstone whose delete the cleaner has taken. It stands at ``pos`` or higher, and below all that its
    partition goes on with.
    """

    key: bytes
    value: bytes | None
    pos: Position
    op: str
    ver: int
    schema: TableSchema | None
    lone: bool = False


class SettledRecord(NamedTuple):
    """A record that changes nothing any more: a tombstone whose delete was read before."""

    reason: str


class UnreadableRecord(NamedTuple):
    """A record that is not one of Debezium's, or lacks what is needed. Never dropped silently."""

    reason: str


class _Refused(ValueError):
    """Becomes :class:`UnreadableRecord`, in these words."""


class PartitionReader:
    """Reads the records of one partition in their order. Raises nothing, for any bytes.

    It remembers the highest position it has read, the last delete and the last shape, for records that carry
    none. A reader that starts in the middle can be given some records from before, their changes not applied.
    It can be pickled between two records, and goes on in another process. ``epochs`` have to be given to it there.
    ``lone``: a tombstone before any other record is told, at the lowest place of its epoch, and not taken for one whose
    delete was read; and each whose delete was not read is called that. ``documents``: the keys before the first row are
    those of MongoDB's documents.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        epochs: EpochsState | None = None,
        lone: bool = False,
        documents: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.highest: Position | None = None
        self.epochs = epochs or EpochsState()
        self.fell = ""
        """Why the record that was read last is in no order with those before it, as a clause. Empty where it is."""
        self.moved: ServerMove | None = None
        """That the record that was read last is of another server than those before it, in order all the same."""
        self.began = ""
        """The mark of the record that was read last, if it begins a snapshot of whole tables (``first``) or one of them
        in it. Empty for every other."""
        self.over = 0
        """The newest epoch of which a change behind its first snapshot was read, or that snapshot's last row."""
        self.over_ms = 0
        """The topic's time of the first such record."""
        self._falls = Falls()
        self._lone = lone
        self._time_ms = 0
        self._wrappings = Wrappings()
        self._deleted: tuple[bytes, int] | None = None
        self._flat, self._by_offsets = False, documents
        self._next = -1
        self._embedded: Embedded | None = None
        self._of_documents = documents
        self._rows_read = documents
        self._schema: TableSchema | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_wrappings": Wrappings(), "epochs": EpochsState()}

    def read(
        self,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        *,
        time_ms: int = 0,
    ) -> DebeziumChange | SettledRecord | UnreadableRecord:
        """One record. A TRUNCATE comes with the constant key of a floor. ``time_ms``: the topic's time."""
        self._next, self._time_ms = offset + 1, time_ms
        self.fell, self.began, self.moved = "", "", None
        try:
            found = self._read(offset, key, value)
        except _Refused as refusal:
            return UnreadableRecord(str(refusal))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as fault:
            words = str(fault) if isinstance(fault, Unordered) else f"it is not readable ({type(fault).__name__})"
            return UnreadableRecord(f"not a record of Debezium's: {words}")
        if isinstance(found, DebeziumChange) and not found.lone:
            self.highest = found.pos if self.highest is None else max(self.highest, found.pos)
        return found

    @property
    def next_offset(self) -> int:
        """Behind the record that was read last. -1 before the first."""
        return self._next

    def look_back(
        self, offset: int, key: bytes | None, value: bytes | None, *, time_ms: int = 0
    ) -> DebeziumChange | SettledRecord | UnreadableRecord:
        """A record from before the first one that is read, whose change is applied already."""
        found = self.read(offset, key, value, time_ms=time_ms)
        self._next = -1
        return found

    def _read(self, offset: int, key: bytes | None, value: bytes | None) -> DebeziumChange | SettledRecord:
        epoch = self.epochs.epoch(self.topic, self.partition, offset)
        names = _key_of(key)
        wrapped = self._wrappings.unwrap(value) if value is not None else None
        if wrapped is None or wrapped.payload is None:
            found = _needed(names)
            return self._tombstone(found if self._rows_read else self._by_its_schema(found, key), epoch, offset)
        payload = wrapped.payload
        if not isinstance(payload, dict):
            raise _Refused("not a record of Debezium's: its value is no JSON object")
        self._rows_read = True
        self._flat = not _is_envelope(payload)
        of_mongodb = not self._flat and payload["source"].get("connector") == "mongodb"
        self._by_offsets = self._flat or of_mongodb
        if self._flat:
            return self._flat_row(_needed(names), wrapped, epoch, offset)
        if payload["op"] not in _OPS:
            raise _Refused(f"not a change: its op is {payload['op']}")
        pos = _by_offset(epoch, offset) if of_mongodb else self._position(payload["source"], epoch)
        if payload["op"] == "t":
            return self._truncate(payload, wrapped, pos)
        if of_mongodb:
            return self._document(_needed(names), payload, pos)
        return self._row(_needed(names), wrapped, pos)

    def _row(self, names: Mapping[str, Any], wrapped: Wrapped, pos: Position) -> DebeziumChange:
        payload = wrapped.payload
        shape = self._take_shape(wrapped.embedded, names, _table_of(payload["source"]))
        key = self._key(names)
        if payload["op"] == "d":
            self._deleted = key, self._next - 1
            return self._change(key, None, pos, "d")
        if not isinstance(payload["after"], dict):
            raise _Refused("it holds no row")
        _require_whole(payload["after"], shape)
        if shape is None or not shape.conversions:
            return self._change(key, wrapped.text, pos, payload["op"])
        row = self._readable(shape, payload["after"])
        return self._change(key, dumped({**payload, "before": None, "after": row}), pos, payload["op"])

    def _flat_row(self, names: Mapping[str, Any], wrapped: Wrapped, epoch: int, offset: int) -> DebeziumChange:
        """A row alone. Its own note of order depends on settings, so the partition's order is taken."""
        payload = wrapped.payload
        table = _flat_table(self.topic, payload)
        row = {name: value for name, value in payload.items() if not is_flat_field(name)}
        shape = self._take_shape(wrapped.embedded, names, table)
        key, pos = self._key(names), _by_offset(epoch, offset)
        op = str(payload.get("__op") or "u")
        if str(payload.get("__deleted")).lower() == "true" or op == "d":
            return self._change(key, None, pos, "d")
        if op not in _OPS:
            raise _Refused(f"not a change: its op is {op}")
        _require_whole(row, shape)
        after = row if shape is None else self._readable(shape, row)
        return self._change(key, dumped({"before": None, "after": after, "op": op}), pos, op)

    def _document(self, names: Mapping[str, Any], payload: Mapping[str, Any], pos: Position) -> DebeziumChange:
        self._schema = collection_schema(_table_of(payload["source"]), self.topic)
        self._of_documents = True
        key, op = self._key(names), payload["op"]
        if op == "d":
            self._deleted = key, self._next - 1
            return self._change(key, None, pos, op)
        try:
            document = document_after(payload)
        except ValueError as fault:
            raise _Refused(str(fault)) from None
        row = {ID: id_text(names), DOCUMENT: document}
        # In the order of our own envelopes, by which a row is cut out of its record.
        envelope = {"before": None, "after": row, "source": payload["source"], "op": op, "ts_ms": payload.get("ts_ms")}
        return self._change(key, dumped(envelope), pos, op)

    def _truncate(self, payload: Mapping[str, Any], wrapped: Wrapped, pos: Position) -> DebeziumChange:
        table = _table_of(payload["source"])
        if wrapped.embedded is None:
            self._schema = None
        elif wrapped.embedded.shape is not None:
            self._schema = wrapped.embedded.shape.schema
        elif self._schema is None and wrapped.embedded.fields is not None:
            # No row of the table was read yet: there is none to remove, and its key is not known.
            self._schema = shape_of(wrapped.embedded.fields, (), table, self.topic).schema
        return self._change(dumped({"__truncate": str(table)}), wrapped.text, pos, "t")

    def _tombstone(self, names: Mapping[str, Any], epoch: int, offset: int) -> DebeziumChange | SettledRecord:
        """Deletes what the ``d`` before it deleted, and no more."""
        key = self._key(names)
        if self._flat:
            return self._change(key, None, _by_offset(epoch, offset), "d")
        deleted, self._deleted = self._deleted, None
        # A connector that wrote no tombstones for a while has left others' deletes without one.
        if deleted == (key, offset - 1):
            return SettledRecord("its delete was read before it")
        if self.highest is None and not self._lone:
            return SettledRecord("its delete lies before the first record that was read")
        # The delete itself was compacted away. Nothing later of this key has been read: offsets say so.
        if self._by_offsets:
            found = self._change(key, None, _by_offset(epoch, offset), "d")
            return found._replace(lone=self.highest is None)
        lowest = Position(epoch, 0, SNAPSHOT_SEQ)
        return self._change(key, None, max(self.highest or lowest, lowest), "d")._replace(lone=self._lone)

    def _change(self, key: bytes, value: bytes | None, pos: Position, op: str) -> DebeziumChange:
        ver = UNVERSIONED if self._schema is None else self._schema.version
        return DebeziumChange(key, value, pos, op, ver, self._schema)

    def _take_shape(self, embedded: Embedded | None, names: Mapping[str, Any], table: TableName) -> Shape | None:
        """The row's shape, which also says how keys are written until the next record."""
        self._of_documents = False
        if embedded is None or embedded.fields is None:
            self._schema = self._embedded = None
            return None
        shape = embedded.shaped(tuple(names), table, self.topic)
        self._schema, self._embedded = shape.schema, embedded
        return shape

    def _key(self, names: Mapping[str, Any]) -> bytes:
        """As keys are written since the last row."""
        if self._of_documents:
            return dumped({ID: id_text(names)})
        shape = self._embedded.shape if self._embedded is not None else None
        return dumped(names if shape is None else shape.readable(names))

    def _by_its_schema(self, names: Mapping[str, Any], key: bytes | None) -> Mapping[str, Any]:
        """A key as rows' schemas would have it read, before there was a row: by the schema that it embeds itself."""
        document: Any = orjson.loads(key) if key is not None else None
        if not is_wrapped(document) or document["schema"] is None:
            return names
        table = _flat_table(self.topic, {})
        return self._readable(shape_of(document["schema"]["fields"], (), table, self.topic), names)

    def _readable(self, shape: Shape, row: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return shape.readable(row)
        except ValueError as fault:
            raise _Refused(str(fault)) from None

    def _position(self, source: Mapping[str, Any], epoch: int) -> Position:
        marker = snapshot_marker(source)
        if marker != INCREMENTAL or self.highest is None or self.highest.epoch != epoch:
            pos = position_of(source, epoch)
            self._judge(marker, pos, source)
            return pos
        try:
            own = position_of(source, epoch)
        except Unordered:
            own = self.highest  # such rows may come without a place of their own
        # A row read while streaming is newer than every change before it in its partition, and older than every change
        # behind it. Where positions are equal the later offset wins, so it may stand as high as those before it.
        return max(own, self.highest)

    def _judge(self, marker: str, pos: Position, source: Mapping[str, Any]) -> None:
        """Of an epoch that is over, an order that began anew is what ended it."""
        fault = ""
        self.began = marker if marker in (FIRST, FIRST_OF_TABLE) else ""
        if marker in ("false", LAST) and pos.epoch > self.over:
            self.over, self.over_ms = pos.epoch, self._time_ms
        if marker == "false":
            fault = self._falls.streamed(pos, source, self._time_ms)
            self.moved = self._falls.moved if pos.epoch == self.epochs.latest else None
        elif marker != INCREMENTAL:
            fault = self._falls.first_snapshot(pos)
        self.fell = fault if pos.epoch == self.epochs.latest else ""


def _require_whole(row: Mapping[str, Any], shape: Shape | None) -> None:
    """Nothing here has a value that did not change and was not sent."""
    lacking = missing(row, shape.schema) if shape else [name for name, one in row.items() if is_unavailable(one)]
    if lacking:
        raise _Refused(
            f"it lacks the value of {', '.join(lacking)}, which did not change: the next whole record of its key has it"
        )


def _is_envelope(payload: Mapping[str, Any]) -> bool:
    """Whether it is the full envelope. A flat row may have columns named ``op`` and ``source``."""
    source = payload.get("source")
    return "op" in payload and isinstance(source, dict) and "connector" in source


def _key_of(key: bytes | None) -> Mapping[str, Any] | None:
    document: Any = orjson.loads(key) if key is not None else None
    if is_wrapped(document):
        document = document["payload"]
    if document is not None and not isinstance(document, dict):
        raise _Refused("its key is no JSON object")
    return document


def _needed(names: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not names:
        raise _Refused("it has no key, and so no row that it changes")
    return names


def _by_offset(epoch: int, offset: int) -> Position:
    return Position(epoch, (offset + 1) << 3, 1)


def _table_of(source: Mapping[str, Any]) -> TableName:
    """The table by its schema, or by its database where that is all there is."""
    return TableName(str(source.get("schema") or source["db"]), str(source.get("table") or source["collection"]))


def _flat_table(topic: str, payload: Mapping[str, Any]) -> TableName:
    """By the fields that the transformation adds, else by the topic's name."""
    *_, schema, table = ("", "", *topic.split("."))
    named = payload.get("__source_schema") or payload.get("__schema") or payload.get("__db")
    return TableName(str(named or schema), str(payload.get("__source_table") or payload.get("__table") or table))
