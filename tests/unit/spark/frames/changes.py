"""A table's records for frames, without a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from cdc.record.position import Position
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.records import RecordColumns

TOPIC = "shop.public.orders"
ID = Column(name="id", attnum=1, type="int8", type_oid=20, kind="int8", nullable=False, key_position=1)
STATUS = Column(name="status", attnum=2, type="text", type_oid=25, kind="text")


def shape(version: int = 1, columns: Sequence[Column] = (ID, STATUS), oid: int = 16400) -> TableSchema:
    return TableSchema(
        table=TableName("public", "orders"),
        topic=TOPIC,
        version=version,
        oid=oid,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=tuple(columns),
    )


def change(
    offset: int,
    row: dict[str, Any] | None,
    *,
    op: str = "u",
    lsn: int | None = None,
    ver: int = 1,
    time_ms: int = 0,
    key: dict[str, Any] | None = None,
    value: bytes | None = b"",
    seq: int = 1,
    partition: int = 0,
) -> RecordColumns:
    """One record. ``value`` None: a tombstone."""
    own = key if key is not None else {"id": (row or {}).get("id")}
    after, before = (None, row) if op == "d" else (row, None)
    document = {"before": before, "after": after, "source": {"ts_ms": 5, "ts_us": 5001}, "op": op}
    return RecordColumns(
        topic=TOPIC,
        partition=partition,
        offsets=[offset],
        times_ms=[time_ms],
        keys=[orjson.dumps(own)],
        values=[orjson.dumps(document) if value == b"" else value],
        pos=[Position(1, 8 * offset + 8 if lsn is None else lsn, seq).text().encode()],
        op=[op.encode()],
        ver=[str(ver).encode()],
        headers={},
    )


def joined(*lots: RecordColumns) -> RecordColumns:
    """Records of one partition as one lot."""
    first = lots[0]
    columns = (
        [value for lot in lots for value in getattr(lot, name)]
        for name in ("offsets", "times_ms", "keys", "values", "pos", "op", "ver")
    )
    offsets, times, keys, values, pos, op, ver = columns
    return RecordColumns(first.topic, first.partition, offsets, times, keys, values, pos, op, ver, {})
