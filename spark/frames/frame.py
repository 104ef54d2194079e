"""A frame between Spark and the log: what is read is decided here, once in the driver, and read in tasks. No Spark."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError, TopicError, UsageError
from cdc.record.progress import Offsets
from cdc.record.schema import TableSchema
from cdc.record.topic_names import VIEW_SCHEMA
from cdc.wire.records import BEGINNING, ReaderOpener, RecordColumns, RecordReader, Span
from spark.frames.as_of import (
    AsOf,
    AsOfReading,
    Settled,
    oldest_of,
    require_reached,
    safe_lag_ms,
    too_old,
)
from spark.frames.frame_columns import FrameColumns, raw_schema
from spark.frames.options import FrameOptions
from spark.frames.ports import FrameLog, FrameTopics
from spark.frames.typed_rows import TypedRows, raw_batch

_MS = 1_000_000
_BATCH_ROWS, _BATCH_BYTES = 10_000, 8 * 1024**2
"""The least number of records in an Arrow batch, unless fewer are left."""


class FrameTask(NamedTuple):
    """The parameters of a frame's tasks, as plain data. ``columns`` None: the records as they are."""

    columns: FrameColumns | None
    versions: tuple[TableSchema, ...]
    options: FrameOptions
    reading: ReaderOpener


def columns_of(options: FrameOptions, log: FrameLog) -> FrameColumns | None:
    """The columns of the frame's table as of now. None for ``raw``."""
    (table, *_) = log.find(options.tables).topics
    return None if options.raw else FrameColumns.of(log.versions(table)[-1])


def arrow_schema(columns: FrameColumns | None) -> pa.Schema:
    """The frame's schema."""
    return columns.arrow if columns is not None else raw_schema()


def task_of(
    options: FrameOptions, log: FrameLog, reading: ReaderOpener, fits: Callable[[pa.Schema], bool]
) -> FrameTask:
    """The parameters of tasks for a frame whose schema Spark has already: ``fits`` says whether a version's is that
    one.

    ConfigError where none is: somebody gave the frame another schema.
    """
    if options.raw:
        if not fits(raw_schema()):
            raise _other_schema("raw = true")
        return FrameTask(None, (), options, reading)
    (table, *_) = log.find(options.tables).topics
    versions = log.versions(table)
    while versions:
        columns = FrameColumns.of(versions[-1])
        if fits(columns.arrow):
            return FrameTask(columns, tuple(versions), options, reading)
        versions.pop()
    raise _other_schema(str(table))


def _other_schema(what: str) -> ConfigError:
    return ConfigError(f"the schema given is none of {what}", hint="leave .schema(...) out: headrace brings its own")


def starts_of(options: FrameOptions, ends: Offsets) -> Offsets:
    """Where a frame begins. UsageError for offsets of topics that it does not read, TopicError for offsets behind
    the end."""
    if options.starting == "latest":
        return ends
    if options.starting == "earliest":
        return {topic: dict.fromkeys(parts, BEGINNING) for topic, parts in ends.items()}
    return _checked("starting_offsets", options.starting, ends)


def ends_of(options: FrameOptions, ends: Offsets) -> Offsets:
    """Where a batch ends."""
    return ends if options.ending is None else _checked("ending_offsets", options.ending, ends)


def _checked(name: str, given: Offsets, ends: Offsets) -> Offsets:
    for topic, parts in given.items():
        for partition, offset in parts.items():
            end = ends.get(topic, {}).get(partition)
            if end is None:
                raise UsageError(
                    f"the option {name} names {topic}, partition {partition}, which this frame does not read",
                    hint=f"it reads {', '.join(sorted(ends)[:5])}",
                )
            if offset > end:
                raise TopicError(
                    f"the option {name} says {offset} for {topic}, partition {partition}, which ends at {end}",
                    hint="the topic was made anew or cut since those offsets were taken; begin at earliest",
                )
    return given


def as_of_plan(
    options: FrameOptions, found: FrameTopics, log: FrameLog, reading: ReaderOpener, clock: Clock
) -> tuple[Offsets, Mapping[str, AsOf]]:
    """Where a read as of an LSN ends, and by topic what its tasks keep to. UsageError where it cannot be answered."""
    assert options.as_of is not None
    for one in found.topics:
        if one.schema == VIEW_SCHEMA:
            raise UsageError(
                f"{one} is a view, and as_of reads tables: a view's records have the positions of its own cuts",
                hint="read the view without as_of, or its tables as of the LSN",
            )
    progress = log.progress()
    if progress is None:
        raise UsageError("the log says nothing yet of how far it holds the source", hint="cdc run writes the log")
    names = {topic.topic: str(table) for table, topic in found.topics.items()}
    for topic, table in names.items():
        if topic in progress.aside:
            raise UsageError(f"{table} is set aside, so the log lacks changes of it", hint="cdc status says why")
        require_reached(table, options.as_of, progress.lsn)
    # Asked for behind the progress record, so these ends cover it.
    ends = log.ends(found.partitions)
    asked = {}
    for table_name, topic_facts in found.topics.items():
        topic = topic_facts.topic
        own = {topic: ends[topic]}
        lag_ms = safe_lag_ms(topic_facts.compaction_lag_ms)
        settled = _settled(own, log.offsets_at(own, clock.now_ns() // _MS - lag_ms), reading)
        oldest = oldest_of(settled, progress.epoch, progress.lsn)
        if options.as_of < oldest:
            raise too_old(str(table_name), options.as_of, oldest)
        asked[topic] = AsOf(progress.epoch, options.as_of, lag_ms)
    return ends, asked


def _settled(ends: Offsets, young: Offsets, reading: ReaderOpener) -> list[Settled]:
    places = [(topic, p, offset) for topic, parts in young.items() for p, offset in sorted(parts.items()) if offset > 0]
    before = _first_positions([Span(topic, p, offset - 1, offset) for topic, p, offset in places], reading)
    lacking = [Span(topic, p, offset, ends[topic][p]) for topic, p, offset in places if (topic, p) not in before]
    behind = _first_positions(lacking, reading)
    return [Settled(before.get((topic, p)), behind.get((topic, p))) for topic, p, _ in places]


def _first_positions(spans: Sequence[Span], reading: ReaderOpener) -> dict[tuple[str, int], bytes]:
    """The position of the first record of each range that has one of ours."""
    found: dict[tuple[str, int], bytes] = {}
    with closing(reading.open()) as reader:
        for span in spans:
            first = next((pos for lot in reader.read([span]) for pos in lot.pos[:1]), None)
            if first is not None:
                found[span.topic, span.partition] = first
    return found


def read_share(
    task: FrameTask, spans: Sequence[Span], asked: Mapping[str, AsOf], reader: RecordReader, clock: Clock
) -> Iterator[pa.RecordBatch]:
    """The Arrow batches of one task's ranges, each partition's records in their order."""
    rows = TypedRows(task.columns, task.versions, task.options.retyped) if task.columns is not None else None
    guards = {
        span[:2]: AsOfReading(str(task.versions[-1].table) if task.versions else span.topic, asked[span.topic])
        for span in spans
        if span.topic in asked
    }
    for lots in _gathered(reader.read(spans)):
        batches: list[pa.RecordBatch] = []
        for lot in lots:
            guard = guards.get((lot.topic, lot.partition))
            for part in (lot,) if guard is None else _parts(lot, guard.kept(lot)):
                batches += [raw_batch(part)] if rows is None else rows.batches(part)
        if batches:
            yield from pa.Table.from_batches(batches).combine_chunks().to_batches()
    now_ms = clock.now_ns() // _MS
    for guard in guards.values():
        guard.require_sound(now_ms)


def _gathered(lots: Iterator[RecordColumns]) -> Iterator[list[RecordColumns]]:
    gathered: list[RecordColumns] = []
    rows = size = 0
    for lot in lots:
        gathered.append(lot)
        rows += len(lot.offsets)
        size += sum(lot.sizes)
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield gathered
            gathered, rows, size = [], 0, 0
    if gathered:
        yield gathered


def _parts(lot: RecordColumns, numbers: Sequence[int]) -> Iterator[RecordColumns]:
    """The records of these numbers, by stretches without a gap."""
    for _, run in groupby(enumerate(numbers), key=lambda one: one[1] - one[0]):
        places = [number for _, number in run]
        yield lot.part(places[0], places[-1] + 1)


class StreamOffsets(NamedTuple):
    """A stream's place as Spark's checkpoint keeps it: offsets, and of which topics of which pipeline they speak."""

    pipeline: str
    ids: Mapping[str, str]
    offsets: Offsets

    def document(self) -> dict[str, Any]:
        """The document for the checkpoint. The same place gives the same text."""
        return {
            "headrace": 1,
            "pipeline": self.pipeline,
            "topics": {
                topic: {"id": self.ids[topic], "offsets": {str(p): o for p, o in sorted(parts.items())}}
                for topic, parts in sorted(self.offsets.items())
            },
        }

    def read(self, document: Mapping[str, Any]) -> Offsets:
        """The offsets of a checkpoint's place. ConfigError where it is another pipeline's or table's, TopicError where
        a topic was made anew since."""
        fresh = "give this query a checkpointLocation of its own; starting_offsets says where it begins"
        if document.get("headrace") != 1 or "topics" not in document:
            raise ConfigError("the checkpoint is none of headrace", hint=fresh)
        topics: Mapping[str, Any] = document["topics"]
        if document["pipeline"] != self.pipeline or set(topics) != set(self.ids):
            other = f"{', '.join(sorted(topics)[:3])} of the pipeline {document['pipeline']}"
            raise ConfigError(
                f"the checkpoint is of {other}, and this query reads {', '.join(sorted(self.ids)[:3])} of the pipeline "
                f"{self.pipeline}",
                hint=fresh,
            )
        for topic, facts in topics.items():
            if facts["id"] != self.ids[topic]:
                raise TopicError(f"the topic {topic} was made anew since the checkpoint was written", hint=fresh)
        return {topic: {int(p): o for p, o in facts["offsets"].items()} for topic, facts in topics.items()}


def require_forward(starts: Offsets, ends: Offsets, start: StreamOffsets, *, limited: bool) -> None:
    """ConfigError where a batch ends before it begins: ``limited`` in size, it was planned from ``starting_offsets`` by
    a Spark that had not given the checkpoint's place. TopicError where the topics are shorter than it says."""
    back = [t for t, parts in starts.items() for p, offset in parts.items() if ends.get(t, {}).get(p, offset) < offset]
    if back and limited:
        text = orjson.dumps({t: {str(p): o for p, o in some.items()} for t, some in start.offsets.items()}).decode()
        raise ConfigError(
            "the checkpoint is ahead of starting_offsets; with max_offsets_per_trigger each start needs a fresh one",
            hint=f"a fresh checkpointLocation with .option('starting_offsets', '{text}') goes on where this one is",
        )
    if back:
        raise TopicError(
            f"the topic {back[0]} ends before the place that the checkpoint has reached",
            hint="it was cut or restored from a backup; begin with a fresh checkpoint",
        )


def require_growth(known: Offsets, ends: Offsets) -> None:
    """TopicError where a topic ends before a place that was reached: it was made anew or cut while it was read."""
    for topic, parts in known.items():
        for partition, offset in parts.items():
            if ends.get(topic, {}).get(partition, 0) < offset:
                raise TopicError(
                    f"the topic {topic} ends before offset {offset} of partition {partition}, which was read already",
                    hint="it was made anew or cut; begin with a fresh checkpoint",
                )


# The offsets that a read takes, and the task that reads each: pure.
#
# A Kafka partition is read by one task from its first offset to its last, so a task sees the changes of a key in their
# order. Small partitions share a task: a task costs more than the reading of a few records.

Places = dict[str, dict[int, int]]


def spans_of(starts: Offsets, ends: Offsets) -> list[Span]:
    """The ranges that may hold a record, by topic and partition. A partition that ``starts`` lacks is read whole."""
    found = []
    for topic in sorted(ends):
        begun = starts.get(topic, {})
        for partition, end in sorted(ends[topic].items()):
            span = Span(topic, partition, begun.get(partition, BEGINNING), end)
            if span.most_records:
                found.append(span)
    return found


def packed(spans: Sequence[Span], slots: int) -> list[tuple[Span, ...]]:
    """Ranges in at most ``slots`` tasks of about the same size, the largest first. No range is split, none is empty."""
    tasks: list[list[Span]] = [[] for _ in range(min(max(1, slots), len(spans)))]
    loads = [(0, 0, number) for number in range(len(tasks))]
    for span in sorted(spans, key=lambda one: (-one.most_records, one)):
        records, count, number = heapq.heappop(loads)
        tasks[number].append(span)
        heapq.heappush(loads, (records + span.most_records, count + 1, number))
    return [tuple(sorted(task)) for task in tasks if task]


def trimmed(starts: Offsets, ends: Offsets, most: int) -> Places:
    """Where a batch of at most ``most`` records ends (0: no limit), each partition by its share of what is left.

    Never below where the partition starts, nor above its end.
    """
    spans = spans_of(starts, ends)
    total = sum(span.most_records for span in spans)
    found = {topic: dict(parts) for topic, parts in ends.items()}
    for topic, parts in found.items():
        for partition, end in parts.items():
            parts[partition] = max(end, starts.get(topic, {}).get(partition, BEGINNING))
    if not most or total <= most:
        return found
    left = most
    for span in spans:
        taken = span.most_records * most // total
        left -= taken
        found[span.topic][span.partition] = max(0, span.start) + taken
    for span in spans:
        if not left:
            break
        at = found[span.topic][span.partition]
        more = min(left, 1, span.end - at)
        found[span.topic][span.partition] = at + more
        left -= more
    return found
