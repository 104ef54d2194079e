"""Headrace for PySpark users: Spark finds this package by its name, and with it the format ``headrace``.

``spark.read.format("headrace")`` works where Headrace is installed before the session starts. :func:`register` says so
to a session that is there already. The chapter "Changes as a DataFrame" (spark/FRAMES.md) is the manual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark.frames.data_source import HeadraceSource, current_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.frames.ports import Connect

__all__ = ["DefaultSource", "current_rows", "register", "slots"]


class DefaultSource(HeadraceSource):
    """The data source. Spark registers it by itself under this class's name."""

    @property
    def connect(self) -> Connect:  # type: ignore[override]
        """Kafka. Imported where the log is asked, because executors have no need of it."""
        from connectors.spark_log.frame_log import KafkaConnect  # noqa: PLC0415

        return KafkaConnect()


def register(session: SparkSession) -> None:
    """Make the format ``headrace`` known to a session. Safe to repeat."""
    session.dataSource.register(DefaultSource)


def slots(session: SparkSession) -> str:
    """How many tasks the session's cluster runs at once now, for ``.option("slots", slots(session))``."""
    return str(session.sparkContext.defaultParallelism)
