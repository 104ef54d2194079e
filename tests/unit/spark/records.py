"""Kafka records as a reader hands them over, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from cdc.record.position import Position
from cdc.wire.records import RecordColumns, split_headers
from spark.records.source import RECORD_SCHEMA
from spark.records.source import records_of as table_of

TOPIC = "shop.public.orders"


class KafkaRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None
    offset: int = 0
    topic: str = TOPIC
    partition: int = 0
    time_ms: int = 1_700_000_000_000


def sound(lsn: int = 8, op: str = "u", ver: int = 1, seq: int = 1) -> list[tuple[str, bytes | None]]:
    """The three headers of a record of ours."""
    pos = Position(1, lsn, seq).text().encode()
    return [("pos", pos), ("op", op.encode()), ("ver", str(ver).encode())]


def lot_of(one: KafkaRecord) -> RecordColumns:
    """A lot of one record."""
    headers = tuple(one.headers or ())
    pos, op, ver = split_headers(headers)
    ours = [name for name, _ in headers] == ["pos", "op", "ver"]
    return RecordColumns(
        topic=one.topic,
        partition=one.partition,
        offsets=[one.offset],
        times_ms=[one.time_ms],
        keys=[one.key],
        values=[one.value],
        pos=[pos],
        op=[op],
        ver=[ver],
        headers={} if ours else {0: headers},
    )


def records_of(*records: KafkaRecord) -> pa.Table:
    """Records as one table, in chunks of one, as no reader should have to care."""
    return table_of([lot_of(one) for one in records]) if records else RECORD_SCHEMA.empty_table()
