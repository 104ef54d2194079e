"""Records as Spark's Kafka source has them, and a batch that carries them, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sinks.contract.batch import schema_of
from spark.queries.report import REPORT_SCHEMA
from spark.records.carried_rows import Job, RowSizes, records_of_rows
from tests.unit.spark.records import KafkaRecord

_PAIR: pa.DataType = pa.struct([("key", pa.string()), ("value", pa.binary())])
ROW_SCHEMA = schema_of(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(_PAIR)),
    ]
)


def rows_of(*records: KafkaRecord) -> pa.Table:
    """Rows as Spark has them: no headers are null."""
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "offset": one.offset,
            "timestamp": one.time_ms * 1000,
            "key": one.key,
            "value": one.value,
            "headers": [{"key": name, "value": value} for name, value in one.headers] if one.headers else None,
        }
        for one in records
    ]
    return pa.Table.from_pylist(rows, schema=ROW_SCHEMA)


@dataclass
class MemoryRows:
    """:class:`spark.records.carried_rows.CarriedRows` over records. ``asked``: how often they were read."""

    records: Sequence[KafkaRecord]
    at_once: int = 2
    sizes: RowSizes = field(default_factory=RowSizes)
    asked: int = 0

    def bring(self) -> pa.Table:
        self.asked += 1
        found = records_of_rows(rows_of(*self.records))
        self.note(found.num_rows, found.nbytes)
        return found

    def run(self, job: Job, tasks: int) -> pa.Table:
        self.asked += 1
        places = sorted({(one.topic, one.partition) for one in self.records})
        reports: list[pa.RecordBatch] = []
        for number in range(tasks):
            own = places[number::tasks]
            rows = rows_of(*(one for place in own for one in self.records if (one.topic, one.partition) == place))
            reports += job(rows.to_batches(max_chunksize=self.at_once))
        return pa.Table.from_batches(reports, schema=REPORT_SCHEMA)

    def weigh(self, records: int) -> int:
        return round(records * self.sizes.each_bytes)

    def note(self, records: int, size_bytes: int) -> None:
        self.sizes.note(records, size_bytes)
