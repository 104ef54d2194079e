"""Statements of a warehouse that Spark carries out: in a session of their own beside that of the application.

A store is written from the driver. Its rows go to the executors as a frame, and what is done with them there is one
statement. Nothing of the application's own session changes by it: settings and views are the new session's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from itertools import pairwise, takewhile
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cdc.process.errors import ConfigError
from sinks.contract.kinds import SparkParts
from sinks.contract.port import StoreAway
from sinks.contract.store_connection import brief
from sinks.contract.table_places import PLACE, PlaceStep

_numbers = itertools.count()

FEW_BYTES = 8 * 1024**2
"""Up to this size the rows of a batch go whole to each task that joins them."""
_SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # By default ${env:HOME} within a text is the variable's value, and a row's key would be another one.
    "spark.sql.variable.substitute": "false",
    # By default an older type, which readers without Spark take for nanoseconds: of a time before 1677 or after 2262
    # they have another one.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_TASKS = (
    # 200 by default, which take 45 s for a small batch on two cores.
    "spark.sql.shuffle.partitions",
    # 10,000 by default, to list the files of a table.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism",
)
"""Settings that are a number of tasks: as many as run at once."""
_OF_SMALL = {
    # Each stage would be a job of its own: 15 for a merge, and 9 without.
    "spark.sql.adaptive.enabled": "false",
    # To compile the code for a few rows takes more than they do: a quarter of a merge's CPU.
    "spark.sql.codegen.wholeStage": "false",
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
    every warehouse has. ``of_small``: more of them for statements on small batches.
    """

    def __init__(
        self, parts: SparkParts, settings: Mapping[str, str], of_small: Mapping[str, str] | None = None
    ) -> None:
        self._parts = parts
        self._settings = settings
        self._of_small = {**_OF_SMALL, **(of_small or {})}
        self._sessions: dict[tuple[tuple[str, str], ...], SparkSession] = {}

    def sql(self, statement: str, settings: Mapping[str, str] | None = None) -> list[Row]:
        """The answer of a statement. SparkFailed when it fails, StoreAway when Spark itself is gone. ``settings``: for
        this statement alone."""

        return _asked(lambda: self._opened(settings or {}).sql(statement).collect())

    def with_rows(self, rows: pa.Table, statement: Callable[[str], str], *, beside_few: bool) -> list[Row]:
        """The same with some rows as a relation. ``statement``: the text, by that of the relation. ``beside_few``:
        whether what they are joined with is small, too."""
        view = f"cdc_rows_{next(_numbers)}"
        few = rows.nbytes <= FEW_BYTES
        # Spark does not know how many rows come from the driver, and would send the table through a shuffle for them.
        relation = f"(select /*+ broadcast({view}) */ * from {view})" if few else view

        def carry_out() -> list[Row]:
            session = self._opened(self._of_small if few and beside_few else {})
            kinds = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
            session.createDataFrame(rows, kinds).createTempView(view)
            try:
                return session.sql(statement(relation)).collect()
            finally:
                session.catalog.dropTempView(view)

        return _asked(carry_out)

    def _opened(self, settings: Mapping[str, str]) -> SparkSession:
        """A session of these settings beside the store's own. It is kept: a new one takes a tenth of a second."""
        running = running_session()
        if running is None:
            raise ConfigError(
                f"a {self._parts.product} warehouse that Spark writes needs a Spark application, and none runs here",
                hint="cdc sink is one",
            )
        name = tuple(sorted(settings.items()))
        session = self._sessions.get(name)
        if session is None or session.sparkContext is not running.sparkContext:
            session = self._sessions[name] = self._begun(running, settings)
        return session

    def _begun(self, running: SparkSession, settings: Mapping[str, str]) -> SparkSession:
        parts = self._parts
        if not has_class(running._jvm, parts.extension):
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
        tasks = str(max(2, running.sparkContext.defaultParallelism))
        for name, value in {**_SETTINGS, **dict.fromkeys(_TASKS, tasks), **self._settings, **settings}.items():
            made.conf.set(name, value)
        return made


def has_class(jvm: Any, name: str) -> bool:
    """Whether a JVM finds a class, also in a jar that it was given when it ran already."""
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def _asked(carry_out: Callable[[], list[Row]]) -> list[Row]:
    try:
        return carry_out()
    except (PySparkException, Py4JJavaError) as error:
        raise SparkFailed(_words(error)) from None
    except (Py4JError, ConnectionError, EOFError) as error:
        raise StoreAway(
            f"Spark does not answer: {brief(str(error))}", hint="see spark.log beside the checkpoints"
        ) from None


def _words(error: Exception) -> str:
    """Its text, and a line for each of its causes, which tell more: that a disk is full, and not that a job ended."""
    trace = str(getattr(error, "_stackTrace", None) or "")
    return "\n".join((str(error), *(line for line in trace.splitlines() if line.startswith("Caused by: "))))


def quoted_name(name: str) -> str:
    """A name in Spark's SQL.

    >>> quoted_name("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def quote_spark(text: str) -> str:
    r"""A text in Spark's SQL, where a backslash escapes.

    >>> print(quote_spark("it's"))
    'it\'s'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def within_ranges(column: str, keys: Iterable[str]) -> str:
    """The condition that a column lies in the ranges of some keys: true of each row that has one of them."""
    named = set(keys)
    ranges = [*key_ranges(named - {PLACE}), *((one, one) for one in named & {PLACE})]
    return " or ".join(f"{column} between {quote_spark(low)} and {quote_spark(high)}" for low, high in ranges)


def only_onto(step: PlaceStep | None, key: str, exact: str) -> str:
    """The condition more under which a merge replaces a row: a place only where it is the one that it steps on from. By
    then somebody may have put another state of the table in its place. ``key``: of the row that comes, ``exact``: the
    column of the one that is there."""
    if step is None:
        return ""
    fit = ", ".join(quote_spark(text.decode()) for text in step.fit)
    return f" and ({key} <> '{PLACE}' or {exact}['{PLACE}'] in ({fit}))"


_DIGITS = 8
MOST = 32
"""Ranges of one statement: each is looked at for each file."""


def key_ranges(keys: Iterable[str], most: int = MOST) -> list[tuple[str, str]]:
    """Ranges, first and last key each, that hold all these keys. Between two of them are the widest gaps, measured by
    the first eight bytes behind what all keys begin with.

    Keys are in the order of their bytes, as files' statistics are. A key that nobody has said is in no gap, so a row
    of one of these keys is in a range, whoever wrote it.

    >>> key_ranges(["17", "9004", "9001", "9002"], most=2)
    [('17', '17'), ('9001', '9004')]
    """
    ordered = sorted({key.encode() for key in keys})
    if not ordered:
        return []
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ordered[0], ordered[-1], strict=False)))
    places = [int.from_bytes(key[common : common + _DIGITS].ljust(_DIGITS, b"\0")) for key in ordered]
    widths = [(after - before, number) for number, (before, after) in enumerate(pairwise(places), 1)]
    starts = [0, *sorted(number for _, number in nlargest(most - 1, widths)), len(ordered)]
    return [(ordered[start].decode(), ordered[end - 1].decode()) for start, end in pairwise(starts)]
