"""Events with their columns and their watermark, and those that are set apart: each by a rule of its record alone.

``from_json`` reads the payload in the JVM. The event time is null wherever a reason sets a record apart, and all
filters stand above the watermark and name it: Spark pushes others below, where they read the JSON once more, and keep
the markers from moving the watermark on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampType

from cdc.process.errors import ConfigError
from cdc.wire.format import AT as LOGGED_AT
from cdc.wire.format import POS as LOGGED_POS
from spark.frames.event_cuts import MARKER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

AHEAD_S = 60
"""An event that is later than its commit by this or more is set apart, and Spark waits longer by it."""
EVENT_TIME = "event_time"
"""The column with the time where ``time`` names one within another."""
_JSON, _UNREADABLE, _REASON = "_json", "_unreadable", "_reason"
KEY, POS, AT = "_key", "_pos", "_at"
"""Columns of each event: the record's key, its position and the time of its commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """An input of a stream. ``time``: a column of ``schema``, or one within another by a dot. ``as_of``: the table of
    which the text sees a row beside each event, by the columns ``on``. Empty for none."""

    name: str
    topic: str
    time: str
    late_s: float
    schema: str
    as_of: str = ""
    on: tuple[str, ...] = ()

    @property
    def time_column(self) -> str:
        """The event time's column in the text."""
        return EVENT_TIME if "." in self.time else self.time


def events(
    session: SparkSession, *, topic: str, time: str, schema: str, late_s: float = 600.0, **options: str
) -> DataFrame:
    """The events of a topic as a streaming DataFrame with its watermark, for a job of your own.

    ``options``: of ``format("headrace")``, as ``config="cdc.toml"``. Late and unreadable events are left out, by
    the same rule as in ``cdc stream``. ConfigError for a schema that Spark cannot read.
    """
    given = Events(name=topic, topic=topic, time=time, late_s=late_s, schema=schema)
    raw = session.readStream.format("headrace").options(**options).option("events", topic).load()
    return text_events(with_reasons(raw, given), given)


def schema_of(given: Events) -> StructType:
    """The declared columns. ConfigError where Spark does not read them, or the time is no timestamp among them."""
    try:
        found = cast("StructType", StructType.fromDDL(given.schema))
    except PySparkException as error:
        said = str(error.getMessage() or error).strip().split("\n", 1)[0]
        raise ConfigError(
            f"the schema of the events {given.name} cannot be read: {said}", hint='write it as "at timestamp, n int"'
        ) from None
    taken = [name for name in found.names if name.startswith("_") or name == EVENT_TIME]
    if taken:
        raise ConfigError(
            f"the schema of the events {given.name} has a column {taken[0]}, a name of ours",
            hint=f"columns of yours do not begin with _, and are not called {EVENT_TIME}",
        )
    here: DataType | None = found
    for part in given.time.split("."):
        here = here[part].dataType if isinstance(here, StructType) and part in here.names else None
    if not isinstance(here, TimestampType):
        raise ConfigError(
            f"the time of the events {given.name}, {given.time}, is no timestamp of its schema: {given.schema}",
            hint=f'schema = "{given.time.rpartition(".")[2]} timestamp, ..." declares it; its JSON is ISO 8601',
        )
    return found


def with_reasons(raw: DataFrame, given: Events) -> DataFrame:
    """Every record with its columns, its reason to be set apart, and the watermark. ``raw``: of ``format("headrace")``.
    ConfigError as :func:`schema_of`."""
    columns = schema_of(given)
    fields = columns.add(_UNREADABLE, "string")
    json = F.from_json(F.col("value").cast("string"), fields, {"columnNameOfCorruptRecord": _UNREADABLE})
    marker = F.col("partition") == MARKER
    time, at = F.col(f"{_JSON}.{given.time}"), F.col(LOGGED_AT)
    late = F.expr(f"interval {round(given.late_s * 1_000_000)} microseconds")
    reason = (
        F.when(marker, F.lit(None))
        .when(F.col("refusal").isNotNull(), F.col("refusal"))
        .when(F.col(_JSON).isNull() | F.col(f"{_JSON}.{_UNREADABLE}").isNotNull(), F.lit("payload"))
        .when(time.isNull(), F.lit("time"))
        .when(time < at - late, F.lit("late"))
        .when(time >= at + F.expr(f"interval {AHEAD_S} seconds"), F.lit("ahead"))
    )
    named = raw.withColumn(_JSON, json).withColumn(_REASON, reason)
    event_time = F.when(marker, at).when(F.col(_REASON).isNull(), time)
    own: dict[str, Column] = {name: F.col(f"{_JSON}.{name}") for name in columns.names if name != _UNREADABLE}
    own |= {KEY: F.col("key").cast("string"), POS: F.col(LOGGED_POS).cast("string"), AT: at}
    own |= {given.time_column: event_time}
    kept = [F.col(name) for name in ("key", "value", "partition", "offset", _REASON)]
    typed = named.select(*kept, *(column.alias(name) for name, column in own.items()))
    return typed.withWatermark(given.time_column, f"{round((given.late_s + AHEAD_S) * 1000)} milliseconds")


def with_metric(records: DataFrame, given: Events) -> DataFrame:
    """The same, and each batch has the metric ``given.name``: under ``apart``, how many records are set apart."""
    return records.observe(given.name, F.count_if(F.col(_REASON).isNotNull()).alias("apart"))


def text_events(records: DataFrame, given: Events) -> DataFrame:
    """The events that the text sees."""
    time = F.col(given.time_column)
    events = records.where(((F.col("partition") != MARKER) | time.isNull()) & time.isNotNull())
    return events.drop("key", "value", "partition", "offset", _REASON)


def set_apart(records: DataFrame, given: Events) -> DataFrame:
    """The records that the text does not see, as they stand in the topic: key, value, reason, topic, partition, offset,
    pos, at."""
    apart = records.where(F.col(given.time_column).isNull())
    return apart.select(
        "key",
        "value",
        F.col(_REASON).alias("reason"),
        F.lit(given.topic).alias("topic"),
        "partition",
        "offset",
        F.col(POS).alias(LOGGED_POS),
        F.unix_micros(AT).alias("at_us"),
    )


def no_records(session: SparkSession) -> DataFrame:
    """The records of a topic as a stream without any: to be analysed."""
    nothing: Mapping[str, str] = {
        "key": "binary", "value": "binary", LOGGED_POS: "binary", LOGGED_AT: "timestamp", "partition": "int",
        "offset": "bigint", "refusal": "string",
    }  # fmt: skip
    rate = session.readStream.format("rate").load()
    return rate.select(*(F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()))
