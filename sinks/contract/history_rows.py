"""The history of a table in a warehouse: a table of its own, of which each record is a row for ever.

Its rows have the key ``<position>:<key>``, so that all that holds for other tables holds for it: a record that comes
again is the same row, whichever batch brings it, and a late one is a row beside the others. The position stands first:
rows are put in at the end, where no file and no page of a store has any of their keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import pyarrow as pa

from cdc.record.documents import dumped
from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.progress import Watermark
from cdc.record.schema import Column, TableSchema
from cdc.record.topic_names import TableName, history_topic
from cdc.wire.envelope import EventTail, event_op, event_tail, old_row_of, row_reader
from cdc.wire.format import (
    CREATE_OP,
    DELETE_OP,
    GAP_KEY,
    GAP_OP,
    OP,
    POS,
    READ_OP,
    ROW_OPS,
    SWEEP,
    SWEEP_KEY,
    TRUNCATE_OP,
    VER,
)
from cdc.wire.plain import PlainTable
from cdc.wire.records import read_floor
from sinks.contract.batch import Event, pc
from sinks.contract.newest import POS_CHARS, ordered_mask
from sinks.contract.port import CannotCarry

ENDING = "__history"
KEPT_OP, COMMIT_TS, XID, SEEN = "_op", "_commit_ts", "_xid", "_seen"
EXTRA = (KEPT_OP, COMMIT_TS, XID, SEEN)
"""The columns beside the table's own: the operation, when and by which transaction it was committed, and, of a row that
was read from the table, up to where changes may be in it already: see ``seen_lsn`` in the manual of the wire."""
VERSION_COLUMNS = (*("_key", KEPT_OP, XID), *("_from", "_to", "_from_ts", "_to_ts", "_current"))
"""Of its versions: the row's own key, the operation and the transaction that brought it, from which position up to,
without, which one it was so, and when. See ``sinks/warehouse/history.sql``."""
_PASSING = "cdc_"
"""Columns of that statement's own begin so."""
TRUNCATE_MARK, SWEEP_MARK, GAP_MARK = "%truncate", "%sweep", "%gap"
"""In place of a row's key, of what is about the whole table. No key's text stands so: its percent signs are ``%25``. A
sweep's floor follows behind a colon."""
_OPS = pa.array([op.encode() for op in (*ROW_OPS, TRUNCATE_OP, GAP_OP)], pa.binary())
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def history_name(table: TableName) -> TableName:
    """The table that keeps the history of one.

    >>> str(history_name(TableName("public", "orders")))
    'public.orders__history'
    """
    return TableName(table.schema, f"{table.table}{ENDING}")


def history_shape(shape: TableSchema) -> TableSchema:
    """The shape of a table's history, by one of the table's."""
    kinds = {KEPT_OP: "text", COMMIT_TS: "timestamptz", XID: "int8", SEEN: "text"}
    extra = [Column(name=name, attnum=0, type=kind, type_oid=0, kind=kind) for name, kind in kinds.items()]
    name, topic = history_name(shape.table), history_topic(shape.topic)
    return replace(shape, table=name, topic=topic, columns=(*shape.columns, *extra), history=True)


def with_histories(records: pa.Table, histories: Mapping[str, int]) -> pa.Table:
    """Records (as the log has them), those of histories as records of the table that keeps them: each creates a row,
    whose key begins with its position. ``histories``: topic -> the newest version of the table's shape, which a gap
    does not name. One that is no record of a history stays as it is."""
    kept = pc.is_in(records["topic"], value_set=pa.array(list(histories), pa.string()))
    if not pc.any(kept, min_count=0).as_py():
        return records
    known = pc.and_(pc.fill_null(pc.is_in(records[OP], value_set=_OPS), False), ordered_mask(records[POS]))
    ours = pc.and_(kept, known)
    some = records.filter(ours)
    key = pc.binary_join_element_wise(some[POS], pc.fill_null(some["key"], b""), b":")
    numbers = pa.array([str(version).encode() for version in histories.values()], pa.binary())
    newest = pc.take(numbers, pc.index_in(some["topic"], value_set=pa.array(list(histories), pa.string())))
    columns: dict[str, Any] = {
        "key": key,
        OP: pa.repeat(pa.scalar(CREATE_OP.encode(), pa.binary()), some.num_rows),
        VER: pc.coalesce(some[VER], newest),
        "headers": pa.nulls(some.num_rows, records.schema.field("headers").type),
    }
    made = [columns.get(name, some[name]) for name in records.schema.names]
    return pa.concat_tables([records.filter(pc.invert(ours)), pa.table(made, schema=records.schema)])


def gap_of(shape: TableSchema, shown: Watermark | None) -> Event:
    """A gap of a history (its newest shape) whose topic lost records by their age before a store had them. ``shown``:
    up to where the store has it, None for one of which it has nothing: then its beginning is missing."""
    at = Position(shown.epoch, shown.lsn, CHUNK_SEQ) if shown is not None else Position(0, 0, 0)
    key, value = at.text().encode() + b":" + GAP_KEY, dumped({GAP_OP: {"why": "the topic kept it no longer"}})
    return Event(shape.topic, 0, 0, key, value, at.text(), CREATE_OP, shape.version)


class HistoryRows:
    """Rows of a history, from records as :func:`with_histories` makes them."""

    def __init__(self, schema: TableSchema) -> None:
        self._plain = PlainTable(schema)
        own = [column.name for column in schema.columns[: -len(EXTRA)]]
        self._row = row_reader(own)

    def keys(self, keys: Sequence[bytes]) -> list[str]:
        """The keys of changes of rows in the stores. ValueError where one of them is no such key."""
        rest = self._plain.keys([key[POS_CHARS + 1 :] for key in keys])
        return [f"{key[:POS_CHARS].decode()}:{text}" for key, text in zip(keys, rest, strict=True)]

    def row(self, value: bytes, tail: EventTail) -> bytes:
        """A row as JSON on the wire, of a change of one. ValueError for what has none."""
        row = old_row_of(value) if tail.op == _DELETE else self._row(value)
        return row[:-1] + b"," + _extra(tail)

    def read(self, key: bytes, value: bytes | None) -> tuple[str, bytes]:
        """Key and row of a record of any kind. ValueError for what is no record of ours."""
        pos, rest = key[:POS_CHARS].decode(), key[POS_CHARS + 1 :]
        if value is None:
            raise ValueError("the record of a history has no value")
        tail = event_tail(value)
        if tail is None:
            return _gap(pos, rest, value, self._plain)
        if tail.op == _TRUNCATE:
            text, kind = TRUNCATE_MARK, tail.op
            if rest.startswith(b'{"%b"' % SWEEP_KEY.encode()):
                kind, text = SWEEP.encode(), f"{SWEEP_MARK}:{read_floor(rest, value, pos).floor}"
            return f"{pos}:{text}", _with(b"{}", _extra(_placed(tail, pos, kind)))
        return self.keys([key])[0], self.row(value, _placed(tail, pos, tail.op))


_DELETE, _TRUNCATE, _READ = DELETE_OP.encode(), TRUNCATE_OP.encode(), READ_OP.encode()
_COMMIT_CHARS = 24
"""Of a position: the epoch and the LSN of the commit."""
_EXTRA = b'"_op":"%b","_commit_ts":"%b","_xid":%b,"_seen":%b}'


def _placed(tail: EventTail, pos: str, op: bytes) -> EventTail:
    """The same with the position up to which changes may be in the row already."""
    seen = tail.seen_lsn and Position(Position.parse(pos).epoch, int(tail.seen_lsn), 0).text().encode()
    return EventTail(op, tail.committed_us, tail.xid, seen)


@lru_cache(maxsize=1024)
def _extra(tail: EventTail) -> bytes:
    """The rows of a transaction share it."""
    moment = _BEGINNING + timedelta(microseconds=int(tail.committed_us))
    text = moment.isoformat().replace("+00:00", "Z").encode()
    return _EXTRA % (tail.op, text, tail.xid, b'"%b"' % tail.seen_lsn if tail.seen_lsn else b"null")


def _with(row: bytes, extra: bytes) -> bytes:
    return row[:-1] + (b"," if len(row) > len(b"{}") else b"") + extra


def _gap(pos: str, rest: bytes, value: bytes, plain: PlainTable) -> tuple[str, bytes]:
    """A record without a source is a gap: of one key, of which the row has the columns, or of the table."""
    if not value.startswith(b'{"%b":' % GAP_OP.encode()):
        raise ValueError("the value is not an envelope")
    whole = rest == GAP_KEY
    key = GAP_MARK if whole else plain.key(rest)
    return f"{pos}:{key}", _with(b"{}" if whole else rest, b'"%b":"%b"}' % (KEPT_OP.encode(), GAP_OP.encode()))


def require_free(schema: TableSchema) -> None:
    """CannotCarry for a history of a table that has a column of the history's own name."""
    names = [column.name for column in schema.columns[: -len(EXTRA)]] if schema.history else []
    own = (*EXTRA, *VERSION_COLUMNS[1:])
    taken = [name for name in names if name in own or name.startswith(_PASSING)]
    if taken:
        why = f"the table has a column {taken[0]}, and its history has one by that name"
        raise CannotCarry.because(schema.table, why, hint="take the table out of the sink's history")


def kept_rows(
    schema: TableSchema, keys: Sequence[bytes], values: Sequence[bytes | None]
) -> tuple[list[str], list[bytes | None], dict[int, str]]:
    """Keys and rows of a history's records. By number, why one cannot be read: its key and row mean nothing."""
    kept = HistoryRows(schema)
    try:
        return kept.keys(keys), _changes(kept, keys, values), {}
    except ValueError:
        pass  # one of them is no change of a row
    texts, rows, bad = [], list[bytes | None](), dict[int, str]()
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        try:
            text, row = kept.read(key, value)
        except ValueError as error:
            text, row, bad[number] = "", b"", str(error)
        texts.append(text)
        rows.append(row)
    return texts, rows, bad


def _changes(kept: HistoryRows, keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[bytes | None]:
    """The rows of streamed changes alone, as most records are. ValueError where one is none. Those of a transaction
    that have an operation in common share what stands behind their rows; rows of a snapshot were read one by one."""
    row, rows = kept.row, list[bytes | None]()
    tails: dict[tuple[bytes, bytes], EventTail] = {}
    for key, value in zip(keys, values, strict=True):
        change = value or b""
        group = key[:_COMMIT_CHARS], event_op(change)
        tail = tails.get(group)
        if tail is None:
            found = event_tail(change)
            if found is None or found.seen_lsn or found.op == _TRUNCATE:
                raise ValueError("another record")
            tail = found
            if found.op != _READ:
                tails[group] = found
        rows.append(row(change, tail))
    return rows
