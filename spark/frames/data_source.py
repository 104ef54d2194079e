"""PySpark's side: the data source ``headrace``, for batches and for streams.

Spark makes these objects in short-lived Python workers beside the driver, sends the reader to the executors pickled,
and asks it there for Arrow batches. So nothing here is open between two calls, but in a stream's own long-lived worker.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.progress import Offsets
from cdc.wire.records import BEGINNING, Span
from spark.frames.as_of import AsOf
from spark.frames.event_cuts import SCHEMA
from spark.frames.event_source import EventReader, EventStreamReader
from spark.frames.frame import (
    FrameTask,
    StreamOffsets,
    arrow_schema,
    as_of_plan,
    columns_of,
    ends_of,
    packed,
    read_share,
    require_forward,
    require_growth,
    spans_of,
    starts_of,
    task_of,
    trimmed,
)
from spark.frames.options import FrameOptions, read_options, refuse_secrets
from spark.frames.pickled_source import PickledByValue, kept_reader, telling
from spark.frames.ports import Connect, FrameLog

NAME = "headrace"
_LOOK_S = 0.1
"""How often a stream asks the brokers where the topics end, at most."""


class FrameShare(InputPartition):
    """The share of the log that one task reads."""

    def __init__(self, spans: tuple[Span, ...], asked: Mapping[str, AsOf]) -> None:
        self.spans = spans
        self.asked = dict(asked)


class HeadraceSource(PickledByValue, DataSource):
    """``spark.read.format("headrace")`` and ``spark.readStream.format("headrace")``. ``connect`` opens the log."""

    connect: Connect

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The newest version's columns and ours, or the envelope's. FrameError in one sentence."""
        with telling():
            options = read_given(self.options, self.connect)
            if options.events:
                return spark_schema(SCHEMA)
            return spark_schema(arrow_schema(columns_of(options, self.connect.log(options))))

    def reader(self, schema: StructType) -> FrameReader | EventReader:
        """The reader of a batch. FrameError in one sentence."""
        with telling():
            options = read_given(self.options, self.connect)
            if options.events:
                return EventReader(options, self.connect)
            return FrameReader(self._task(schema, options), options, self.connect)

    def streamReader(self, schema: StructType) -> FrameStreamReader | EventStreamReader:
        """The reader of a stream. FrameError in one sentence."""
        with telling():
            options = read_given(self.options, self.connect, streaming=True)
            if options.events:
                return EventStreamReader(options, self.connect)
            return FrameStreamReader(self._task(schema, options), options, self.connect)

    def _task(self, schema: StructType, options: FrameOptions) -> FrameTask:
        log = self.connect.log(options)
        return task_of(options, log, self.connect.reading(options), lambda own: _alike(spark_schema(own), schema))


def read_given(given: Mapping[str, str], connect: Connect, *, streaming: bool = False) -> FrameOptions:
    """The options, over those of the settings file that ``config`` names."""
    own = {name.lower(): value for name, value in given.items()}
    refuse_secrets(own)
    return read_options({**(connect.settings(own["config"]) if "config" in own else {}), **own}, streaming=streaming)


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema in Spark's words. A timestamp without a zone is TIMESTAMP_NTZ."""
    found: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return found


def _alike(own: StructType, given: StructType) -> bool:
    return [(f.name, f.dataType.simpleString()) for f in own] == [(f.name, f.dataType.simpleString()) for f in given]


class _Tasks(PickledByValue):
    """The executors' side of both readers."""

    def __init__(self, task: FrameTask, options: FrameOptions, connect: Connect) -> None:
        self._task = task
        self._options = options
        self.live_connect = connect

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a share."""
        assert isinstance(partition, FrameShare)
        with telling():
            yield from read_share(
                self._task, partition.spans, partition.asked, kept_reader(self._task.reading), SYSTEM_CLOCK
            )

    def _shares(self, starts: Offsets, ends: Offsets, asked: Mapping[str, AsOf]) -> list[FrameShare]:
        slots = self._options.slots or os.cpu_count() or 1
        return [FrameShare(spans, asked) for spans in packed(spans_of(starts, ends), slots)]


_NOTHING = [FrameShare((), {})]
"""Spark has a source without partitions read once with none, so a share of nothing stands for it."""


class FrameReader(_Tasks, DataSourceReader):
    """One batch."""

    def partitions(self) -> list[FrameShare]:
        """The tasks: non-empty ranges, packed into about as many tasks as run at once."""
        with telling():
            log = self.live_connect.log(self._options)
            found = log.find(self._options.tables)
            if self._options.as_of is not None:
                ends, asked = as_of_plan(self._options, found, log, self._task.reading, SYSTEM_CLOCK)
                return self._shares({}, ends, asked) or _NOTHING
            ends = log.ends(found.partitions)
            return self._shares(starts_of(self._options, ends), ends_of(self._options, ends), {}) or _NOTHING


class FrameStreamReader(_Tasks, DataSourceStreamReader):
    """A stream. PySpark 4.1 asks for the latest offset without saying from where, so the reader keeps its offsets."""

    def __init__(self, task: FrameTask, options: FrameOptions, connect: Connect) -> None:
        super().__init__(task, options, connect)
        self.live_log: FrameLog | None = None
        self.live_place: StreamOffsets | None = None
        self.live_reached: Offsets | None = None
        self.live_starts: Offsets | None = None
        self.live_partitions: Mapping[str, int] = {}
        self.live_ends: tuple[float, Offsets] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a fresh checkpoint begins: at ``starting_offsets``."""
        with telling():
            return self._place()._replace(offsets=self._starts()).document()

    def latestOffset(self) -> dict[str, Any]:
        """Where the next batch ends: at the topics' ends, or ``max_offsets_per_trigger`` records further."""
        with telling():
            place, ends = self._place(), self._ends()
            # Of a fresh checkpoint Spark asks this first, and says only later where the batch begins. Of another one it
            # has given the offsets, by planning a batch of nothing there.
            starts, most = self._starts(), self._options.max_offsets
            reached = self.live_reached if self.live_reached is not None else starts if most else {}
            require_growth(reached, ends)
            return place._replace(offsets=trimmed(reached, ends, most)).document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[FrameShare]:
        """The tasks of a batch."""
        with telling():
            place = self._place()
            starts, ends = place.read(start), place.read(end)
            require_forward(starts, ends, place._replace(offsets=starts), limited=self._options.max_offsets > 0)
            self.live_reached = ends
            return self._shares(starts, ends, {})

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint keeps the offsets: nothing to do."""

    def _place(self) -> StreamOffsets:
        if self.live_place is None:
            self.live_log = self.live_connect.log(self._options)
            found = self.live_log.find(self._options.tables)
            self.live_partitions = found.partitions
            ids = {one.topic: one.id for one in found.topics.values()}
            self.live_place = StreamOffsets(self._options.pipeline, ids, {})
        return self.live_place

    def _starts(self) -> Offsets:
        """Where a fresh checkpoint begins, each partition named. Found once: ``latest`` would move."""
        if self.live_starts is None:
            ends = self._ends()
            given = starts_of(self._options, ends)
            self.live_starts = {t: {p: given.get(t, {}).get(p, BEGINNING) for p in some} for t, some in ends.items()}
        return self.live_starts

    def _ends(self) -> Offsets:
        """As of a moment ago. Once the offsets are known."""
        now_s = SYSTEM_CLOCK.monotonic()
        if self.live_ends is None or now_s - self.live_ends[0] >= _LOOK_S:
            assert self.live_log is not None
            self.live_ends = now_s, self.live_log.ends(self.live_partitions)
        return self.live_ends[1]


def current_rows(changes: DataFrame) -> DataFrame:
    """The rows of the table behind a batch of typed changes, one per ``_key``, without those that were deleted.

    A typed frame of one table from its beginning on, whole or ``as_of`` an LSN. The newest change of each key counts,
    and what a TRUNCATE or a reading of the whole table left behind is gone. Spark does the work, and spills where the
    table is larger than its memory. The columns are those of the changes.
    """
    newest = changes.groupBy("_partition", "_key").agg(
        F.max_by(F.struct("*"), F.struct("_pos", "_offset")).alias("row"), F.max("_floor").alias("floor")
    )
    floor = F.max("floor").over(Window.partitionBy("_partition"))
    live = newest.withColumn("below", F.coalesce(floor > F.col("row._pos"), F.lit(False)))
    return live.where("row._op in ('c', 'u', 'r') and not below").select("row.*")
