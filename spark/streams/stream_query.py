"""One stream as a query of Spark's: its result, and the events that it sets apart, in one transaction a batch."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.errors import PySparkException

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import CdcError, ConfigError, PoisonError
from cdc.views.known_views import BatchNote
from spark.session.failures import read_failure
from spark.streams.past_join import Pasts, joined_events, refusal_in
from spark.streams.ports import StreamOutput, is_published
from spark.streams.stream_rows import ResultRecords, json_texts, set_apart_records
from spark.streams.stream_text import StreamSpec, analysed
from spark.streams.typed_events import Events, set_apart, with_metric, with_reasons

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
declare("stream_published")
_UNFIT = "SQLSTATE: 22"
"""The class of SQL's data exceptions."""
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
"""Spark's name for what is wrong."""
_WHERE = re.compile(r"line (\d+), position (\d+)")


@dataclass(frozen=True, kw_only=True)
class StreamParts:
    """What a stream runs with. ``options``: of ``format("headrace")``. ``set_apart``: the topic of what is, its
    number of partitions, and the most bytes of a record. ``checkpoint``: the query's folder. ``endings``: topic ->
    where it ends, for a replay. ``every``: how often a batch begins. ``pasts``: what inputs are joined
    with."""

    spec: StreamSpec
    options: Mapping[str, str]
    output: StreamOutput
    records: ResultRecords
    set_apart: tuple[str, int, int]
    checkpoint: str
    clock: Clock
    log_file: str
    endings: Mapping[str, str] = field(default_factory=dict)
    every: str = "1 second"
    pasts: Pasts = field(default_factory=dict)


class RunningStream:
    """A stream while its query runs. ``swept``: whether rows of generations before are to be let go."""

    def __init__(self, session: SparkSession, parts: StreamParts, *, swept: bool) -> None:
        self._session = session
        self._parts = parts
        self._swept = swept
        self._raised: Exception | None = None
        self.last = parts.output.last()
        self.rows = 0
        """How many rows it has published."""
        frames = [(with_reasons(self._source(one), one), one) for one in parts.spec.events]
        events = {one.name: joined_events(with_metric(frame, one), one, parts.pasts) for frame, one in frames}
        result = json_texts(analysed(session, parts.spec, events), parts.spec.key)
        writer = result.writeStream.outputMode(parts.spec.mode).foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", parts.checkpoint).trigger(processingTime=parts.every)
        self._query: StreamingQuery = writer.queryName(f"stream.{parts.spec.name}").start()

    def _source(self, given: Events) -> DataFrame:
        options = {**self._parts.options, "events": given.topic}
        if given.topic in self._parts.endings:
            options["ending_offsets"] = self._parts.endings[given.topic]
        if given.name in self._parts.pasts:
            options["shown_by"] = self._parts.pasts[given.name].waits_for
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
        if refused := refusal_in(name, {one: past.table for one, past in self._parts.pasts.items()}, said):
            return refused
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
        result = frame.toArrow()
        execution = execution_of(self._session, f"stream.{parts.spec.name}")
        plan = execution.lastExecution().executedPlan()
        if dropped := summed(plan, "numRowsDroppedByWatermark"):
            raise PoisonError(
                f"Spark left {dropped} events of batch {batch} of the stream {parts.spec.name} out as too late",
                hint="no event may be counted by none: the text moves its times; use the event's own time in windows",
            )
        cuts = _cuts(execution, batch)
        if is_published(self.last, batch, cuts, parts.spec.name):
            return
        at_us, now_ns = min((_at_us(cut) for cut in cuts), default=0), parts.clock.now_ns()
        rows = list(zip(*(result[name].to_pylist() for name in ("key", "row")), strict=True))
        apart = self._read_apart(execution.lastExecution(), cuts, _cuts(execution, batch - 1) if batch else [])
        records = parts.records.rows(batch, rows, at_us, now_ns)
        if batch == 1 and self._swept:
            records += parts.records.sweep(batch, at_us, now_ns)
        records += set_apart_records(*parts.set_apart, apart, parts.records.generation)
        totals = Counter(self.last.set_apart if self.last is not None else {})
        totals.update(one["reason"] for one in apart)
        note = BatchNote(
            batch=batch,
            cuts=cuts,
            watermark_ms=int(execution.lastExecution().offsetSeqMetadata().batchWatermarkMs()),
            at_us=at_us,
            rows=len(rows),
            set_apart=dict(sorted(totals.items())),
            state_rows=summed(plan, "numTotalStateRows"),
            state_partitions=summed(plan, "numStateStoreInstances"),
        )
        parts.output.put(records, note)
        self.last = note
        self.rows += len(rows)
        crash_point("stream_published")
        log.info(
            "stream_batch",
            extra={"stream": parts.spec.name, "batch": batch, "rows": len(rows), "set_apart": len(apart)},
        )

    def _read_apart(self, execution: Any, cuts: Sequence[str], before: Sequence[str]) -> list[dict[str, Any]]:
        """What a batch sets apart. Most batches have nothing of it, and then it is not read: each record is read once,
        by the text's own plan, which counts what it leaves out."""
        found: list[dict[str, Any]] = []
        metrics = execution.observedMetrics()
        for one in self._parts.spec.events:
            sources = [number for number, cut in enumerate(cuts) if one.topic in _topics(cut)]
            known = len(sources) == 1 and metrics.contains(one.name)
            if not sources or (known and not metrics.apply(one.name).getLong(0)):
                continue
            # Where a text reads a topic twice, each of its readings has cuts of its own: those of the first one count.
            begin = before[sources[0]] if before else ""
            raw = raw_events(self._session, self._parts.options, one.topic, cuts[sources[0]], begin)
            found += set_apart(with_reasons(raw, one), one).toArrow().to_pylist()
        return found


def raw_events(
    session: SparkSession, options: Mapping[str, str], topic: str, ending: str, starting: str = ""
) -> DataFrame:
    """The records of a topic as a batch between two cuts, from the beginning by default."""
    reader = session.read.format("headrace").options(**options).option("events", topic)
    if starting:
        reader = reader.option("starting_offsets", starting)
    return reader.option("ending_offsets", ending).load()


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


def _topics(cut: str) -> list[str]:
    return list(orjson.loads(cut)["topics"]) if cut else []


def _at_us(cut: str) -> int:
    document = orjson.loads(cut) if cut else {}
    return int(document.get("at_us", 0))


def summed(plan: Any, metric: str) -> int:
    """The sum of a metric over the operators of a plan that has run."""
    metrics, children = plan.metrics(), plan.children()
    own = int(metrics.apply(metric).value()) if metrics.contains(metric) else 0
    return own + sum(summed(children.apply(number), metric) for number in range(children.size()))
