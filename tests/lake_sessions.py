"""A Spark session as ``cdc sink`` starts it where Spark itself writes a warehouse: one process has one."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from cdc.jvm.jars import spark_jars
from cdc.jvm.java import java_home
from sinks.contract.stores import with_parts
from sinks.delta import delta_kind
from sinks.iceberg import iceberg_kind
from spark.session.spark_session import SessionSpec, end_session, start_session
from tests.settings_file import SELDOM

PARTS = (delta_kind.SPARK_PARTS, iceberg_kind.SPARK_PARTS)
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Each statement's own classes cost more to compile than a test's rows to run: a quarter of a merge's CPU. Applications
that tests start by the commands compile theirs, as a user's do."""
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""For a bench."""


@contextmanager
def lake_spark(folder: Path, conf: Mapping[str, str] = {}) -> Iterator[SparkSession]:
    """Started and ended."""
    spec = SessionSpec(
        name="tests",
        master="local[2]",
        driver_memory="1g",
        log_folder=folder,
        jars=spark_jars(*(part.jars for part in PARTS)),
        java_home=java_home(),
        conf=with_parts(PARTS, {**SELDOM, **INTERPRETED, **conf}, folder),
    )
    session = start_session(spec)
    try:
        yield session
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            end_session(session)
            gc.collect()


def with_few_tasks(session: SparkSession) -> None:
    """By default a statement shuffles in 200 tasks, lists a table's files in up to 10,000, and reads its log in 50."""
    for name in (
        "spark.sql.shuffle.partitions",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism",
        "spark.databricks.delta.snapshotPartitions",
    ):
        session.conf.set(name, "2")
