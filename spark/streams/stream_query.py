"""One stream as a query of Spark's: its result, and the events that it sets apart, in one transaction a batch."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import CdcError, ConfigError, PoisonError
from cdc.wire.format import POS
from spark.session.failures import read_failure
from spark.streams.ports import BatchNote, StreamOutput, stands_already
from spark.streams.stream_rows import ResultRecords, late_records, written
from spark.streams.stream_text import StreamSpec, analysed
from spark.streams.typed_events import Events, counted, judged, set_apart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
declare("stream_computed", "stream_published")
_UNFIT = "SQLSTATE: 22"
"""The class of SQL's data exceptions."""
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
"""Spark's name for what is wrong."""
_WHERE = re.compile(r"line (\d+), position (\d+)")
_APART = ("key", "value", "reason", "topic", "partition", "offset", POS, "at_us")


@dataclass(frozen=True, kw_only=True)
class StreamParts:
    """What a stream runs with. ``options``: of ``format("headrace")``. ``late``: the topic of what is set apart, its
    number of partitions, and the most bytes of a record. ``checkpoint``: the query's folder. ``endings``: topic ->
    where it ends, for a replay. ``every``: how often a batch begins."""

    spec: StreamSpec
    options: Mapping[str, str]
    output: StreamOutput
    records: ResultRecords
    late: tuple[str, int, int]
    checkpoint: str
    clock: Clock
    log_file: str
    endings: Mapping[str, str] = field(default_factory=dict)
    every: str = "1 second"


class RunningStream:
    """A stream while its query runs. ``swept``: whether rows of generations before are to be let go."""

    def __init__(self, session: SparkSession, parts: StreamParts, *, swept: bool) -> None:
        self._session = session
        self._parts = parts
        self._swept = swept
        self._raised: Exception | None = None
        self.last = parts.output.last()
        frames = [(judged(self._source(one), one), one) for one in parts.spec.events]
        result = analysed(session, parts.spec, {one.name: counted(frame, one) for frame, one in frames})
        both = written(result, parts.spec.key).select(
            *(F.lit(None).cast(kind).alias(name) for name, kind in _apart_types()), F.col("key").alias("row_key"), "row"
        )
        for frame, one in frames:
            apart = set_apart(frame, one)
            both = both.unionByName(apart.select("*", _no_text("row_key"), _no_text("row")))
        writer = both.writeStream.outputMode(parts.spec.mode).foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", parts.checkpoint).trigger(processingTime=parts.every)
        self._query: StreamingQuery = writer.queryName(f"stream.{parts.spec.name}").start()

    def _source(self, given: Events) -> DataFrame:
        options = {**self._parts.options, "events": given.topic}
        if given.topic in self._parts.endings:
            options["ending_offsets"] = self._parts.endings[given.topic]
        return self._session.readStream.format("headrace").options(**options).load()

    @property
    def active(self) -> bool:
        """Whether Spark still runs it."""
        return self._query.isActive

    def failure(self) -> CdcError | None:
        """Why it ended. None where it was stopped."""
        if isinstance(self._raised, CdcError):
            return self._raised
        name = self._parts.spec.name
        ended: Exception | None
        try:
            ended = self._query.exception()
        except PySparkException as failure:
            ended = failure
        if ended is None and self._raised is None:
            return None
        said = str(ended or self._raised)
        words, unfit, _ = said.partition(_UNFIT)
        if unfit:
            # Without Spark's words, which show the value.
            conditions = _CONDITION.findall(words)
            what = conditions[-1] if conditions else unfit
            where = _WHERE.search(said)
            place = f" in line {where[1]}, position {where[2]}" if where is not None else ""
            return ConfigError(
                f"the text of the stream {name} cannot take a value of an event{place}: Spark says {what}",
                hint=f"try_cast, try_add and try_divide give null there; then cdc stream rebuild {name}",
            )
        return read_failure(f"stream.{name}", said, self._parts.log_file)

    def settle(self) -> None:
        """Return when all that its topics hold is computed, and the windows that can be are closed. Raises what ended
        it."""
        try:
            self._query.processAllAvailable()
        except PySparkException:
            failure = self.failure()
            if failure is None:
                raise
            raise failure from None

    def stop(self) -> None:
        """End it between batches."""
        self._query.stop()

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        try:
            self._take(frame, batch)
        except Exception as failure:
            self._raised = failure
            raise

    def _take(self, frame: DataFrame, batch: int) -> None:
        """Compute a batch, and publish it unless it stands in the topic. The state moves on by the computing, so that
        is done in any case."""
        parts = self._parts
        found = frame.toArrow().to_pylist()
        crash_point("stream_computed")
        execution = execution_of(self._session, f"stream.{parts.spec.name}")
        plan = execution.lastExecution().executedPlan()
        if dropped := summed(plan, "numRowsDroppedByWatermark"):
            raise PoisonError(
                f"Spark left {dropped} events of batch {batch} of the stream {parts.spec.name} out as too late",
                hint="no event may be counted by none: the text moves its times; use the event's own time in windows",
            )
        cuts = _cuts(execution, batch)
        if stands_already(self.last, batch, cuts, parts.spec.name):
            return
        at_us, now_ns = min((_at_us(cut) for cut in cuts), default=0), parts.clock.now_ns()
        rows = [(one["row_key"], one["row"]) for one in found if one["row"] is not None]
        apart = [one for one in found if one["row"] is None]
        records = parts.records.rows(batch, rows, at_us, now_ns)
        if batch == 1 and self._swept:
            records += parts.records.sweep(batch, at_us, now_ns)
        records += late_records(*parts.late, apart, parts.records.generation)
        late = Counter(self.last.late if self.last is not None else {})
        late.update(one["reason"] for one in apart)
        note = BatchNote(
            batch=batch,
            cuts=cuts,
            watermark_ms=int(execution.lastExecution().offsetSeqMetadata().batchWatermarkMs()),
            at_us=at_us,
            rows=len(rows),
            late=dict(sorted(late.items())),
            state_rows=summed(plan, "numTotalStateRows"),
            state_partitions=summed(plan, "numStateStoreInstances"),
        )
        parts.output.put(records, note)
        self.last = note
        crash_point("stream_published")
        log.info(
            "stream_batch",
            extra={"stream": parts.spec.name, "batch": batch, "rows": len(rows), "set_apart": len(apart)},
        )


def raw_events(session: SparkSession, options: Mapping[str, str], topic: str, ending: str) -> DataFrame:
    """The records of a topic as a batch that ends at offsets."""
    reader = session.read.format("headrace").options(**options).option("events", topic)
    return reader.option("ending_offsets", ending).load()


def _no_text(name: str) -> Column:
    return F.lit(None).cast("string").alias(name)


def _apart_types() -> list[tuple[str, str]]:
    kinds = {"key": "binary", "value": "binary", "partition": "int", "offset": "bigint", "at_us": "bigint"}
    return [(name, kinds.get(name, "string")) for name in _APART]


def execution_of(session: SparkSession, name: str) -> Any:
    """Spark's own execution of a running query."""
    active = session._jsparkSession.streams().active()
    (found,) = [one for one in active if one.name() == name]
    return found.streamingQuery() if hasattr(found, "streamingQuery") else found


def _cuts(execution: Any, batch: int) -> list[str]:
    """Where a batch ends, of each source, as the checkpoint has it."""
    offsets = execution.offsetLog().get(batch).get().offsets()
    found = [offsets.apply(number) for number in range(offsets.size())]
    return [one.get().json() if one.isDefined() else "" for one in found]


def _at_us(cut: str) -> int:
    document = orjson.loads(cut) if cut else {}
    return int(document.get("at_us", 0))


def summed(plan: Any, metric: str) -> int:
    """The sum of a metric over the operators of a plan that has run."""
    metrics, children = plan.metrics(), plan.children()
    own = int(metrics.apply(metric).value()) if metrics.contains(metric) else 0
    return own + sum(summed(children.apply(number), metric) for number in range(children.size()))
