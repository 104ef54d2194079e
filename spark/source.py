"""From Kafka's records to events: the one place that knows what a record of a table topic looks like.

The three headers are taken apart here, whole columns at a time, on the driver and on executors alike. A record
without them is not one of ours (something else wrote into the topic) and is told apart, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc.progress import Offsets
from sinks.arrow import Column, all_true, pc
from sinks.batch import EVENT_SCHEMA, FLOOR_OP, ROW_OPS
from sinks.newest import ordered_mask

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What is read of each record, by the names of Spark's Kafka source."""
EARLIEST = -2
_VERSION_DIGITS = 9
_OPS = pa.array([op.encode() for op in (*ROW_OPS, FLOOR_OP)], pa.binary())
_HEADERS = ("pos", "op", "ver")
REASON_HEADER = "cdc-unreadable"
"""On a record that was looked at before and is none of ours: why."""


class KafkaInput(NamedTuple):
    """Where the queries read. ``options``: of :func:`spark.javaclient.java_options`; they hold secrets."""

    options: Mapping[str, str]
    max_offsets: int


def kafka_frame(session: SparkSession, kafka: KafkaInput, query: str, starts: Offsets) -> DataFrame:
    """A stream of exactly these partitions, each from its offset (:data:`EARLIEST`: its beginning).

    Assigned, not subscribed: a partition that was added to a topic stays empty (H89), and a topic that was made
    anew fails the query instead of being read from wherever its offsets happen to fit (H63).
    """
    assigned = {topic: sorted(parts) for topic, parts in starts.items()}
    offsets = {topic: {str(p): offset for p, offset in parts.items()} for topic, parts in starts.items()}
    reader = session.readStream.format("kafka").options(
        **{
            "kafka.fetch.max.wait.ms": "5",
            "kafka.isolation.level": "read_committed",
            **kafka.options,
            "assign": orjson.dumps(assigned).decode(),
            "startingOffsets": orjson.dumps(offsets).decode(),
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(kafka.max_offsets),
            "groupIdPrefix": f"cdc-sink-{query}",
        }
    )
    return reader.load().select(*COLUMNS)


class Unreadable(NamedTuple):
    """A record that is none of ours, and why."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    reason: str


class Parsed(NamedTuple):
    """``events``: :data:`sinks.batch.EVENT_SCHEMA`, every one with a key and three sound headers."""

    events: pa.Table
    unreadable: list[Unreadable]


def parse(records: pa.Table) -> Parsed:
    """Records with the columns :data:`COLUMNS` as events. Raises nothing whatever the bytes are (H67)."""
    pos, op, ver = (_header(records, name) for name in _HEADERS)
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
        "pos": pos.cast(pa.string()),
        "op": op.cast(pa.string()),
        "ver": ver.cast(pa.string()).cast(pa.int32()),
    }
    return pa.table([columns[name] for name in EVENT_SCHEMA.names], schema=EVENT_SCHEMA)


def _header(records: pa.Table, name: str) -> Column:
    """The value of one header of each record, null where it has none; the last one, as Kafka has it, of several."""
    chunks = [_header_of(chunk, name) for chunk in records["headers"].chunks]
    return pa.chunked_array(chunks, pa.binary())


def _header_of(headers: Column, name: str) -> Column:
    flat = headers.flatten()
    found = np.flatnonzero(pc.fill_null(pc.equal(flat.field("key"), name), False).to_numpy(zero_copy_only=False))
    parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)[found]
    values = flat.field("value")
    if len(found) == len(headers) and _counts_up(parents):
        return values.take(pa.array(found))
    place = np.full(len(headers), -1, dtype=np.int64)
    place[parents] = found
    return values.take(pa.array(place, mask=place < 0))


def _counts_up(parents: npt.NDArray[np.int64]) -> bool:
    """Whether each record has the header once: the usual case, without a detour."""
    return bool((parents == np.arange(len(parents))).all())


def _is_version(ver: Column) -> Column:
    unique = ver.unique()
    numbers = [v for v in unique.to_pylist() if v is not None and v.isdigit() and len(v) <= _VERSION_DIGITS]
    return pc.is_in(ver, value_set=pa.array(numbers, pa.binary()))


def _unreadable(records: pa.Table, sound: Column, reasons: Mapping[str, Column]) -> Iterable[Unreadable]:
    rejected = pc.invert(sound)
    faults = {reason: held.filter(rejected).to_pylist() for reason, held in reasons.items()}
    for number, row in enumerate(records.filter(rejected).to_pylist()):
        reason = next(reason for reason, held in faults.items() if not held[number])
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        told = next((value.decode() for name, value in headers if name == REASON_HEADER and value is not None), None)
        yield Unreadable(
            row["topic"],
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            headers,
            told or f"not a record of ours: {reason}",
        )
