"""Kafka records as Spark hands them over, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cdc.position import Position
from sinks.arrow import schema_of

_HEADERS: pa.DataType = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
RECORD_SCHEMA = schema_of(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)
TOPIC = "shop.public.orders"


class KafkaRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None
    offset: int = 0
    topic: str = TOPIC
    partition: int = 0
    timestamp_us: int = 1_700_000_000_000_000


def sound(lsn: int = 8, op: str = "u", ver: int = 1, seq: int = 1) -> list[tuple[str, bytes | None]]:
    """The three headers of a record of ours."""
    pos = Position(1, lsn, seq).text().encode()
    return [("pos", pos), ("op", op.encode()), ("ver", str(ver).encode())]


def records_of(*records: KafkaRecord) -> pa.Table:
    """Records as one table, in chunks of two, as no reader should have to care."""
    rows: list[dict[str, Any]] = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "offset": one.offset,
            "timestamp": one.timestamp_us,
            "key": one.key,
            "value": one.value,
            "headers": None if one.headers is None else [{"key": k, "value": v} for k, v in one.headers],
        }
        for one in records
    ]
    chunks = [pa.Table.from_pylist(rows[at : at + 2], schema=RECORD_SCHEMA) for at in range(0, len(rows), 2)]
    return pa.concat_tables(chunks) if chunks else RECORD_SCHEMA.empty_table()
