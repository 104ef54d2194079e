"""From Kafka's records to events: the one place that knows what a record of a table topic looks like.

Spark's Kafka source says which offsets a batch has, and when. Our reader (:mod:`cdc.wire.records`) reads them. See the
manual, "Who reads the records".

A record without our three headers is not one of ours (something else wrote into the topic): it is reported, never
dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc.record.progress import Offsets
from cdc.wire.envelope import committed_ms
from cdc.wire.format import HEADERS, OP, POS, REASON_HEADER, ROW_OPS, VER
from cdc.wire.records import BEGINNING, ReaderOpener, RecordColumns
from sinks.contract.batch import EVENT_SCHEMA, FLOOR_OP, Column, all_true, pc, schema_of
from sinks.contract.newest import ordered_mask

_HEADER_LIST: pa.DataType = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
RECORD_SCHEMA = schema_of(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("time_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        (POS, pa.binary()),
        (OP, pa.binary()),
        (VER, pa.binary()),
        ("headers", _HEADER_LIST),
    ]
)
"""Records as they were read. ``pos``, ``op``, ``ver``: header values of any form. ``headers``: all of them,
of a record that has others than the three, else null."""
EARLIEST = BEGINNING
_VERSION_DIGITS = 9
_OPS = pa.array([op.encode() for op in (*ROW_OPS, FLOOR_OP)], pa.binary())


MOST_PARTITIONS = 500
"""Of one source of Spark's, unless a single topic has more. A source looks each of its partitions up in the list of
all, twice for each batch: with 8,000 a row came 0.8 s later."""
_LEAST_OF_SOURCE = 50_000


class KafkaInput(NamedTuple):
    """Where the queries read. ``options``: of :func:`cdc.settings.client_options.java_options`, for Spark's source,
    which finds the offsets. ``reading``: opens what reads the records. Both hold secrets."""

    options: Mapping[str, str]
    max_offsets: int
    reading: ReaderOpener


def lots_of_topics(starts: Offsets, most: int = MOST_PARTITIONS) -> list[Offsets]:
    """Whole topics in lots of so many partitions at most, each of one topic at least. One lot where there is none.

    >>> lots_of_topics({"a": {0: 1, 1: 1}, "b": {0: 1}, "c": {0: 1, 1: 1}}, most=3)
    [{'a': {0: 1, 1: 1}, 'b': {0: 1}}, {'c': {0: 1, 1: 1}}]
    """
    lots: list[dict[str, Mapping[int, int]]] = [{}]
    count = 0
    for topic, parts in starts.items():
        if lots[-1] and count + len(parts) > most:
            lots.append({})
            count = 0
        lots[-1][topic] = parts
        count += len(parts)
    return list(lots)


def kafka_frame(session: SparkSession, kafka: KafkaInput, query: str, starts: Offsets) -> DataFrame:
    """A stream of exactly these partitions, each from its offset (:data:`EARLIEST`: its beginning).

    Assigned, not subscribed: a partition that was added to a topic stays empty, and a topic that was made
    anew fails the query instead of being read from wherever its offsets happen to fit. Nobody asks this frame for its
    rows. Many partitions are several sources. A batch of these may have more than
    ``max_offsets``: 50,000 of each, so that one busy table is not cut into small batches.
    """
    lots = lots_of_topics(starts)
    most = min(kafka.max_offsets, max(kafka.max_offsets // len(lots), _LEAST_OF_SOURCE))
    frames = [_source_frame(session, kafka._replace(max_offsets=most), query, lot) for lot in lots]
    return reduce(DataFrame.union, frames)


def _source_frame(session: SparkSession, kafka: KafkaInput, query: str, starts: Offsets) -> DataFrame:
    assigned = {topic: sorted(parts) for topic, parts in starts.items()}
    offsets = {topic: {str(p): offset for p, offset in parts.items()} for topic, parts in starts.items()}
    reader = session.readStream.format("kafka").options(
        **{
            "kafka.isolation.level": "read_committed",
            **kafka.options,
            "assign": orjson.dumps(assigned).decode(),
            "startingOffsets": orjson.dumps(offsets).decode(),
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(kafka.max_offsets),
            "groupIdPrefix": f"cdc-sink-{query}",
        }
    )
    return reader.load().select("offset")


def records_of(lots: Iterable[RecordColumns]) -> pa.Table:
    """Lots as one table of :data:`RECORD_SCHEMA`."""
    return pa.Table.from_batches([_record_batch(lot) for lot in lots], schema=RECORD_SCHEMA)


def _record_batch(lot: RecordColumns) -> pa.RecordBatch:
    count = len(lot.offsets)
    if lot.headers:
        rows = [_header_rows(lot.headers.get(number)) for number in range(count)]
        headers: Any = pa.array(rows, _HEADER_LIST)
    else:
        headers = pa.array([None] * count, _HEADER_LIST)
    columns = [
        pa.repeat(pa.scalar(lot.topic), count),
        pa.repeat(pa.scalar(lot.partition, pa.int32()), count),
        pa.array(lot.offsets, pa.int64()),
        pa.array(lot.times_ms, pa.int64()),
        *(pa.array(column, pa.binary()) for column in (lot.keys, lot.values, lot.pos, lot.op, lot.ver)),
        headers,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _header_rows(headers: Iterable[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": name, "value": value} for name, value in headers]


def headers_of(record: Mapping[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    """All headers of a row of :data:`RECORD_SCHEMA`."""
    if record["headers"] is not None:
        return tuple((header["key"], header["value"]) for header in record["headers"])
    return tuple((name, record[name]) for name in HEADERS)


class ForeignRecord(NamedTuple):
    """A record that no Headrace wrote, with the reason."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    reason: str


class Parsed(NamedTuple):
    """``events``: :data:`sinks.contract.batch.EVENT_SCHEMA`, every one with a key and three sound headers."""

    events: pa.Table
    unreadable: list[ForeignRecord]


def parse(records: pa.Table) -> Parsed:
    """Records (:data:`RECORD_SCHEMA`) as events. Raises nothing for any bytes."""
    pos, op, ver = (records[name] for name in HEADERS)
    ordered = ordered_mask(pos)
    known = pc.is_in(op, value_set=_OPS)
    versioned = _is_version(ver)
    keyed = pc.is_valid(records["key"])
    sound = pc.and_(pc.and_(keyed, ordered), pc.and_(known, versioned))
    if all_true(sound):
        return Parsed(_events(records, pos, op, ver), [])
    reasons = {
        "it has no key": keyed,
        "its header pos is missing or not 32 hex digits": ordered,
        "its header op is missing or not one of c, u, d, r, t": known,
        "its header ver is missing or not a number": versioned,
    }
    events = _events(records.filter(sound), pos.filter(sound), op.filter(sound), ver.filter(sound))
    return Parsed(events, list(_unreadable(records, sound, reasons)))


def _events(records: pa.Table, pos: Column, op: Column, ver: Column) -> pa.Table:
    columns: dict[str, Any] = {
        **{name: records[name] for name in ("topic", "partition", "offset", "key", "value")},
        POS: pos.cast(pa.string()),
        OP: op.cast(pa.string()),
        VER: ver.cast(pa.string()).cast(pa.int32()),
    }
    return pa.table([columns[name] for name in EVENT_SCHEMA.names], schema=EVENT_SCHEMA)


def _is_version(ver: Column) -> Column:
    unique = ver.unique()
    numbers = [v for v in unique.to_pylist() if v is not None and v.isdigit() and len(v) <= _VERSION_DIGITS]
    return pc.is_in(ver, value_set=pa.array(numbers, pa.binary()))


def _unreadable(records: pa.Table, sound: Column, reasons: Mapping[str, Column]) -> Iterable[ForeignRecord]:
    rejected = pc.invert(sound)
    faults = {reason: found.filter(rejected).to_pylist() for reason, found in reasons.items()}
    for number, row in enumerate(records.filter(rejected).to_pylist()):
        reason = next(reason for reason, found in faults.items() if not found[number])
        headers = headers_of(row)
        told = next(
            (value.decode(errors="replace") for name, value in headers if name == REASON_HEADER and value is not None),
            None,
        )
        yield ForeignRecord(
            row["topic"],
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            headers,
            told or f"not a record of ours: {reason}",
        )


_MOST = 8
"""Records of a table whose commit times are read: enough for a histogram, and nothing beside what applying costs."""
_SNAPSHOT_OP = b"r"


@dataclass(frozen=True, slots=True)
class ReadSample:
    """``size_bytes``: of keys and values. ``commits``: (commit time in ms since 1970, for how many records it stands).
    Rows of snapshots are not among them, they were committed long ago."""

    size_bytes: int = 0
    commits: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: ReadSample) -> ReadSample:
        return ReadSample(self.size_bytes + other.size_bytes, self.commits + other.commits)

    @classmethod
    def of(cls, members: dict[str, Any]) -> ReadSample:
        """As a task's report has it."""
        return cls(members["size_bytes"], tuple((time_ms, count) for time_ms, count in members["commits"]))


def read_sample(records: pa.Table) -> ReadSample:
    """Of records as :data:`spark.records.source.RECORD_SCHEMA` has them."""
    if not records.num_rows:
        return ReadSample()
    size = sum(int(pc.sum(pc.binary_length(records[name])).as_py() or 0) for name in ("key", "value"))
    places = spread(records.num_rows, _MOST)
    some = records.select(["value", OP]).take(pa.array(places, pa.int64())).to_pylist()
    times = [None if one[OP] == _SNAPSHOT_OP else committed_ms(one["value"]) for one in some]
    # Each stands for the records since the one before. Those that are no changes stand for none.
    counts = [place - before for before, place in pairwise([-1, *places])]
    commits = ((time_ms, count) for time_ms, count in zip(times, counts, strict=True) if time_ms is not None)
    return ReadSample(size, tuple(commits))


def spread(count: int, most: int) -> Sequence[int]:
    """At most so many numbers below ``count``, evenly spread, the last one among them.

    >>> spread(3, 8), spread(100, 4)
    ([0, 1, 2], [24, 49, 74, 99])
    """
    if count <= most:
        return list(range(count))
    return [(number + 1) * count // most - 1 for number in range(most)]
