"""Messages recorded from real servers, taken apart into fields, and written again from what was decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, assert_never

from cdc.record.schema import TableSchema
from connectors.postgres.protocol.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Truncate,
    TypeName,
    Update,
)
from connectors.postgres.protocol.pgoutput import write_tuple
from tests.unit.connectors.postgres import written as w

FOLDERS = (Path(__file__).parents[1] / "fixtures" / "pgoutput", Path(__file__).parent / "corpus")

_FIXED: Mapping[str, tuple[int, ...]] = MappingProxyType({"B": (8, 8, 4), "C": (1, 8, 8, 8)})


class Field(NamedTuple):
    """A piece of a message. ``what``: number, count, length, marker, text or value."""

    at: int
    width: int
    what: str


@cache
def streams() -> tuple[tuple[bytes, ...], ...]:
    """Every recording, message by message."""
    files = [file for folder in FOLDERS for file in sorted(folder.glob("*.hex"))]
    parts = [part for file in files for part in file.read_text(encoding="ascii").split("\n\n")]
    return tuple(tuple(bytes.fromhex(line) for line in part.split()) for part in parts)


@cache
def shapes() -> tuple[TableSchema, ...]:
    """The shapes behind the announcements, as far as they were recorded."""
    files = [file for folder in FOLDERS for file in sorted(folder.glob("*.shapes.jsonl"))]
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    return tuple(TableSchema.from_json(line) for line in lines)


@cache
def messages() -> tuple[bytes, ...]:
    """Every message that was recorded, once."""
    return tuple(dict.fromkeys(message for stream in streams() for message in stream))


@cache
def fields(message: bytes) -> tuple[Field, ...]:
    """The message's pieces in order, by the protocol's description and not by our decoder."""
    return tuple(_Walk(message).fields())


class _Walk:
    def __init__(self, message: bytes) -> None:
        self.message = message
        self.at = 1

    def fields(self) -> Iterator[Field]:
        kind = chr(self.message[0])
        yield Field(0, 1, "marker")
        if kind in _FIXED:
            for width in _FIXED[kind]:
                yield self._next(width, "number")
        elif kind in "IUD":
            yield self._next(4, "number")
            while self.at < len(self.message):
                yield self._next(1, "marker")
                yield from self._row()
        else:
            yield from {"O": self._origin, "R": self._relation, "Y": self._type, "T": self._truncate, "M": self._said}[
                kind
            ]()
        assert self.at == len(self.message), "not a message of protocol version 1"

    def _next(self, width: int, what: str) -> Field:
        field = Field(self.at, width, what)
        self.at += width
        return field

    def _text(self) -> Field:
        return self._next(self.message.index(b"\0", self.at) + 1 - self.at, "text")

    def _number(self, field: Field) -> int:
        return int.from_bytes(self.message[field.at : field.at + field.width])

    def _row(self) -> Iterator[Field]:
        count = self._next(2, "count")
        yield count
        for _ in range(self._number(count)):
            marker = self._next(1, "marker")
            yield marker
            if self.message[marker.at] == ord("t"):
                length = self._next(4, "length")
                yield length
                yield self._next(self._number(length), "value")

    def _origin(self) -> Iterator[Field]:
        yield self._next(8, "number")
        yield self._text()

    def _relation(self) -> Iterator[Field]:
        yield self._next(4, "number")
        yield self._text()
        yield self._text()
        yield self._next(1, "marker")
        count = self._next(2, "count")
        yield count
        for _ in range(self._number(count)):
            yield self._next(1, "marker")
            yield self._text()
            yield self._next(4, "number")
            yield self._next(4, "number")

    def _type(self) -> Iterator[Field]:
        yield self._next(4, "number")
        yield self._text()
        yield self._text()

    def _truncate(self) -> Iterator[Field]:
        count = self._next(4, "count")
        yield count
        yield self._next(1, "marker")
        for _ in range(self._number(count)):
            yield self._next(4, "number")

    def _said(self) -> Iterator[Field]:
        yield self._next(1, "marker")
        yield self._next(8, "number")
        yield self._text()
        length = self._next(4, "length")
        yield length
        yield self._next(self._number(length), "value")


def again(message: Message) -> bytes:
    """The bytes that a decoded message stands for."""
    if isinstance(message, Insert | Update | Delete):
        return _row(message)
    match message:
        case Begin():
            found = w.begin(message.final_lsn, message.xid, message.committed_us)
        case Commit():
            found = w.commit(message.commit_lsn, message.end_lsn, message.committed_us)
        case Origin():
            found = w.origin(message.name, message.lsn)
        case Relation():
            found = _relation(message)
        case TypeName():
            found = w.type_name(message.type_oid, message.schema, message.name)
        case Truncate():
            found = w.truncate(*message.relation_oids, options=message.cascade + 2 * message.restart_identity)
        case LogicalMessage():
            found = w.logical(message.prefix, message.content, transactional=message.transactional, lsn=message.lsn)
        case _:
            assert_never(message)
    return found


def _row(message: Insert | Update | Delete) -> bytes:
    found = message.relation_oid.to_bytes(4)
    if isinstance(message, Insert):
        return b"I" + found + b"N" + write_tuple(message.new)
    for marker, before in ((b"K", message.key), (b"O", message.old)):
        if before is not None:
            found += marker + write_tuple(before)
    return b"D" + found if isinstance(message, Delete) else b"U" + found + b"N" + write_tuple(message.new)


def stands_for(message: Message, payload: bytes) -> bool:
    """Whether the message says what these bytes say, all of them. The empty schema is pg_catalog's short form."""
    written = again(message)
    return written == payload or (
        isinstance(message, Relation | TypeName)
        and message.schema == "pg_catalog"
        and written.replace(b"pg_catalog", b"", 1) == payload
    )


def _relation(message: Relation) -> bytes:
    letters = {"default": b"d", "full": b"f", "index": b"i", "nothing": b"n"}
    columns = b"".join(
        bytes([c.in_key]) + c.name.encode() + b"\0" + c.type_oid.to_bytes(4) + c.typmod.to_bytes(4, signed=True)
        for c in message.columns
    )
    names = message.schema.encode() + b"\0" + message.table.encode() + b"\0"
    head = b"R" + message.relation_oid.to_bytes(4) + names + letters[message.identity.value]
    return head + len(message.columns).to_bytes(2) + columns
