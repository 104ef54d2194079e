"""Hears from Spark how its queries do, for ``/metrics``.

PySpark's own listener builds an object of each event by some fifty calls into the JVM, for each batch of each query:
with small batches that is a tenth of a core. Ours takes the progress as the JSON that Spark has of it, by three calls.
It therefore stands where PySpark's stands, as an implementation of the JVM's ``PythonStreamingQueryListener``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import orjson
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from cdc.clock import Clock
from spark.query_figures import AllQueries

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
