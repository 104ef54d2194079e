"""One short session that uses what every session uses, so that its JVM can note which classes that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from pyspark.sql import DataFrame, SparkSession

from spark.session.spark_session import SessionSpec, end_session, start_session

_BATCH_S = 120.0
_DUMP_S = 300.0
"""Writing the archive, which the JVM does at its end, takes longer than the session."""


def train(spec: SessionSpec, java_options: Sequence[str]) -> None:
    """Run a batch of a stream through the executors' Python and back, as a sink does. Return when the JVM has ended.

    TimeoutError when it does not get that far. ConfigError when Spark does not start.
    """
    session = start_session(replace(spec, java_options=(*spec.java_options, *java_options)))
    try:
        _batch(session)
    finally:
        end_session(session, _DUMP_S)


def _batch(session: SparkSession) -> None:
    done = Event()

    def take(frame: DataFrame, _number: int) -> None:
        frame.mapInArrow(lambda batches: batches, frame.schema).toArrow()
        done.set()

    with TemporaryDirectory(prefix="headrace-") as folder:
        stream = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(Path(folder) / "checkpoint"))
        query = writer.trigger(processingTime="100 milliseconds").start()
        try:
            if not done.wait(_BATCH_S):
                raise TimeoutError(f"no batch in {_BATCH_S:g} s: {query.exception()}")
        finally:
            query.stop()
