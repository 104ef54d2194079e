"""Events as capture writes them, made by hand: envelopes in the wire's order of members, offsets by partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from cdc.record.position import CHUNK_SEQ, SNAPSHOT_SEQ, Position
from cdc.record.schema import Column, Encoding, Identity, TableSchema
from cdc.record.topic_names import TableName, partition_of
from sinks.contract.batch import Event, events_of

EPOCH = 1


def at(lsn: int, seq: int = 1, epoch: int = EPOCH) -> Position:
    """A position by a small number: LSNs of commits are 8-byte aligned."""
    return Position(epoch, 0x1000000 + lsn * 8, seq)


def snapshot_at(lsn: int, epoch: int = EPOCH) -> Position:
    return at(lsn, SNAPSHOT_SEQ, epoch)


def chunk_at(lsn: int, epoch: int = EPOCH) -> Position:
    return at(lsn, CHUNK_SEQ, epoch)


def column(name: str, kind: str, *, key: int | None = None, typmod: int = -1, array: bool = False) -> Column:
    return Column(
        name=name,
        attnum=1,
        type=kind,
        type_oid=0,
        kind=kind,
        array=array,
        typmod=typmod,
        nullable=key is None,
        key_position=key,
    )


def numeric(name: str, precision: int, scale: int, *, array: bool = False) -> Column:
    return column(name, "numeric", typmod=((precision << 16) | (scale & 0x7FF)) + 4, array=array)


def shape(
    *columns: Column,
    table: str = "orders",
    schema: str = "public",
    version: int = 1,
    topic: str | None = None,
    encoding: Encoding = "readable",
) -> TableSchema:
    numbered = tuple(
        Column(**{**{s: getattr(c, s) for s in c.__slots__}, "attnum": n}) for n, c in enumerate(columns, 1)
    )
    return TableSchema(
        table=TableName(schema, table),
        topic=topic or f"shop.{schema}.{table}".replace(":", "_").replace(" ", "_"),
        version=version,
        oid=16384,
        encoding=encoding,
        identity=Identity.DEFAULT,
        columns=numbered,
    )


ORDERS = shape(column("id", "int8", key=1), column("status", "text"), column("note", "text"))


class Shapes:
    """:data:`sinks.contract.port.Schemas` over given shapes."""

    def __init__(self, *shapes: TableSchema) -> None:
        self._shapes = {(s.topic, s.version): s for s in shapes}

    def __call__(self, topic: str, version: int) -> TableSchema:
        return self._shapes[topic, version]

    def newest(self, topic: str) -> TableSchema:
        return self._shapes[max(shape for shape in self._shapes if shape[0] == topic)]


class Topic:
    """One table's topic. Each method appends records and returns them."""

    def __init__(self, schema: TableSchema = ORDERS, partitions: int = 1) -> None:
        self.schema = schema
        self.partitions = partitions
        self.events: list[Event] = []
        self._next: dict[int, int] = defaultdict(int)

    def row(self, op: str, row: Mapping[str, Any], pos: Position, *, before: Mapping[str, Any] | None = None) -> Event:
        """``c``, ``u`` or ``r`` of a row as it stands on the wire."""
        return self._append(self.key(row), self.envelope(op, pos, after=row, before=before), pos, op)

    def upsert(self, row: Mapping[str, Any], pos: Position) -> Event:
        return self.row("u", row, pos)

    def delete(self, row: Mapping[str, Any], pos: Position) -> list[Event]:
        """A ``d`` event and its tombstone, at this position and the next."""
        key = self.key(row)
        after = pos._replace(tx_seq=pos.tx_seq + 1)
        return [
            self._append(key, self.envelope("d", pos, before={k: row[k] for k in orjson.loads(key)}), pos, "d"),
            self._append(key, None, after, "d"),
        ]

    def truncate(self, pos: Position) -> list[Event]:
        """A ``t`` event to every partition."""
        key = orjson.dumps({"__truncate": str(self.schema.table)})
        return [self._append(key, self.envelope("t", pos), pos, "t", p) for p in range(self.partitions)]

    def sweep(self, floor: Position, pos: Position) -> list[Event]:
        """A sweep mark to every partition."""
        key = orjson.dumps({"__sweep": str(self.schema.table)})
        body = {"op": "t", "sweep": {"floor": floor.text(), "partitions": self.partitions}}
        return [self._append(key, orjson.dumps(body), pos, "t", p) for p in range(self.partitions)]

    def raw(self, key: bytes | None, value: bytes | None, pos: str | None, op: str | None, ver: int | None) -> Event:
        """Any record at all."""
        event = Event(self.schema.topic, 0, self._offset(0), key, value, pos, op, ver)
        self.events.append(event)
        return event

    def key(self, row: Mapping[str, Any]) -> bytes:
        return orjson.dumps({c.name: row[c.name] for c in self.schema.key})

    def envelope(
        self,
        op: str,
        pos: Position,
        *,
        after: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
    ) -> bytes:
        source = {
            "version": "0.1.0",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 1,
            "snapshot": "false",
            "db": "shop",
            "sequence": '[null,"1"]',
            "ts_us": 1,
            "ts_ns": 1,
            "schema": self.schema.table.schema,
            "table": self.schema.table.table,
            "txId": 1,
            "lsn": pos.commit_lsn,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
            "epoch": pos.epoch,
            "commit_lsn": pos.commit_lsn,
            "tx_seq": pos.tx_seq,
        }
        times = {"ts_ms": 1, "ts_us": 1, "ts_ns": 1}
        document = {"before": before, "after": after, "source": source, "transaction": None, "op": op, **times}
        return orjson.dumps(document)

    def _append(self, key: bytes, value: bytes | None, pos: Position, op: str, partition: int | None = None) -> Event:
        where = partition_of(key, self.partitions) if partition is None else partition
        event = Event(self.schema.topic, where, self._offset(where), key, value, pos.text(), op, self.schema.version)
        self.events.append(event)
        return event

    def _offset(self, partition: int) -> int:
        self._next[partition] += 1
        return self._next[partition] - 1


def batch(*events: Event | Sequence[Event]) -> pa.Table:
    """A batch of events, single ones and lists of them."""
    flat: list[Event] = []
    for event in events:
        flat.extend([event] if isinstance(event, Event) else event)
    return events_of(flat)
