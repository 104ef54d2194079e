"""One change as a person reads it, and as ``--json`` prints it: pure, from a record to a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.record.position import Lsn, Position
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.envelope import missing
from cdc.wire.format import (
    AFTER,
    AT,
    BEFORE,
    CREATE_OP,
    DELETE_OP,
    GAP_KEY,
    GAP_OP,
    OP,
    POS,
    READ_OP,
    SWEEP,
    TRUNCATE_OP,
    UPDATE_OP,
)
from cdc.wire.plain import PlainTable

WORDS = {CREATE_OP: "insert", UPDATE_OP: "update", DELETE_OP: "delete", READ_OP: "row", TRUNCATE_OP: "truncate"}
"""Operations as words. ``row`` is a row of a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as it was read from a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One record of a table's topic. ``before`` and ``after`` hold plain values. None where the record has none.

    ``changed``: the columns in which they differ, None where either is not known whole.
    """

    table: TableName
    key: str
    op: str
    position: Position | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    ts_ms: int | None
    changed: tuple[str, ...] | None = None

    def line(self, name: str | None = None) -> str:
        """``orders 42  update  0/16B3D48  {"status": "paid"}  was {"status": "open"}``. ``name`` for the table.

        An update whose old row is known shows the columns that differ, any other the whole row.
        """
        parts = [f"{name or self.table} {self.key}".rstrip(), WORDS.get(self.op, self.op), self._lsn()]
        after, before = self.after, self.before
        if after is not None and before is not None and self.changed is not None:
            after = {column: after[column] for column in self.changed}
            before = {column: before[column] for column in self.changed}
        if after is not None:
            parts.append(text(after))
        if before:
            known = {column: value for column, value in before.items() if value is not None}
            parts.append(f"was {text(known if self.op == 'd' else before)}")
        return "  ".join(parts)

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "table": str(self.table),
            "key": self.key,
            OP: WORDS.get(self.op, self.op),
            "lsn": self._lsn(),
            POS: self.position.text() if self.position is not None else None,
            "ts_ms": self.ts_ms,
            BEFORE: self.before,
            AFTER: self.after,
        }

    def json(self) -> str:
        """:meth:`document` as one line."""
        return _dumped(self.document())

    def _lsn(self) -> str:
        return str(Lsn(self.position.commit_lsn)) if self.position is not None else "-"


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """One record of a topic of outbox events. ``key``: the aggregate's id. ``payload``: JSON as it was written."""

    topic: str
    key: str
    position: Position
    payload: str
    headers: Mapping[str, str]

    def line(self) -> str:
        """``shop.outbox.Order 7  OrderPaid  0/16B3D48  {"amount": "10.50"}``. The chosen headers stand before
        the LSN."""
        said = [text for name, text in self.headers.items() if name not in (POS, "id", AT)]
        return "  ".join([f"{self.topic} {self.key}", *said, str(Lsn(self.position.commit_lsn)), self.payload])

    def json(self) -> str:
        """The same for programs, as one line."""
        return _dumped(
            {
                "topic": self.topic,
                "key": self.key,
                "lsn": str(Lsn(self.position.commit_lsn)),
                "headers": dict(self.headers),
                "payload": orjson.Fragment(self.payload),
            }
        )


class PublishedEvents:
    """Reads the records of topics of events, partition by partition in order. ``passed``: how many came behind a newer
    one: a process that was taken for dead wrote them again, and each has been read before."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], bytes] = {}
        self.passed = 0

    def read(self, record: Record) -> PublishedEvent | None:
        """The event of a record. None for one that is passed over. ValueError where it is none."""
        place, pos = (record.topic, record.partition), record.headers.get(POS, b"")
        position = Position.parse(pos.decode())
        if pos <= self._newest.get(place, b""):
            self.passed += 1
            return None
        self._newest[place] = pos
        headers = {name: value.decode("utf-8", "replace") for name, value in record.headers.items()}
        payload = (b"null" if record.value is None else record.value).decode("utf-8", "replace")
        return PublishedEvent(record.topic, (record.key or b"").decode("utf-8", "replace"), position, payload, headers)


def read(shape: TableSchema, record: Record) -> Change | None:
    """A record as a change. None for a tombstone, which adds nothing to its delete.

    Raises ValueError when the bytes are not a record of this table.
    """
    if record.value is None:
        return None
    document = orjson.loads(record.value)
    if isinstance(document, dict) and GAP_OP in document:
        document = {OP: GAP_OP, AFTER: None}
    if not isinstance(document, dict) or OP not in document:
        raise ValueError("not an envelope")
    plain = PlainTable(shape)
    op, pos = SWEEP if SWEEP in document else str(document[OP]), record.headers.get(POS)
    before, after = document.get(BEFORE), document.get(AFTER)
    return Change(
        table=shape.table,
        key=""
        if op in (TRUNCATE_OP, SWEEP) or record.key in (None, GAP_KEY)
        else plain.key(record.key).replace("%3A", ":").replace("%25", "%"),
        op=op,
        position=Position.parse(pos.decode()) if pos is not None else None,
        before=_plain(plain, before),
        after=_plain(plain, after),
        ts_ms=document.get("ts_ms"),
        changed=_changed(before, after),
    )


def text(row: Mapping[str, Any]) -> str:
    """A row as JSON with a space after each colon and comma, so that a line may be broken and read.

    >>> text({"status": "paid", "tags": [1, None]})
    '{"status": "paid", "tags": [1, null]}'
    """
    return "{" + ", ".join(f"{_json(name)}: {_json(value)}" for name, value in row.items()) + "}"


def short_names(tables: Sequence[TableName]) -> dict[TableName, str]:
    """Each table by its name alone where that is unique, else with its schema.

    >>> names = short_names([TableName("a", "x"), TableName("b", "x"), TableName("a", "y")])
    >>> sorted(names.values())
    ['a.x', 'b.x', 'y']
    """
    alone = [table.table for table in tables]
    return {table: table.table if alone.count(table.table) == 1 else str(table) for table in tables}


def _plain(plain: PlainTable, row: Any) -> dict[str, Any] | None:
    """A value that capture could not have is shown as the placeholder that stands for it."""
    if not isinstance(row, dict):
        return None
    lacking = missing(row, plain.schema)
    values = plain.values({**row, **dict.fromkeys(lacking)} if lacking else row)
    return {**values, **{name: row[name] for name in lacking}}


def _changed(before: Any, after: Any) -> tuple[str, ...] | None:
    """Columns that differ on the wire."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return None
    return tuple(column for column in after if column in before and after[column] != before[column])


def _json(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_json(member) for member in value) + "]"
    return _dumped(value)


def _dumped(value: Any) -> str:
    """JSON in one line: a line break is white space between the tokens of json, which stands as it was written."""
    return orjson.dumps(value).decode().replace("\n", " ").replace("\r", " ")
