"""From rows to documents and back: pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from cdc.record.documents import dumped
from cdc.record.position import CHUNK_SEQ, SNAPSHOT_SEQ, Position
from cdc.record.schema import TableSchema
from cdc.wire.jsontree import INDEXED_DEPTH, is_deeper
from cdc.wire.plain import PlainTable
from cdc.wire.types import NESTED_KINDS
from sinks.contract.missing_values import dumps_exact, loads_exact, members
from sinks.contract.port import StoredRow
from sinks.contract.store_names import document_id, field_names
from sinks.search.search_mapping import DELETED, KEY, POS, TEXT, geo_point

_POSITION = re.compile("[0-9a-f]{32}")
_EPOCH_BITS, _KINDS = 56, 7
_CHUNK, _SNAPSHOT = f"{CHUNK_SEQ:08x}", f"{SNAPSHOT_SEQ:08x}"


class Documents:
    """Documents of one table. ``as_text``: json stands as text (``json_mapping = "text"``). ``points``: fields that are
    made of columns, each with those."""

    def __init__(
        self, schema: TableSchema, *, as_text: bool = False, points: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._points = points or {}
        self._plain = PlainTable(schema, nested=not as_text)
        self._fields = field_names(c.name for c in schema.columns)
        self._columns = {field: column for column, field in self._fields.items()}
        self._nested = [c.name for c in schema.columns if c.kind in NESTED_KINDS]
        self._as_text = as_text
        renamed = any(column != field for column, field in self._fields.items())
        self._verbatim = self._plain.as_it_is and not renamed and not self._points

    @property
    def nested(self) -> bool:
        """Whether the table has json that could stand as text."""
        return bool(self._nested) and not self._as_text

    def body(self, after_json: bytes) -> bytes:
        """A row on the wire as a document's JSON in one line, less its closing brace. Raises ValueError for what is no
        object."""
        if self._verbatim:
            return self._plain.row(after_json)[:-1]
        after = orjson.loads(after_json)
        if not isinstance(after, dict):
            raise ValueError("the row is not a JSON object")
        return self.filled(self._plain.values(after))

    def filled(self, row: Mapping[str, Any]) -> bytes:
        """The same from plain values."""
        fields = self._fields
        if self._as_text:
            row = {**row, **{name: _text(row[name]) for name in self._nested if row.get(name) is not None}}
        made = {name: place for name, of in self._points.items() if (place := geo_point(row, of)) is not None}
        body = orjson.dumps({**{fields.get(name, name): value for name, value in row.items()}, **made})[:-1]
        # A line break is white space between the tokens of a nested document, and ends a line of a bulk body.
        body = body.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in body or b"\r" in body else body
        if self.nested and is_deeper(body, INDEXED_DEPTH):
            return self.with_text(body, lambda raw: is_deeper(raw, INDEXED_DEPTH))
        return body

    def with_text(self, body: bytes, chosen: Callable[[bytes], bool] = lambda _: True) -> bytes:
        """A document's JSON, less its closing brace, whose ``chosen`` nested values stand as text under ``_text``."""
        every = members(body + b"}")
        earlier = loads_exact(every.pop(TEXT, b"{}"))
        names = {self._fields[name] for name in self._nested}
        texts = {name: raw.decode() for name, raw in every.items() if name in names and raw != b"null" and chosen(raw)}
        kept = {name: orjson.Fragment(raw) for name, raw in every.items() if name not in texts}
        return orjson.dumps({**kept, **({TEXT: earlier | texts} if earlier or texts else {})})[:-1]

    def stored(self, identity: str, source: Mapping[str, Any], version: int = 0) -> StoredRow:
        """A document back to the row it was. Its ``version`` decides over its ``_pos``, which somebody else may have
        set, or left out."""
        key = str(source.get(KEY, identity))
        pos = _pos_of(source.get(POS), version)
        if source.get(DELETED):
            return StoredRow(key=key, pos=pos, row=None)
        columns = self._columns
        row = {columns[field]: value for field, value in source.items() if field in columns}
        texts = source.get(TEXT)
        if isinstance(texts, Mapping):
            row.update({columns[f]: orjson.Fragment(str(t)) for f, t in texts.items() if f in columns})
        if self._as_text:
            row.update({n: _nested(row[n]) for n in self._nested if isinstance(row.get(n), str | list)})
        return StoredRow(key=key, pos=pos, row=dumps_exact(row))


def _pos_of(said: Any, version: int) -> str:
    """The position of a document: what it says, or the one that its version stands for where that is later."""
    known = isinstance(said, str) and _POSITION.fullmatch(said) is not None
    if not known and version < 1 << _EPOCH_BITS:
        return ""
    if known and document_version(said) >= version - _KINDS:
        return str(said)
    return Position(version >> _EPOCH_BITS, version & ((1 << _EPOCH_BITS) - 1) & ~_KINDS, CHUNK_SEQ).text()


def action(key: str, pos: str, name: bytes) -> bytes:
    """The line before a document in a bulk body, with its line break. ``name``: the index, as JSON."""
    version = document_version(pos)
    identity = dumped(document_id(key))
    return b'{"index":{"_index":%b,"_id":%b,"version":%d,"version_type":"external_gte"}}\n' % (name, identity, version)


def document_version(pos: str) -> int:
    """:meth:`cdc.record.position.Position.document_version` of a position's text, in one step."""
    seq = pos[24:]
    kind = 0 if seq == _SNAPSHOT else 7 if seq == _CHUNK else 1
    return (int(pos[:8], 16) << 56) + (int(pos[8:24], 16) + 7 & ~7) + kind


def ending(key: str, pos: str) -> bytes:
    """The end of a live document's text."""
    return b',"_pos":"%b"%b}\n' % (pos.encode(), _own_key(key))


def deleted(key: str, pos: str, now_ms: int) -> bytes:
    """The document that a delete leaves."""
    return b'{"_deleted":true,"_pos":"%b","_deleted_at":%d%b}\n' % (pos.encode(), now_ms, _own_key(key))


def _own_key(key: str) -> bytes:
    return b"" if document_id(key) == key else b',"_key":' + dumped(key)


def _text(value: Any) -> Any:
    if isinstance(value, orjson.Fragment):
        return orjson.dumps(value).decode()
    return [_text(v) for v in value] if isinstance(value, list) else value


def _nested(value: Any) -> Any:
    if isinstance(value, list):
        return [_nested(v) for v in value]
    return orjson.Fragment(value) if isinstance(value, str) else value
