"""Decode pgoutput: bytes in, message out, nothing else.

The one public function is :func:`decode`. Every read is checked against the payload's end before it is made,
every byte must be used, and a byte that means nothing here is a DecodeError that names the message, the
offset, what was expected and what stood there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import NoReturn

from cdc.process.errors import DecodeError
from cdc.record.schema import Identity
from connectors.postgres.protocol.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Omitted,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    Tuple,
    TypeName,
    Unchanged,
    Update,
)

POSTGRES_EPOCH_US = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970: where Postgres counts time from."""

_IDENTITIES = {
    ord("d"): Identity.DEFAULT,
    ord("f"): Identity.FULL,
    ord("i"): Identity.INDEX,
    ord("n"): Identity.NOTHING,
}
_BEGIN, _COMMIT = Struct(">QqI"), Struct(">QQq")
_KEY, _OLD, _NEW = ord("K"), ord("O"), ord("N")
_NULL, _TEXT, _TOAST = ord("n"), ord("t"), ord("u")
OMITTED = ord("x")
"""The kind of a value that was left out, behind it its length in eight bytes and its sha256: none of the protocol's."""
_SHA256_BYTES = 32


def decode(payload: bytes, *, abridged: bool = False) -> Message:
    """One message of protocol version 1, text format. Raises DecodeError.

    ``abridged``: rows may hold values that :mod:`connectors.postgres.protocol.oversized_fields` left out.
    """
    if not payload:
        raise DecodeError("an empty message from pgoutput", hint=_HINT)
    kind = _KINDS.get(payload[0])
    if kind is None:
        raise DecodeError(
            f"a message of unknown kind {_shown(payload[:1])} from pgoutput, {len(payload)} bytes long", hint=_HINT
        )
    name, read = kind
    reader = Reader(name, payload, 1, abridged=abridged)
    message = read(reader)
    reader.end()
    return message


_HINT = "nothing was skipped and nothing acknowledged; please report it with the server's version"


class Reader:
    """Reads forward through one message and never past its end."""

    __slots__ = ("abridged", "at", "name", "payload")

    def __init__(self, name: str, payload: bytes, at: int, *, abridged: bool = False) -> None:
        self.name = name
        self.payload = payload
        self.at = at
        self.abridged = abridged

    def fail(self, expected: str, actual: str, at: int | None = None) -> NoReturn:
        """Raise DecodeError with what was expected and what is there. ``at``: the byte, unless it is the next one."""
        where = self.at if at is None else at
        raise DecodeError(f"{self.name} at byte {where}: expected {expected}, found {actual}", hint=_HINT)

    def bytes(self, length: int, what: str) -> bytes:
        """Read ``length`` bytes. ``what`` names them in the DecodeError that is raised where fewer are left."""
        end = self.at + length
        if end > len(self.payload):
            self.fail(f"{what} of {length} bytes", f"the end after {len(self.payload) - self.at}")
        found = self.payload[self.at : end]
        self.at = end
        return found

    def numbers(self, form: Struct, what: str) -> tuple[int, ...]:
        """Read the numbers of a struct's form. DecodeError where fewer bytes are left."""
        end = self.at + form.size
        if end > len(self.payload):
            self.fail(f"{what} of {form.size} bytes", f"the end after {len(self.payload) - self.at}")
        found = form.unpack_from(self.payload, self.at)
        self.at = end
        return found

    def number(self, length: int, what: str) -> int:
        """Read an unsigned number of ``length`` bytes. DecodeError where fewer are left."""
        return int.from_bytes(self.bytes(length, what))

    def signed(self, length: int, what: str) -> int:
        """Read a signed number of ``length`` bytes. DecodeError where fewer are left."""
        return int.from_bytes(self.bytes(length, what), signed=True)

    def text(self, what: str) -> str:
        """A string up to its NUL."""
        end = self.payload.find(b"\0", self.at)
        if end < 0:
            self.fail(f"the end of {what}", f"no NUL in {len(self.payload) - self.at} bytes")
        raw = self.payload[self.at : end]
        try:
            found = raw.decode()
        except UnicodeDecodeError:
            self.fail(f"{what} in UTF-8", _shown(raw))
        self.at = end + 1
        return found

    def flag(self, what: str) -> int:
        """Read one byte that is 0 or 1. DecodeError for any other."""
        found = self.number(1, what)
        if found > 1:
            self.fail(f"0 or 1 for {what}", str(found), self.at - 1)
        return found

    def end(self) -> None:
        """Return at the end of the message. DecodeError where bytes are left."""
        if self.at != len(self.payload):
            self.fail("the end", f"{len(self.payload) - self.at} more bytes")


def read_tuple(reader: Reader) -> Tuple:
    """A row: the number of columns, then each as null, unchanged or text."""
    count = reader.number(2, "number of columns")
    payload, at, end = reader.payload, reader.at, len(reader.payload)
    values: list[bytes | Unchanged | Omitted | None] = []
    for _ in range(count):
        kind = payload[at] if at < end else None
        if kind == _TEXT:
            start = at + 5
            stop = start + int.from_bytes(payload[at + 1 : start])
            if stop > end:
                reader.fail("a value's length and as many bytes", f"the end after {end - at - 1}", at)
            values.append(payload[start:stop])
            at = stop
        elif kind in (_NULL, _TOAST):
            values.append(None if kind == _NULL else UNCHANGED)
            at += 1
        elif kind == OMITTED and reader.abridged:
            reader.at = at + 1
            size_bytes = reader.number(8, "length of a value left out")
            values.append(Omitted(size_bytes, reader.bytes(_SHA256_BYTES, "sha256 of a value left out")))
            at = reader.at
        else:
            found = "the end" if kind is None else _shown(bytes((kind,)))
            reader.fail("n, t or u as kind of value", found, at)
    reader.at = at
    return tuple(values)


def plain_values(frame: bytes, at: int) -> list[bytes | None] | None:
    """The values of the row that begins at a byte and ends with the frame, if all of them are texts or null. None
    otherwise, and where it is no row: :func:`decode` says what is wrong with it."""
    count, at, end = int.from_bytes(frame[at : at + 2]), at + 2, len(frame)
    values: list[bytes | None] = []
    while at < end:
        kind = frame[at]
        if kind == _TEXT:
            start = at + 5
            at = start + int.from_bytes(frame[at + 1 : start])
            values.append(frame[start:at])
        elif kind == _NULL:
            at += 1
            values.append(None)
        else:
            return None
    return values if at == end and len(values) == count else None


def write_tuple(values: Tuple) -> bytes:
    """A row as :func:`read_tuple` reads it."""
    parts = [len(values).to_bytes(2)]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, Unchanged):
            parts.append(b"u")
        elif isinstance(value, Omitted):
            parts.append(write_omitted(value))
        else:
            parts += (b"t", len(value).to_bytes(4), value)
    return b"".join(parts)


def write_omitted(value: Omitted) -> bytes:
    """A value that was left out as :func:`read_tuple` reads it from a message that was abridged."""
    return b"%c%b%b" % (OMITTED, value.size_bytes.to_bytes(8), value.sha256)


def _begin(reader: Reader) -> Begin:
    final_lsn, committed, xid = reader.numbers(_BEGIN, "final LSN, commit time and transaction id")
    return Begin(final_lsn=final_lsn, committed_us=committed + POSTGRES_EPOCH_US, xid=xid)


def _commit(reader: Reader) -> Commit:
    flags = reader.number(1, "flags")
    if flags:
        reader.fail("0 for flags", str(flags), reader.at - 1)
    commit_lsn, end_lsn, committed = reader.numbers(_COMMIT, "commit LSN, end LSN and commit time")
    return Commit(commit_lsn=commit_lsn, end_lsn=end_lsn, committed_us=committed + POSTGRES_EPOCH_US)


def _origin(reader: Reader) -> Origin:
    return Origin(lsn=reader.number(8, "LSN"), name=reader.text("origin's name"))


def _relation(reader: Reader) -> Relation:
    oid = reader.number(4, "relation oid")
    schema = reader.text("schema") or "pg_catalog"
    table = reader.text("table")
    letter = reader.number(1, "replica identity")
    identity = _IDENTITIES.get(letter)
    if identity is None:
        reader.fail("d, f, i or n as replica identity", _shown(bytes([letter])), reader.at - 1)
    count = reader.number(2, "number of columns")
    columns = tuple(_relation_column(reader) for _ in range(count))
    return Relation(relation_oid=oid, schema=schema, table=table, identity=identity, columns=columns)


def _relation_column(reader: Reader) -> RelationColumn:
    return RelationColumn(
        in_key=bool(reader.flag("column's flags")),
        name=reader.text("column"),
        type_oid=reader.number(4, "type oid"),
        typmod=reader.signed(4, "type modifier"),
    )


def _type(reader: Reader) -> TypeName:
    return TypeName(
        type_oid=reader.number(4, "type oid"), schema=reader.text("schema") or "pg_catalog", name=reader.text("type")
    )


def _insert(reader: Reader) -> Insert:
    oid = reader.number(4, "relation oid")
    _marker(reader, "N")
    return Insert(relation_oid=oid, new=read_tuple(reader))


def _update(reader: Reader) -> Update:
    oid = reader.number(4, "relation oid")
    marker = _marker(reader, "KON")
    before = read_tuple(reader) if marker != _NEW else None
    if marker != _NEW:
        _marker(reader, "N")
    return Update(
        relation_oid=oid,
        key=before if marker == _KEY else None,
        old=before if marker == _OLD else None,
        new=read_tuple(reader),
    )


def _delete(reader: Reader) -> Delete:
    oid = reader.number(4, "relation oid")
    marker = _marker(reader, "KO")
    before = read_tuple(reader)
    return Delete(relation_oid=oid, key=before if marker == _KEY else None, old=before if marker == _OLD else None)


def _truncate(reader: Reader) -> Truncate:
    count = reader.number(4, "number of tables")
    options = reader.number(1, "options")
    if options > 3:
        reader.fail("0 to 3 for options", str(options), reader.at - 1)
    if count * 4 > len(reader.payload) - reader.at:
        reader.fail(f"{count} relation oids", f"{len(reader.payload) - reader.at} bytes")
    oids = tuple(reader.number(4, "relation oid") for _ in range(count))
    return Truncate(relation_oids=oids, cascade=bool(options & 1), restart_identity=bool(options & 2))


def _logical_message(reader: Reader) -> LogicalMessage:
    transactional = bool(reader.flag("flags"))
    lsn = reader.number(8, "LSN")
    prefix = reader.text("prefix")
    content = reader.bytes(reader.number(4, "length of content"), "content")
    return LogicalMessage(transactional=transactional, lsn=lsn, prefix=prefix, content=content)


def _marker(reader: Reader, expected: str) -> int:
    found = reader.number(1, "marker of a row")
    if chr(found) not in expected:
        reader.fail(f"{' or '.join(expected)} before a row", _shown(bytes([found])), reader.at - 1)
    return found


def _shown(raw: bytes) -> str:
    """Bytes as a person can read them, short: row data does not belong into errors."""
    return repr(raw[:16])[1:]


_KINDS: Mapping[int, tuple[str, Callable[[Reader], Message]]] = MappingProxyType(
    {
        ord("B"): ("Begin", _begin),
        ord("C"): ("Commit", _commit),
        ord("O"): ("Origin", _origin),
        ord("R"): ("Relation", _relation),
        ord("Y"): ("Type", _type),
        ord("I"): ("Insert", _insert),
        ord("U"): ("Update", _update),
        ord("D"): ("Delete", _delete),
        ord("T"): ("Truncate", _truncate),
        ord("M"): ("Message", _logical_message),
    }
)
