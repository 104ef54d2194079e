"""The past of a table made by hand: its changes as its history has them, and the table as it was at each LSN."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from cdc.capture.history import gaps
from cdc.record.position import CHUNK_SEQ, SNAPSHOT_SEQ, Lsn, Position
from cdc.record.schema import TableSchema
from cdc.record.topic_names import partition_of
from cdc.wire.format import GAP_KEY
from cdc.wire.records import sweep_key, sweep_value, truncate_key
from sinks.contract.batch import Event
from sinks.contract.history_rows import history_shape
from sinks.contract.table_places import SchemaBook
from spark.records.ports import SinkTopics
from spark.records.source import RECORD_SCHEMA
from spark.stores.apply import Rules, sort_out
from spark.stores.store_thread import Store as Running
from spark.stores.watermark import Claim
from tests.contract.feeding import Feeding, Log
from tests.contract.orders import order
from tests.contract.stores import Store, rows
from tests.contract.topics import ORDERS, at

HISTORY = history_shape(ORDERS)
BOOK = SchemaBook([ORDERS, HISTORY])
PARTITIONS = 2
_BASE = 0x1000000
State = Mapping[int, Mapping[str, Any]]


def cut(lsn: int) -> Position:
    """Behind all changes below a small LSN."""
    return Position(1, _BASE + lsn * 8, 0)


@dataclass
class Past:
    """Transactions of one table, ``lsn`` by ``lsn``. ``known``: (LSN, the table below it), of each LSN that its history
    can answer. ``whole``: whether it can answer the next one."""

    shape: TableSchema = HISTORY
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    records: list[Event] = field(default_factory=list)
    lsn: int = 1
    whole: bool = True
    states: dict[int, dict[int, dict[str, Any]] | None] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)
    partitions: int = PARTITIONS
    times: dict[int, int] = field(default_factory=dict)
    """LSN -> its commit time, in seconds behind the first one. As many as its number unless set."""
    _next: dict[int, int] = field(default_factory=dict)
    _seq: int = 0

    @property
    def schema(self) -> TableSchema:
        """Of the topic."""
        return self.shape

    @property
    def events(self) -> list[Event]:
        """As a topic has them."""
        return self.records

    def put(self, number: int, status: str) -> None:
        before, after = self.rows.get(number), {"id": number, "status": status, "note": None}
        self.rows[number] = after
        self.unsure.discard(number)
        self._row("c" if before is None else "u", number, after=after)

    def delete(self, number: int) -> None:
        if self.rows.pop(number, None) is not None:
            self.unsure.discard(number)
            self._row("d", number, before={"id": number, "status": None, "note": None})

    def rekey(self, number: int, other: int) -> None:
        """The key of a row changes."""
        if number in self.rows and other not in self.rows:
            status = self.rows[number]["status"]
            self.delete(number)
            self.put(other, status)

    def truncate(self) -> None:
        self.rows.clear()
        self.unsure.clear()
        self._everywhere(truncate_key("public.orders"), lambda pos: self._value("t", pos), "t", self._pos())

    def too_large(self, number: int, status: str) -> None:
        """A change that no record takes."""
        self.rows[number] = {"id": number, "status": status, "note": None}
        self.unsure.add(number)
        value = orjson.dumps({"gap": {"bytes": 9, "why": "the record is larger than its topic takes"}})
        self._append(self._key(number), value, self._pos(), "gap", None)

    def lose(self, number: int, status: str) -> None:
        """Changes that the history does not get, and the gap that says so behind them."""
        self.rows[number] = {"id": number, "status": status, "note": None}
        self.commit()
        # Nothing that lies between the last record and the gap is known, the gap's own LSN included.
        for lsn in range(self._last_lsn() + 1, self.lsn + 1):
            self.states[lsn] = None
        self.whole = False
        for lane, key, value, headers in gaps(range(self.partitions), 1, _BASE + self.lsn * 8):
            assert isinstance(value, bytes)
            self._append(key, value, Position.parse(headers[0][1].decode()), "gap", lane, version=None)

    def read(self, *, hurried: tuple[int, str] | None = None) -> None:
        """The whole table is read again, and its mark follows. ``hurried``: a change that was committed as it was read,
        which the rows hold already."""
        self.commit()
        position = Position(1, _BASE + (self.lsn - 1) * 8, CHUNK_SEQ)
        seen = self.lsn
        rows = {number: dict(row) for number, row in self.rows.items()}
        if hurried is not None:
            number, status = hurried
            rows[number] = {"id": number, "status": status, "note": None}
            seen = self.lsn + 1
        for number, row in rows.items():
            self._row("r", number, after=row, at=position, seen=seen)
        self.unsure.clear()
        if hurried is None and self.whole:
            self.states[self.lsn] = rows
        self.whole = True
        if hurried is not None:
            self.put(*hurried)
        self.commit()
        end = Position(1, _BASE + (self.lsn - 1) * 8, CHUNK_SEQ)
        self._everywhere(
            sweep_key("public.orders"),
            lambda pos: sweep_value(self._value("t", pos, seen=self.lsn), position.text(), self.partitions),
            "t",
            end,
        )

    def snapshot(self, rows: Mapping[int, str]) -> None:
        """The first snapshot, and the mark that ends it."""
        begin = Position(1, _BASE, SNAPSHOT_SEQ)
        for number, status in rows.items():
            self.rows[number] = {"id": number, "status": status, "note": None}
            self._row("r", number, after=self.rows[number], at=begin, snapshot="true")
        self._everywhere(
            sweep_key("public.orders"),
            lambda pos: sweep_value(self._value("t", pos, snapshot="true"), pos.text(), self.partitions),
            "t",
            begin,
        )

    def commit(self) -> None:
        """The transaction ends: the table as it is now is that of the next LSN."""
        self.lsn += 1
        self._seq = 0
        known = self.whole and not self.unsure
        self.states[self.lsn] = {number: dict(row) for number, row in self.rows.items()} if known else None

    def _last_lsn(self) -> int:
        """Of the newest record but the gaps of the whole table: one in place of a row's change comes in its turn."""
        own = [Position.parse(one.pos or "").commit_lsn for one in self.records if GAP_KEY not in (one.key or b"")]
        return (max(own, default=_BASE) - _BASE) // 8

    def _pos(self) -> Position:
        self._seq += 1
        return Position(1, _BASE + self.lsn * 8, self._seq)

    def _key(self, number: int) -> bytes:
        return orjson.dumps({"id": number})

    def _row(
        self,
        op: str,
        number: int,
        *,
        after: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        at: Position | None = None,
        seen: int | None = None,
        snapshot: str = "incremental",
    ) -> None:
        pos = at or self._pos()
        value = self._value(op, pos, after=after, before=before, seen=seen, snapshot=snapshot if op == "r" else "false")
        self._append(self._key(number), value, pos, op, None)

    def _value(
        self,
        op: str,
        pos: Position,
        *,
        after: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        seen: int | None = None,
        snapshot: str = "incremental",
    ) -> bytes:
        lsn = (pos.commit_lsn - _BASE) // 8
        us = 1_700_000_000_000_000 + self.times.get(lsn, lsn) * 1_000_000
        source = {
            "version": "0.1.0", "connector": "postgresql", "name": "shop", "ts_ms": us // 1000, "snapshot": snapshot,
            "db": "shop", "sequence": '[null,"1"]', "ts_us": us, "ts_ns": us * 1000, "schema": "public",
            "table": "orders", "txId": (pos.commit_lsn - _BASE) // 8, "lsn": pos.commit_lsn, "xmin": None,
            "origin": None, "origin_lsn": None, "epoch": 1, "commit_lsn": pos.commit_lsn, "tx_seq": pos.tx_seq,
        }  # fmt: skip
        if seen is not None:
            source["seen_lsn"] = _BASE + seen * 8
        document = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1}
        return orjson.dumps(document)

    def _everywhere(self, key: bytes, value: Callable[[Position], bytes], op: str, pos: Position) -> None:
        for partition in range(self.partitions):
            self._append(key, value(pos), pos, op, partition)

    def _append(
        self, key: bytes, value: bytes, pos: Position, op: str, partition: int | None, version: int | None = 1
    ) -> None:
        where = partition_of(key, self.partitions) if partition is None else partition
        offset = self._next[where] = self._next.get(where, -1) + 1
        ver = None if op == "gap" else version
        self.records.append(Event(self.shape.topic, where, offset, key, value, pos.text(), op, ver))


def records_of(events: Sequence[Event]) -> pa.Table:
    """Events as they stand in the topic."""
    columns: dict[str, list[Any]] = {
        "topic": [one.topic for one in events],
        "partition": [one.partition for one in events],
        "offset": [one.offset for one in events],
        "time_ms": [0 for _ in events],
        "key": [one.key for one in events],
        "value": [one.value for one in events],
        "pos": [one.pos.encode() if one.pos is not None else None for one in events],
        "op": [one.op.encode() if one.op is not None else None for one in events],
        "ver": [str(one.ver).encode() if one.ver is not None else None for one in events],
        "headers": [None for _ in events],
    }
    return pa.table(columns, schema=RECORD_SCHEMA)


def sorted_events(events: Sequence[Event]) -> pa.Table:
    """Records of a history as a sink gets them."""
    found = sort_out(records_of(events), Rules(book=BOOK))
    assert not found.unreadable, found.unreadable[0].reason
    return found.events


def lsn_text(lsn: int) -> str:
    return str(Lsn(_BASE + lsn * 8))


@dataclass
class HistoryLog(Log):
    """A table's topic, and that of its history. ``begin``: of the history's partition, ``kafka_id``: of its topic."""

    others: Any = field(default_factory=lambda: Past(partitions=1))
    shapes: list[TableSchema] = field(default_factory=lambda: [ORDERS, HISTORY])
    begin: int = 0
    kafka_id: str = "id of the history"

    @property
    def lsn(self) -> int:
        past: Past = self.others
        return _BASE + past.lsn * 8 + 8 * len(self.orders.events)

    def topics(self, sink: str) -> SinkTopics:
        found = super().topics(sink)
        ids = {**found.ids, HISTORY.topic: self.kafka_id}
        return replace(found, ids=ids, histories={HISTORY.topic: {0: self.begin}})


@dataclass
class HistoryFeeding(Feeding):
    """A sink over one store that keeps the history of its table."""

    log: Any = field(default_factory=HistoryLog)

    @property
    def past(self) -> Past:
        """The past of the table, as its history's topic has it."""
        found: Past = self.log.others
        return found

    def kept(self) -> dict[str, str]:
        """Key and position of each row that the store keeps."""
        return {row.key: row.pos for row in rows(self.store.open(), HISTORY).values()}

    def truth(self) -> dict[str, str]:
        """Of each that it should keep."""
        return {key: key[:32] for key in (text_of(one) for one in self.past.records)}

    def _feed(self, running: Running) -> None:
        ends = self.log.ends(SinkTopics())
        events = [
            one
            for topic in (self.log.orders, self.log.others)
            for one in topic.events
            if one.offset >= running.offsets.get(one.topic, {}).get(one.partition, 0)
            and (one.topic != HISTORY.topic or one.offset >= self.log.begin)
        ]
        claim = Claim(ends, self.clock.monotonic())
        self._ran(lambda: running.settle(records_of(events), claim))


def text_of(record: Event) -> str:
    """The key of a record's row."""
    key = orjson.loads(record.key or b"{}")
    if "__sweep" in key:
        floor = orjson.loads(record.value or b"")["sweep"]["floor"]
        return f"{record.pos}:%sweep:{floor}"
    names = {"__truncate": "%truncate", "__gap": "%gap"}
    return f"{record.pos}:{next((names[one] for one in key if one in names), str(key.get('id')))}"


def remembered(store: Store) -> HistoryFeeding:
    """A store that is level with a log of a table with a past."""
    feeding = HistoryFeeding(store)
    feeding.log.orders.upsert(order(1, "first"), at(1))
    past = feeding.past
    past.snapshot({1: "first"})
    past.commit()
    past.put(2, "second")
    past.put(1, "second")
    past.commit()
    feeding.level()
    assert feeding.kept() == feeding.truth()
    return feeding


def more(feeding: HistoryFeeding) -> None:
    """Its past goes on, batch by batch."""
    past = feeding.past
    past.delete(1)
    past.commit()
    feeding.level()
    past.truncate()
    past.put(3, "third")
    past.commit()
    past.too_large(4, "fourth")
    past.read()
    feeding.level()
