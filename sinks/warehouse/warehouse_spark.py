"""Statements of a warehouse that Spark carries out: in a session of their own beside that of the application.

A store is written from the driver. Its rows go to the executors as a frame, and what is done with them there is one
statement. Nothing of the application's own session changes by it: settings and views are the new session's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cdc.errors import ConfigError
from sinks.kinds import SparkParts
from sinks.port import StoreAway
from sinks.store_retry import brief

_numbers = itertools.count()

_FEW_TASKS = {
    # A batch is small. 200 tasks of a shuffle, Spark's default, take 45 s for it on two cores.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}


class SparkFailed(Exception):
    """A statement that Spark did not carry out. Its text is Spark's own."""


def running_session() -> SparkSession | None:
    """The Spark session of this process. None where there is none."""
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    return SparkSession.builder.getOrCreate()


class WarehouseSpark:
    """Spark for one store. Opened at the first statement.

    ``parts``: without which Spark does not know the tables' format. ``settings``: of the session, beside those that
    every warehouse has.
    """

    def __init__(self, parts: SparkParts, settings: Mapping[str, str]) -> None:
        self._parts = parts
        self._settings = settings
        self._session: SparkSession | None = None

    def sql(self, statement: str, settings: Mapping[str, str] | None = None) -> list[Row]:
        """What a statement answers. SparkFailed when it fails, StoreAway when Spark itself is gone. ``settings``: for
        this statement alone."""

        def carry_out() -> list[Row]:
            session = self._opened()
            if settings:
                session = session.newSession()
                for name, value in {**self._all(session), **settings}.items():
                    session.conf.set(name, value)
            return session.sql(statement).collect()

        return _asked(carry_out)

    def with_rows(self, rows: pa.Table, statement: Callable[[str], str]) -> list[Row]:
        """The same with some rows as a view. ``statement``: the text, by the view's name."""
        view = f"cdc_rows_{next(_numbers)}"

        def carry_out() -> list[Row]:
            session = self._opened()
            kinds = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
            session.createDataFrame(rows, kinds).createTempView(view)
            try:
                return session.sql(statement(view)).collect()
            finally:
                session.catalog.dropTempView(view)

        return _asked(carry_out)

    def _opened(self) -> SparkSession:
        running = running_session()
        if running is None:
            raise ConfigError(
                f"a {self._parts.product} warehouse that Spark writes needs a Spark application, and none runs here",
                hint="cdc sink is one",
            )
        if self._session is None or self._session.sparkContext is not running.sparkContext:
            self._session = self._begun(running)
        return self._session

    def _begun(self, running: SparkSession) -> SparkSession:
        parts = self._parts
        if not _has_class(running, parts.extension):
            raise ConfigError(
                f"this Spark has no {parts.product}: the jar {parts.coordinate} is missing",
                hint=f"spark-submit --packages {parts.coordinate}",
            )
        known = running.sparkContext.getConf().get("spark.sql.extensions") or ""
        if parts.extension not in known:
            raise ConfigError(
                f"this Spark was started without {parts.product}: spark.sql.extensions lacks {parts.extension}",
                hint=f"--conf spark.sql.extensions={','.join(filter(None, (known, parts.extension)))}",
            )
        made = running.newSession()
        for name, value in self._all(running).items():
            made.conf.set(name, value)
        return made

    def _all(self, session: SparkSession) -> dict[str, str]:
        shuffles = max(2, session.sparkContext.defaultParallelism)
        return {**_FEW_TASKS, "spark.sql.shuffle.partitions": str(shuffles), **self._settings}


def _has_class(session: SparkSession, name: str) -> bool:
    jvm: Any = session._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def _asked(carry_out: Callable[[], list[Row]]) -> list[Row]:
    try:
        return carry_out()
    except (PySparkException, Py4JJavaError) as error:
        raise SparkFailed(str(error)) from None
    except (Py4JError, ConnectionError, EOFError) as error:
        raise StoreAway(
            f"Spark does not answer: {brief(str(error))}", hint="see spark.log beside the checkpoints"
        ) from None


def quoted_name(name: str) -> str:
    """A name in Spark's SQL.

    >>> quoted_name("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"
