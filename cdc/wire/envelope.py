"""The part of an event's value that is not the row: ``source`` and what stands around it, as prebuilt text.

Within one transaction and one batch everything in it is constant but the record's LSN and the ``tx_seq``, so
it is made once as a template with three ``%d`` (LSN, LSN, tx_seq) and filled together with the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cdc.position import Position
from cdc.topic import TableName
from cdc.version import __version__
from cdc.wire.format import OP, POS, RESELECTED, RESELECTED_COLUMNS, SEEN_LSN, VER
from cdc.wire.jsontext import quote

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
