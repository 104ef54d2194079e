"""Hears from Spark how its queries do, for ``/metrics``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from cdc.figures.http_server import FigurePage
from cdc.process.clock import Clock

log = logging.getLogger(__name__)


class QueryListener:
    """Called by the JVM, on its own thread. An error here is said in Spark's log, and stops nothing."""

    def __init__(self, queries: AllQueries, clock: Clock) -> None:
        self._queries = queries
        self._clock = clock
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:
        """A run began. An idle one is named by its number alone."""
        self._names[event.runId().toString()] = event.name()

    def onQueryProgress(self, event: Any) -> None:
        """A trigger ended."""
        said = orjson.loads(event.progress().json())
        self._queries.of(said.get("name") or "").progress(said, self._clock.monotonic())

    def onQueryIdle(self, event: Any) -> None:
        """A run has nothing to read."""
        name = self._names.get(event.runId().toString())
        if name is not None:
            self._queries.of(name).idle(self._clock.monotonic())

    def onQueryTerminated(self, event: Any) -> None:
        """A run ended."""
        self._names.pop(event.runId().toString(), None)

    class Java:
        """For py4j: the interface that the JVM sees."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


@contextmanager
def listening(session: SparkSession, queries: AllQueries, clock: Clock) -> Iterator[None]:
    """Hear of every query of the session until left."""
    gateway: Any = session.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    streams: Any = session.streams
    wrapped = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(
        QueryListener(queries, clock)
    )
    streams._jsqm.addListener(wrapped)
    try:
        yield
    finally:
        # A JVM that has ended hears nothing either.
        with suppress(Py4JError, OSError):
            streams._jsqm.removeListener(wrapped)


# How each query does, by what Spark says of it. Pure.
#
# Spark says what each trigger planned: `StreamingQueryProgress`, as JSON (the manual of Structured Streaming,
# "Reporting Metrics programmatically"). The stores' own lag is worked out from the log and the stores alone
# (:mod:`spark.figures.sink_metrics`), whatever Spark says.

SILENCE_S = 30.0
"""What was said longer ago is not known any more. Of a query that has nothing to do Spark speaks every 10 s."""


@dataclass
class QueryFigures:
    """One query, over its runs. ``batches``: since the application's start. ``behind``: offsets of the log
    that no batch of its had when the last one was planned. None where it was not said. ``told_s``: of
    the monotonic clock, when Spark spoke of it last. None before."""

    batches: int = 0
    behind: int | None = None
    told_s: float | None = None

    def progress(self, said: Mapping[str, Any], now_s: float) -> None:
        """A trigger ended. ``said``: Spark's progress of it."""
        self.told_s = now_s
        self.batches += 1
        self.behind = offsets_behind(said.get("sources") or ())

    def idle(self, now_s: float) -> None:
        """It had nothing to read."""
        self.told_s = now_s
        self.behind = 0

    def known(self, now_s: float) -> bool:
        """Whether Spark spoke of it within the last 30 s."""
        return self.told_s is not None and now_s - self.told_s <= SILENCE_S


@dataclass
class AllQueries:
    """The queries of one application, by the names of their stores."""

    by_name: dict[str, QueryFigures] = field(default_factory=dict)

    def of(self, run: str) -> QueryFigures:
        """The figures of a query, by a run's name (:func:`run_name`)."""
        return self.by_name.setdefault(run.rpartition("-")[0], QueryFigures())

    def show(self, page: FigurePage, now_s: float) -> None:
        """Set what is known now."""
        for query, figures in sorted(dict(self.by_name).items()):
            page.set("cdc_query_batches_total", figures.batches, query=query)
            page.known("cdc_query_known", figures.known(now_s), query=query)
            page.set("cdc_query_offsets_behind", figures.behind, query=query)


def run_name(query: str, number: int) -> str:
    """The name of a query's run in Spark: its jobs, its progress and its UI say so.

    >>> run_name("search", 2)
    'search-2'
    """
    return f"{query}-{number}"


def offsets_behind(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Offsets between a trigger's end and that of its topics. None where a source does not say both.

    >>> offsets_behind([{"endOffset": {"t": {"0": 5, "1": 7}}, "latestOffset": {"t": {"0": 9, "1": 7}}}])
    4
    """
    behind = 0
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is None or latest is None:
            return None
        for topic, parts in latest.items():
            behind += sum(max(0, last - end.get(topic, {}).get(number, last)) for number, last in parts.items())
    return behind


def _offsets(said: object) -> Mapping[str, Mapping[str, int]] | None:
    found = orjson.loads(said) if isinstance(said, str | bytes) and said else said
    return found if isinstance(found, dict) and all(isinstance(parts, dict) for parts in found.values()) else None
