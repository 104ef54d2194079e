"""Records as Spark's own query carries them: its Kafka source read them, so they count in its progress and its UI.

The other way is our reader (:mod:`cdc.wire.records`), to which Spark only says the offsets. It is the quicker one: see
the manual, "Who reads the records". Pure. :mod:`spark.queries.query_run` asks Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa

from cdc.wire.format import HEADERS
from cdc.wire.records import Span, split_headers
from sinks.contract.batch import Column, all_true, pc
from spark.records.source import RECORD_SCHEMA

Job = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A task: Spark's rows of some whole partitions, to rows of a report."""
_UNKNOWN_BYTES = 1024**2
"""A record is taken to be so large while none has come: the most that a broker takes unless told otherwise."""
_MOST_PARTITIONS = 4
"""Of a task. Spark closes what it reads them with when the task ends: of each a client and the last 500 records."""


class CarriedRows(Protocol):
    """The records of one batch. Ask for them once, one way or the other: each time Spark reads them anew."""

    def bring(self) -> pa.Table:
        """All of them here (:data:`spark.records.source.RECORD_SCHEMA`), each partition in its order."""
        ...

    def run(self, job: Job, tasks: int) -> pa.Table:
        """Run a job on the executors, in at most so many tasks, and bring their reports. No partition is split."""
        ...

    def weigh(self, records: int) -> int:
        """About how many bytes so many records have, by those that came last."""
        ...

    def note(self, records: int, size_bytes: int) -> None:
        """Remember how large records were that came by a job."""
        ...


def task_count(partitions: int, slots: int) -> int:
    """How many tasks a batch of so many partitions is run in.

    >>> task_count(3, 2), task_count(800, 2)
    (2, 200)
    """
    return max(slots, -(-partitions // _MOST_PARTITIONS))


@dataclass
class RowSizes:
    """How large the records of a query were that came last. Spark bounds its batches in records alone, and a batch of
    large ones must not come to the driver whole."""

    each_bytes: float = _UNKNOWN_BYTES
    known: bool = False

    def note(self, records: int, size_bytes: int) -> None:
        """Remember the newest batch. Of large ones before it a half: a few small ones say little of the next."""
        if records:
            before = self.each_bytes if self.known else 0.0
            self.each_bytes, self.known = max(size_bytes / records, before / 2), True


def records_of_rows(rows: pa.Table) -> pa.Table:
    """Rows of Spark's Kafka source as records (:data:`spark.records.source.RECORD_SCHEMA`)."""
    columns: dict[str, Any] = {name: rows[name] for name in ("topic", "partition", "offset", "key", "value")}
    columns["time_ms"] = pc.divide(rows["timestamp"].cast(pa.int64()), 1000)
    columns |= _headers(rows["headers"])
    return pa.table([columns[name] for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA)


def _headers(lists: Column) -> dict[str, Any]:
    """The three headers as columns of their own, and all headers of records that have others."""
    usual = _usual(lists)
    if usual is not None:
        return {**usual, "headers": pa.nulls(len(lists), RECORD_SCHEMA.field("headers").type)}
    columns: dict[str, list[Any]] = {name: [] for name in (*HEADERS, "headers")}
    for row in lists.to_pylist():
        pairs = tuple((one["key"], one["value"]) for one in row or ())
        for name, value in zip(HEADERS, split_headers(pairs), strict=True):
            columns[name].append(value)
        three = tuple(name for name, _ in pairs) == HEADERS
        columns["headers"].append(None if three else row or [])
    return {name: pa.array(column, RECORD_SCHEMA.field(name).type) for name, column in columns.items()}


def _usual(lists: Column) -> dict[str, Any] | None:
    """The columns where every record has just our three headers in their order, as ours have. None otherwise."""
    counts = pc.list_value_length(lists)
    if lists.null_count or not all_true(pc.equal(counts, len(HEADERS))):
        return None
    pairs = pc.list_flatten(lists).combine_chunks()
    names, values = pc.struct_field(pairs, "key"), pc.struct_field(pairs, "value")
    found = {}
    for number, name in enumerate(HEADERS):
        turn = pa.array(range(number, len(pairs), len(HEADERS)), pa.int64())
        if not all_true(pc.equal(names.take(turn), name)):
            return None
        found[name] = values.take(turn)
    return found


def cut(records: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Records in slices of at most so many bytes. One that is larger by itself is a slice of its own."""
    sizes = pc.add(*(pc.fill_null(pc.binary_length(records[name]), 0) for name in ("key", "value"))).to_pylist()
    cuts, taken_bytes = [0], 0
    for number, size in enumerate(sizes):
        if taken_bytes and taken_bytes + size > most_bytes:
            cuts.append(number)
            taken_bytes = 0
        taken_bytes += size
    for first, behind in pairwise([*cuts, len(sizes)]):
        yield records.slice(first, behind - first)


def places_behind(records: pa.Table) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the offset behind the last of these records, which come partition by partition in order."""
    ends = records.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    return {(one["topic"], one["partition"]): one["offset_max"] + 1 for one in ends.to_pylist()}


def last_place(records: pa.Table) -> tuple[str, int]:
    """(topic, partition) of the last of some records."""
    [one] = records.select(["topic", "partition"]).slice(records.num_rows - 1).to_pylist()
    return one["topic"], one["partition"]


def read_whole(spans: Sequence[Span], seen: Iterable[tuple[str, int]], last: tuple[str, int] | None) -> list[Span]:
    """Those of a batch's spans that a task read to their end: of the partitions whose rows it had in turn all but
    ``last``, the one in which it stopped. None where no row was left. There may be gaps before a span's end."""
    whole = set(seen) - {last}
    return [span for span in spans if (span.topic, span.partition) in whole]
