"""The part of an event's value that is not the row, the row in it, and values that capture could not have."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from cdc.process import __version__
from cdc.record.documents import dumped
from cdc.record.position import Position
from cdc.record.schema import Column, TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.format import (
    AFTER,
    NEW_ROW,
    NO_NEW_ROW,
    NO_OLD_ROW,
    OLD_ROW,
    OP,
    POS,
    RESELECTED,
    RESELECTED_COLUMNS,
    SEEN_LSN,
    SOURCE,
    UNAVAILABLE,
    VER,
)
from cdc.wire.jsontree import quote
from cdc.wire.types import FIXED

Headers = list[tuple[str, bytes]]

_TAIL = (
    b',"source":{"version":%b,"connector":"postgresql","name":%b,"ts_ms":%d,"snapshot":"%b","db":%b,'
    b'"sequence":"[%b,\\"%b\\"]","ts_us":%d,"ts_ns":%d,"schema":%b,"table":%b,"txId":%b,"lsn":%b,"xmin":null,'
    b'"origin":%b,"origin_lsn":%b,"epoch":%d,"commit_lsn":%d,"tx_seq":%b},"transaction":null,'
    b'"op":"%b","ts_ms":%d,"ts_us":%d,"ts_ns":%d}'
)
NULL = b"null"
LATER = b"%d"
"""Stands where a template is filled per record."""


class Stamp(NamedTuple):
    """The members that all events of a transaction, or of a snapshot chunk, share.

    ``before_lsn``: the end LSN of the commit before it, None for the first since the start. Times: of the
    commit in microseconds, of the capture in nanoseconds, both since 1970.
    """

    epoch: int
    commit_lsn: int
    committed_us: int
    now_ns: int
    xid: int | None
    before_lsn: int | None = None
    origin: str | None = None
    origin_lsn: int | None = None
    snapshot: bytes = b"false"


class Envelope:
    """Tails for one table's events."""

    __slots__ = ("_database", "_name", "_schema", "_table", "_version")

    def __init__(self, name: str, database: str, table: TableName) -> None:
        self._name = _constant(name)
        self._database = _constant(database)
        self._schema = _constant(table.schema)
        self._table = _constant(table.table)
        self._version = _constant(__version__)

    def tail(self, stamp: Stamp, op: bytes, lsn: bytes = LATER, tx_seq: bytes = LATER) -> bytes:
        """Everything after the rows, as a template unless ``lsn`` and ``tx_seq`` are given."""
        us, now = stamp.committed_us, stamp.now_ns
        before = NULL if stamp.before_lsn is None else b'\\"%d\\"' % stamp.before_lsn
        return _TAIL % (
            self._version,
            self._name,
            us // 1000,
            stamp.snapshot,
            self._database,
            before,
            lsn,
            us,
            us * 1000,
            self._schema,
            self._table,
            NULL if stamp.xid is None else b"%d" % stamp.xid,
            lsn,
            NULL if stamp.origin is None else _constant(stamp.origin),
            NULL if stamp.origin_lsn is None else b"%d" % stamp.origin_lsn,
            stamp.epoch,
            stamp.commit_lsn,
            tx_seq,
            op,
            now // 1_000_000,
            now // 1000,
            now,
        )


def escaped(text: bytes) -> bytes:
    """Text as a template holds it.

    >>> escaped(b"100%")
    b'100%%'
    """
    return text.replace(b"%", b"%%")


_SOURCE_END = b'},"transaction":null,'
"""Its quotes are not escaped, so no text within ``source`` holds it."""


def read_at(tail: bytes, seen_lsn: int) -> bytes:
    """A filled tail that says that the row was read from the table: it may hold all that was committed below an LSN.

    >>> read_at(b',"source":{"lsn":1},"transaction":null,"op":"r"}', 7)
    b',"source":{"lsn":1,"seen_lsn":7},"transaction":null,"op":"r"}'
    """
    return _with_member(tail, b'"%b":%d' % (SEEN_LSN.encode(), seen_lsn))


def reselected(tail: bytes, columns: Sequence[str], seen_lsn: int) -> bytes:
    """A filled tail that says which columns' values were read from the table, and below which LSN they may be from.

    >>> reselected(b',"source":{"lsn":1},"transaction":null,"op":"u"}', ["doc"], 7)
    b',"source":{"lsn":1,"reselected":{"columns":["doc"],"seen_lsn":7}},"transaction":null,"op":"u"}'
    """
    names = b",".join(quote(column.encode()) for column in columns)
    members = (RESELECTED.encode(), RESELECTED_COLUMNS.encode(), names, SEEN_LSN.encode(), seen_lsn)
    return _with_member(tail, b'"%b":{"%b":[%b],"%b":%d}' % members)


def seen_header(seen_lsn: int) -> tuple[str, bytes]:
    """The header of a tombstone, which has no tail: the LSN at which its row was read."""
    return SEEN_LSN, b"%d" % seen_lsn


def _with_member(tail: bytes, member: bytes) -> bytes:
    before, end, after = tail.rpartition(_SOURCE_END)
    return b"%b,%b%b%b" % (before, member, end, after)


def record_headers(position: Position, op: str, version: int, more: Sequence[tuple[str, bytes]] = ()) -> Headers:
    """The headers every record has, tombstones too. ``pos`` stands first."""
    return [(POS, position.text().encode()), (OP, op.encode()), (VER, b"%d" % version), *more]


def _constant(text: str) -> bytes:
    return escaped(quote(text.encode()))


_SOURCE = b'"source":{'
_TIME = re.compile(rb'"ts_ms":(\d{1,16})[,}]')


def committed_ms(value: bytes | None) -> int | None:
    """The commit time that a record's envelope names, in ms since 1970. None where it has none: in a tombstone, and in
    a record that is no envelope.

    The member ``source`` stands behind ``before`` and ``after``, whose texts cannot hold an unescaped quote.

    >>> committed_ms(b'{"before":null,"after":{"id":1},"source":{"name":"shop","ts_ms":1700000000000},"op":"c"}')
    1700000000000
    >>> committed_ms(None), committed_ms(b'{"id":1}')
    (None, None)
    """
    if value is None or (at := value.rfind(_SOURCE)) < 0:
        return None
    found = _TIME.search(value, at)
    return int(found[1]) if found is not None else None


class EventTail(NamedTuple):
    """What stands behind the rows of a value, each as it is written. ``seen_lsn``: of what was read from the table
    beside the stream, empty of any other."""

    op: bytes
    committed_us: bytes
    xid: bytes
    seen_lsn: bytes = b""


_TAIL_OP, _TAIL_US, _TAIL_XID = b'"transaction":null,"%b":"' % OP.encode(), b'"ts_us":', b'"txId":'
_TAIL_BEGIN = b',"source":{"version":'
_TAIL_SEEN = b'"%b":' % SEEN_LSN.encode()
_STREAMED = b'"snapshot":"false"'
_OP_LENGTH, _US_LENGTH, _XID_LENGTH = len(_TAIL_OP), len(_TAIL_US), len(_TAIL_XID)


def event_tail(value: bytes) -> EventTail | None:
    """The tail of a value. None for one without a source. ValueError for one of another form.

    >>> tail = b',"source":{"version":"1","snapshot":"false","ts_us":7,"txId":5},"transaction":null,"op":"c"}'
    >>> event_tail(b'{"after":{"id":1}' + tail)
    EventTail(op=b'c', committed_us=b'7', xid=b'5', seen_lsn=b'')
    """
    # No text has a quote that is not escaped, so a name is one. No column's value has such a source in it.
    at = value.find(_TAIL_BEGIN)
    if at < 0:
        return None
    us = value.find(_TAIL_US, at)
    xid = value.find(_TAIL_XID, us)
    op = value.find(_TAIL_OP, xid)
    if us < 0 or xid < 0 or op < 0:
        raise ValueError("the value is not an envelope")
    seen = b""
    if value.find(_STREAMED, at, us) < 0 and (found := value.find(_TAIL_SEEN, xid, op)) > 0:
        seen = _number(value, found + len(_TAIL_SEEN))
    op += _OP_LENGTH
    us += _US_LENGTH
    xid += _XID_LENGTH
    return EventTail(value[op : op + 1], value[us : value.find(b",", us)], _number(value, xid), seen)


def event_op(value: bytes) -> bytes:
    """The operation that :func:`event_tail` finds. Empty where it would find none.

    >>> event_op(b'{"after":{"id":1},"source":{"version":"1"},"transaction":null,"op":"c","ts_ms":1}')
    b'c'
    """
    at = value.rfind(_TAIL_OP)
    return value[at + _OP_LENGTH : at + _OP_LENGTH + 1] if at >= 0 else b""


def _number(value: bytes, start: int) -> bytes:
    """A number, or null, up to the comma or the brace behind it."""
    return value[start : value.find(b",", start)].rstrip(b"}")


_OLD_END = b"}" + NO_NEW_ROW + b"," + _SOURCE


def old_row_of(value: bytes) -> bytes:
    """The old row of a delete as it stands on the wire. ValueError where the value has none.

    >>> old_row_of(b'{"before":{"id":1},"after":null,"source":{"ts_us":7}}')
    b'{"id":1}'
    """
    end = value.rfind(_OLD_END)
    if end < 0 or not value.startswith(OLD_ROW + b"{"):
        raise ValueError("the delete does not say which row it was")
    return value[len(OLD_ROW) : end + 1]


# From a record's value to its row, without reading more of the envelope than is needed.
#
# Our envelope has a fixed order of members (see the wire manual), so the row is a slice between two fixed marks. An
# envelope of any other order is read whole.

_HEAD = NO_OLD_ROW + NEW_ROW + b"{"
_HEAD_LENGTH = len(_HEAD) - 1
_SOURCE_BEGIN = b'},"source":{"version":'
_OLD = OLD_ROW + b"{"
_AFTER = b"}" + NEW_ROW + b"{"

RowOf = Callable[[bytes], bytes]


def row_reader(columns: Sequence[str]) -> RowOf:
    """How to get at the row of a table with these columns: value -> JSON of ``after`` as it stands on the wire.

    The result is not checked to be JSON where it was cut out. A reader of it does that. Raises ValueError when
    the value is not an envelope with a row.
    """
    # The marks hold quotes, which stand in no string unescaped. Only a column of the same name could be one.
    if AFTER in columns or SOURCE in columns:
        return row_of
    return _cut


def row_of(value: bytes) -> bytes:
    """The row, by reading the whole envelope. ValueError when there is none."""
    try:
        envelope = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise ValueError("the value is not JSON") from None
    after: Any = envelope.get(AFTER) if isinstance(envelope, dict) else None
    if not isinstance(after, dict):
        raise ValueError("the value holds no row")
    return dumped(after)


def _cut(value: bytes) -> bytes:
    if value.startswith(_HEAD):
        start = _HEAD_LENGTH
    elif value.startswith(_OLD):
        start = value.find(_AFTER) + len(_AFTER) - 1
        if start < len(_AFTER):
            return row_of(value)
    else:
        return row_of(value)
    end = value.find(_SOURCE_BEGIN, start)
    return value[start : end + 1] if end > 0 and value.endswith(b"}") else row_of(value)


BASE64 = base64.b64encode(UNAVAILABLE.encode()).decode()
NUMBERS = list(UNAVAILABLE.encode())
UUID = str(uuid.UUID(bytes=hashlib.md5(UNAVAILABLE.encode(), usedforsecurity=False).digest(), version=3))
"""As Java's ``UUID.nameUUIDFromBytes`` makes it: of an unchanged ``uuid[]``."""
_HSTORE = orjson.dumps({UNAVAILABLE: UNAVAILABLE}).decode()
_SHAPES: tuple[Any, ...] = (
    UNAVAILABLE,
    BASE64,
    [UNAVAILABLE],
    [BASE64],
    NUMBERS,
    _HSTORE,
    [_HSTORE],
    [UUID],
)


_TEXTS = frozenset(shape for shape in _SHAPES if isinstance(shape, str))


def may_be_unavailable(column: Column) -> bool:
    """Whether Postgres stores such values out of line when they are long."""
    return column.array or column.kind not in FIXED


def is_unavailable(value: Any) -> bool:
    """
    >>> is_unavailable("__debezium_unavailable_value"), is_unavailable(["__debezium_unavailable_value"])
    (True, True)
    """
    if isinstance(value, str):
        return value in _TEXTS
    return isinstance(value, list) and value in _SHAPES


def missing(after: Mapping[str, Any], schema: TableSchema) -> list[str]:
    """Names of the columns of a row (as on the wire) whose values are unavailable."""
    return [c.name for c in schema.columns if may_be_unavailable(c) and is_unavailable(after.get(c.name))]
