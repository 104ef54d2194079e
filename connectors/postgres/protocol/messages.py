"""The messages of pgoutput, protocol version 1: one class per kind.

Format: https://www.postgresql.org/docs/18/protocol-logicalrep-message-formats.html. Times are microseconds
since 1970 in UTC. LSNs and oids are numbers. Values are text as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from cdc.record.schema import Identity

XLOG_DATA: Final = 0x77
"""'w', which a frame with a message begins with: start LSN, end LSN, clock, then the message."""


class Unchanged(Enum):
    """A TOASTed value that the change did not touch: neither null nor any value."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True)
class Omitted:
    """A value that was passed over on its way in, because no topic takes a record with it. See
    :mod:`connectors.postgres.protocol.oversized_fields`. ``size_bytes`` and ``sha256``: of its text."""

    size_bytes: int
    sha256: bytes


Value = bytes | None
Tuple = tuple[bytes | Unchanged | Omitted | None, ...]
"""A row as pgoutput sends it: text, null, or :data:`UNCHANGED`, in the order of the relation's columns. In a message
that was abridged, :class:`Omitted` too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """``final_lsn``: where the transaction's COMMIT record begins, which is the commit LSN of a position."""

    final_lsn: int
    committed_us: int
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """``end_lsn``: where the COMMIT record ends. Acknowledging it says the transaction is done."""

    commit_lsn: int
    end_lsn: int
    committed_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The transaction was replicated to the source from elsewhere."""

    lsn: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationColumn:
    """``in_key``: part of the replica identity. True for every column under FULL."""

    name: str
    type_oid: int
    typmod: int
    in_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table's shape, before the first row that has it. It has neither attnum nor nullability."""

    relation_oid: int
    schema: str
    table: str
    identity: Identity
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeName:
    """The name of a type that is not built in. A domain comes under its own oid with its base's name."""

    type_oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    relation_oid: int
    new: Tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """``key``: the old identity columns, the others None without meaning null. ``old``: the old row (FULL)."""

    relation_oid: int
    key: Tuple | None
    old: Tuple | None
    new: Tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Exactly one of ``key`` and ``old`` is there. See :class:`Update`."""

    relation_oid: int
    key: Tuple | None
    old: Tuple | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """Every published table that one TRUNCATE emptied, those reached by CASCADE too."""

    relation_oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalMessage:
    """``pg_logical_emit_message``. One that is not transactional comes at once, also between BEGIN and COMMIT of
    others and when its own transaction rolls back."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


def numbers(change: Insert | Update | Delete) -> int:
    """How many positions a change takes in its transaction. Its bytes alone decide, so that a replay counts the same
    and knows no table: an update that carries an old key or row may be a change of the key, which is three
    records. A delete is followed by a tombstone."""
    match change:
        case Insert():
            return 1
        case Delete():
            return 2
        case Update():
            return 1 if change.key is None and change.old is None else 3


Message = Begin | Commit | Origin | Relation | TypeName | Insert | Update | Delete | Truncate | LogicalMessage
