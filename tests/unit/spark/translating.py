"""Translations as the queries use them, and doubles of what they ask."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from cdc.schema import TableSchema
from cdc.wire.records import Lot, Span
from spark.debezium_feed import Translation
from spark.source import RECORD_SCHEMA
from spark.translate import TaskNotes, TaskTranslation, TaskTranslator
from tests.unit.cdc.wire.debezium.recorded import Recorded
from tests.unit.spark.records import KafkaRecord, records_of


class Registry:
    """Numbers shapes from 1; counts how often it is asked. Each has the key that the topic has. ``last``: the number
    of the topic's newest."""

    def __init__(self, last: int = 7) -> None:
        self._last = last
        self.known: dict[tuple[str, TableSchema | None], int] = {}
        self.asked = 0

    def version(self, topic: str, shape: TableSchema | None, *, key: object = None) -> int:
        self.asked += 1
        return self._last if shape is None else self.known.setdefault((topic, shape), len(self.known) + 1)

    def rekeys(self, topic: str, shape: TableSchema) -> bool:
        return False


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
                self.go_on(told)
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


class Earlier:
    """Records from before a run, as a reader of the log has them."""

    def __init__(self, rows: list[Recorded]) -> None:
        self._rows = rows
        self.asked: list[Span] = []

    def read(self, spans: Iterable[Span]) -> Iterator[Lot]:
        for span in spans:
            self.asked.append(span)
            found = [
                row
                for row in self._rows
                if (row.topic, row.partition) == span[:2] and max(0, span.start) <= row.offset < span.end
            ]
            if found:
                nothing: list[bytes | None] = [None] * len(found)
                offsets = [row.offset for row in found]
                keys, values = [row.key for row in found], [row.value for row in found]
                yield Lot(*span[:2], offsets, [0] * len(found), keys, values, nothing, nothing, nothing, {})

    def close(self) -> None:
        """Nothing is held."""
