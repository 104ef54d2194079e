"""The records of a view's topic: documents, deletions and sweep marks in the envelope of every other table. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import orjson

from cdc.record.position import Position
from cdc.record.topic_names import VIEW_SCHEMA, TableName, partition_of
from cdc.views.fences import Fence
from cdc.views.lookups import Row
from cdc.views.sql_types import Group, SqlType
from cdc.views.stored_values import loaded, stored, wire_text
from cdc.views.view_plan import ViewPlan
from cdc.wire.envelope import Envelope, Headers, Stamp, record_headers
from cdc.wire.format import (
    CREATE_OP,
    DELETE_OP,
    NEW_ROW,
    NO_NEW_ROW,
    NO_OLD_ROW,
    NO_ROWS,
    OLD_ROW,
    SOURCE,
    TRUNCATE_OP,
    UPDATE_OP,
)
from cdc.wire.jsontree import quote
from cdc.wire.records import sweep_key, sweep_value

NUMBERS = 3
"""Of a fence's positions a document has the first, and a deletion the next two."""
_MOST_KEPT = 16
_JSON_KINDS = {Group.BOOLEAN: bool, Group.INTEGER: int}
_SOURCE = b',"%b":{' % SOURCE.encode()


class ViewRecord(NamedTuple):
    """A record to be written. ``value`` None is a tombstone."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers


class ViewRecords:
    """Makes the records of one generation of a view.

    ``name``: the pipeline's. ``database``: the source's. ``version``: of the view's shape.
    """

    def __init__(self, plan: ViewPlan, view: str, topic: str, partitions: int, *, name: str, database: str) -> None:
        self._plan = plan
        self._table = TableName(VIEW_SCHEMA, view)
        self._envelope = Envelope(name, database, self._table)
        self._topic = topic
        self._partitions = partitions
        self._key = [
            (quote(output.encode()).decode(), loaded(kind), wire_text(kind, output))
            for (_, output), kind in zip(plan.key, plan.key_kinds, strict=True)
        ]
        self._tails: dict[tuple[Position, str, int], bytes] = {}
        self._headers: dict[tuple[Position, str], Headers] = {}
        keys = {output for _, output in plan.key}
        self._others = [name for name, _ in plan.outputs if name not in keys]

    @property
    def topic(self) -> str:
        """The view's topic."""
        return self._topic

    def key(self, key: Row) -> bytes:
        """A root's key as the key of its document."""
        return b"{%b}" % ",".join(self._members(key)).encode()

    def _members(self, key: Row) -> list[str]:
        return [
            f"{name}:{'null' if value is None else write(value if load is None else load(value))}"
            for (name, load, write), value in zip(self._key, key, strict=True)
        ]

    def document(self, key: Row, row: str, above: Position, *, known: bool, now_ns: int) -> list[ViewRecord]:
        """A document, numbered above a position. ``known``: one was published before."""
        op = UPDATE_OP if known else CREATE_OP
        pos = _behind(above, 1)
        value = b"%b%b%b%b" % (NO_OLD_ROW, NEW_ROW, row.encode(), self._tail(pos, op, now_ns))
        return [self._record(self.key(key), value, pos, op)]

    def deletion(self, key: Row, above: Position, now_ns: int) -> list[ViewRecord]:
        """A document that goes: a delete, and its tombstone, behind the place of a document."""
        pos = _behind(above, 2)
        members = [*self._members(key), *(f"{quote(name.encode()).decode()}:null" for name in self._others)]
        old = ("{" + ",".join(members) + "}").encode()
        value = b"%b%b%b%b" % (OLD_ROW, old, NO_NEW_ROW, self._tail(pos, DELETE_OP, now_ns))
        name = self.key(key)
        return [
            self._record(name, value, pos, DELETE_OP),
            self._record(name, None, _behind(above, NUMBERS), DELETE_OP),
        ]

    def sweep(self, floor: Fence, now_ns: int) -> list[ViewRecord]:
        """A mark in every partition: documents below the floor are gone."""
        key = sweep_key(str(self._table))
        tail = self._tail(floor.floor(), TRUNCATE_OP, now_ns)
        value = sweep_value(NO_ROWS + tail, floor.floor().text(), self._partitions)
        headers = record_headers(floor.floor(), TRUNCATE_OP, 1)
        return [ViewRecord(self._topic, partition, key, value, headers) for partition in range(self._partitions)]

    def _tail(self, pos: Position, op: str, now_ns: int) -> bytes:
        asked = pos, op, now_ns
        tail = self._tails.get(asked)
        if tail is None:
            # The documents of a piece share theirs, and pieces have times of their own.
            if len(self._tails) > _MOST_KEPT:
                self._tails.clear()
            stamp = Stamp(pos.epoch, pos.commit_lsn, now_ns // 1000, now_ns, None)
            at = b"%d" % pos.commit_lsn, b"%d" % pos.tx_seq
            tail = self._envelope.tail(stamp, op.encode(), *at).replace(b"%%", b"%")
            self._tails[asked] = tail
        return tail

    def _record(self, key: bytes, value: bytes | None, pos: Position, op: str) -> ViewRecord:
        asked = pos, op
        headers = self._headers.get(asked)
        if headers is None:
            if len(self._headers) > _MOST_KEPT:
                self._headers.clear()
            headers = self._headers[asked] = record_headers(pos, op, 1)
        return ViewRecord(self._topic, partition_of(key, self._partitions), key, value, headers)


def _behind(above: Position, number: int) -> Position:
    return above._replace(tx_seq=above.tx_seq + number)


def key_row(plan: ViewPlan, key: bytes) -> Row:
    """A document's key as the root's key in the state. ValueError where it is none."""
    found = orjson.loads(key)
    if not isinstance(found, dict) or set(found) != {output for _, output in plan.key}:
        raise ValueError("a key of other columns")
    pairs = zip(plan.key, plan.key_kinds, strict=True)
    return tuple(key_part(found[output], kind, plan.grouping is not None) for (_, output), kind in pairs)


def key_part(value: object, kind: SqlType, nullable: bool) -> Any:
    """One value of a key as the state has it. ValueError for one that no column of that kind has."""
    if value is None and nullable:
        return None
    if value is None or isinstance(value, dict | list) or abs(value if type(value) is int else 0) >= 1 << 63:
        raise ValueError("no value of a key")
    convert = stored(kind)
    try:
        if kind.group is Group.NUMERIC:
            Decimal(str(value))
        if kind.group in _JSON_KINDS and type(value) is not _JSON_KINDS[kind.group]:
            raise TypeError
        return value if convert is None else convert(value)
    except (ArithmeticError, AttributeError, TypeError) as failure:
        raise ValueError(f"no {kind}") from failure


def row_of(value: bytes) -> bytes:
    """The row of a document's record, as it was written. ValueError where it is no document."""
    head = NO_OLD_ROW + NEW_ROW
    if not value.startswith(head):
        raise ValueError("no record of a document")
    return value[len(head) : value.rindex(_SOURCE)]
