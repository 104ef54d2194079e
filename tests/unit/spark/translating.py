"""Translations as the queries use them, and doubles of what they ask."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from cdc.record.progress import Offsets
from cdc.record.schema import TableSchema
from cdc.wire.debezium.reading import DebeziumReader
from cdc.wire.records import Span
from spark.records.debezium_records import TaskNotes, TaskTranslation, TaskTranslator, Translation
from spark.records.source import RECORD_SCHEMA
from tests.unit.cdc.wire.debezium.recorded import Recorded
from tests.unit.spark.records import KafkaRecord, records_of


class Registry:
    """Numbers shapes from 1; counts how often it is asked. ``newest_of``: what a topic has already."""

    def __init__(self, newest_of: TableSchema | None = None) -> None:
        self._newest = {newest_of.topic: newest_of} if newest_of is not None else {}
        self.known: dict[tuple[str, TableSchema], int] = {}
        self.asked = 0

    def newest(self, topic: str) -> TableSchema | None:
        return self._newest.get(topic)

    def version(self, topic: str, shape: TableSchema) -> int:
        self.asked += 1
        version = self.known.setdefault((topic, shape), len(self.known) + 1)
        self._newest[topic] = replace(shape, version=version)
        return version


def translating(
    registry: Registry | None = None,
    *,
    way: type[Translation] = Translation,
    keyed_anew: Callable[[str], None] = lambda _: None,
    topic_ids: Mapping[str, str] | None = None,
    handed_over: Offsets | None = None,
) -> Translation:
    """A run's translation."""
    shapes, reader = registry or Registry(), DebeziumReader()
    return way(shapes, reader, keyed_anew, topic_ids=topic_ids, handed_over=handed_over)


class InTasks(Translation):
    """As the engine does where tasks read: one for each partition, which gets and reports plain data."""

    slice_rows = 1000

    def __call__(self, records: pa.Table) -> pa.Table:
        parts = [RECORD_SCHEMA.empty_table()]
        for first in range(0, records.num_rows, self.slice_rows):
            parts.append(self._slice(records.slice(first, self.slice_rows)))
        return pa.concat_tables(parts)

    def _slice(self, records: pa.Table) -> pa.Table:
        places = sorted({(row["topic"], row["partition"]) for row in records.to_pylist()})
        shares = [records.filter((pc.field("topic") == t) & (pc.field("partition") == p)) for t, p in places]
        spans = [
            Span(*place, pc.min(share["offset"]).as_py(), pc.max(share["offset"]).as_py() + 1)
            for place, share in zip(places, shares, strict=True)
        ]
        while True:
            plan = pickle.dumps(self.for_tasks(spans))
            tasks = [begun(plan) for _ in shares]
            done = [task(share) for task, share in zip(tasks, shares, strict=True)]
            told = sum((pickle.loads(pickle.dumps(task.told)) for task in tasks), start=TaskNotes())
            if not told.undecided:
                return pa.concat_tables(done)
            self.decide(told)


class InSlices(InTasks):
    """The same, a record at a time."""

    slice_rows = 1


def begun(plan: bytes) -> TaskTranslator:
    found: TaskTranslation = pickle.loads(plan)
    return found.begin()


def records(
    rows: list[Recorded], headers: list[tuple[str, bytes | None]] | None = None, times_ms: Iterable[int] = ()
) -> pa.Table:
    """As the reader of the log hands them over."""
    times = [*times_ms] or [1_700_000_000_000] * len(rows)
    return records_of(
        *(
            KafkaRecord(r.key, r.value, headers, r.offset, r.topic, r.partition, time)
            for r, time in zip(rows, times, strict=True)
        )
    )
