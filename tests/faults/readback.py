"""What is in the topics of tables too large or too many for the oracle: each record against the row that it is of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import reader_config
from tests.faults.lab import Found
from tests.faults.rig import Rig

_AT_ONCE = 5_000
_SILENT_S = 30.0
SWEEP_MARK = b',"sweep":{"floor":'
"""In a record that ends a reading: it is of no row."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Rows ``(id, v)``: table -> how many, numbered from 1; ``value``: table and number -> ``v``."""

    rows: Mapping[str, int]
    value: Callable[[str, int], str]


@dataclass(slots=True)
class ReadBack:
    """What was found. ``rows``: compared; ``duplicates``: records of an id that had one already."""

    rows: int = 0
    lost: int = 0
    wrong: int = 0
    duplicates: int = 0
    first: str = field(default="")

    @property
    def differs(self) -> bool:
        return bool(self.lost or self.wrong or self.duplicates)

    def __str__(self) -> str:
        return f"{self.lost} lost, {self.wrong} wrong, {self.duplicates} twice; {self.first}"


def read_back(rig: Rig, expected: Expected) -> ReadBack:
    """Read the topics of these tables from their beginning, and compare every record."""
    return judged(records(rig, expected.rows), expected)


def records(rig: Rig, tables: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
    """Every record of these tables that stands in the log now, as (table, value), partition by partition in order."""
    topics = {f"{rig.settings.name}.public.{table}": table for table in tables}
    partitions = rig.settings.log.partitions
    ends = TopicAdmin(rig.settings.log).end_offsets(dict.fromkeys(topics, partitions))
    due = {(topic, part): end for topic, parts in ends.items() for part, end in parts.items() if end > 0}
    consumer = Consumer(reader_config(rig.settings.log))
    try:
        consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for topic, part in due])
        while due:
            first = consumer.poll(_SILENT_S)
            if first is None:
                raise Found(
                    f"the broker gave nothing for {_SILENT_S:g} s, and {len(due)} partitions are not at their ends"
                )
            for message in (first, *consumer.consume(_AT_ONCE, timeout=0)):
                error = message.error()
                lane = (message.topic() or "", message.partition() or 0)
                if error is None:
                    yield topics[lane[0]], message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    due.pop(lane, None)
                else:
                    raise Found(str(error))
    finally:
        consumer.close()


def judged(records: Iterable[tuple[str, bytes | None]], expected: Expected) -> ReadBack:
    """Compare records (table, value) with what is expected of their tables."""
    found = ReadBack()
    seen = {table: bytearray(count + 1) for table, count in expected.rows.items()}
    for table, value in records:
        if value is not None and SWEEP_MARK in value:
            continue
        row = _after(value)
        number = row.get("id")
        marks = seen[table]
        if not isinstance(number, int) or not 0 < number < len(marks):
            found.wrong += 1
            found.first = found.first or f"{table}: {value!r}"
            continue
        found.duplicates += marks[number]
        marks[number] = 1
        found.rows += 1
        if row.get("v") != expected.value(table, number):
            found.wrong += 1
            found.first = found.first or f"{table} {number}: {row.get('v')!r}"
    for table, marks in seen.items():
        lost = len(marks) - 1 - marks.count(1)
        if lost:
            found.lost += lost
            found.first = found.first or f"{table} lacks {marks.index(0, 1)}"
    return found


def _after(value: bytes | None) -> Mapping[str, Any]:
    document = orjson.loads(value) if value is not None else None
    after = document.get("after") if isinstance(document, dict) else None
    return after if isinstance(after, dict) else {}
