"""Writes pgoutput's messages, so that tests read as what the server sends; and tables to send them for."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cdc.record.schema import Column, Encoding, Identity, TableSchema
from cdc.record.topic_names import TableName
from connectors.postgres.protocol.messages import UNCHANGED, Unchanged
from connectors.postgres.protocol.pgoutput import POSTGRES_EPOCH_US

Value = bytes | Unchanged | None
u = UNCHANGED
OID = 16389
_LETTERS = {Identity.DEFAULT: b"d", Identity.FULL: b"f", Identity.INDEX: b"i", Identity.NOTHING: b"n"}


def column(name: str, kind: str, key: int | None = None, *, array: bool = False, typmod: int = -1) -> Column:
    """A column whose type is named as its kind."""
    return Column(
        name=name,
        attnum=0,
        type=kind + ("[]" if array else ""),
        type_oid=25,
        kind=kind,
        array=array,
        typmod=typmod,
        nullable=key is None,
        key_position=key,
    )


def table(
    *columns: Column,
    identity: Identity = Identity.DEFAULT,
    encoding: Encoding = "readable",
    oid: int = OID,
    name: str = "orders",
    version: int = 1,
    deferrable_key: bool = False,
) -> TableSchema:
    """A shape of ``public.<name>``; id and note unless columns are given."""
    numbered = columns or (column("id", "int4", 0), column("note", "text"))
    return TableSchema(
        table=TableName("public", name),
        topic=f"shop.public.{name}",
        version=version,
        oid=oid,
        encoding=encoding,
        identity=identity,
        deferrable_key=deferrable_key,
        columns=tuple(numbered),
    )


def row(values: Sequence[Value]) -> bytes:
    """TupleData."""
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, Unchanged):
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
    return b"".join(parts)


def begin(lsn: int, xid: int = 555, at_us: int = 1_763_000_000_000_000) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, at_us - POSTGRES_EPOCH_US, xid)


def commit(lsn: int, end_lsn: int | None = None, at_us: int = 1_763_000_000_000_000) -> bytes:
    return b"C\0" + struct.pack(">QQq", lsn, lsn + 8 if end_lsn is None else end_lsn, at_us - POSTGRES_EPOCH_US)


def relation(schema: TableSchema) -> bytes:
    """The announcement of a shape; under FULL every column is flagged."""
    full = schema.identity == Identity.FULL
    columns = b"".join(
        bytes([full or c.key_position is not None]) + c.name.encode() + b"\0" + struct.pack(">Ii", c.type_oid, c.typmod)
        for c in schema.columns
    )
    names = schema.table.schema.encode() + b"\0" + schema.table.table.encode() + b"\0"
    head = b"R" + struct.pack(">I", schema.oid) + names + _LETTERS[schema.identity]
    return head + struct.pack(">H", len(schema.columns)) + columns


def insert(*new: Value, oid: int = OID) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + row(new)


def update(
    new: Sequence[Value], *, key: Sequence[Value] | None = None, old: Sequence[Value] | None = None, oid: int = OID
) -> bytes:
    before = b"" if key is None else b"K" + row(key)
    before += b"" if old is None else b"O" + row(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + row(new)


def delete(*, key: Sequence[Value] | None = None, old: Sequence[Value] | None = None, oid: int = OID) -> bytes:
    before = b"K" + row(key) if key is not None else b"O" + row(old or ())
    return b"D" + struct.pack(">I", oid) + before


def truncate(*oids: int, options: int = 0) -> bytes:
    return b"T" + struct.pack(">IB", len(oids), options) + b"".join(struct.pack(">I", oid) for oid in oids)


def origin(name: str, lsn: int) -> bytes:
    return b"O" + struct.pack(">Q", lsn) + name.encode() + b"\0"


def type_name(oid: int, schema: str, name: str) -> bytes:
    return b"Y" + struct.pack(">I", oid) + schema.encode() + b"\0" + name.encode() + b"\0"


def logical(prefix: str, content: bytes, *, transactional: bool = True, lsn: int = 1) -> bytes:
    return (
        b"M"
        + struct.pack(">BQ", transactional, lsn)
        + prefix.encode()
        + b"\0"
        + struct.pack(">I", len(content))
        + content
    )


def frame(payload: bytes, lsn: int = 0x16B3D48) -> bytes:
    """An XLogData message."""
    return b"w" + struct.pack(">QQQ", lsn, lsn, 0) + payload
