"""What Spark has to be started with, so that it can write the stores of an application itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sinks.contract.kinds import SparkParts
from sinks.contract.stores import kind_of, options_of

if TYPE_CHECKING:
    from cdc.settings.model import Settings

KAFKA_SOURCE = {"org.apache.spark.sql.kafka010.KafkaSourceProvider": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"}
"""The class of Spark's Kafka source, which every application of stores begins with, and the jar that brings it."""

_EXTENSIONS = "spark.sql.extensions"


def parts_of(settings: Settings, names: Iterable[str] = ()) -> list[SparkParts]:
    """The parts that Spark needs for these sinks of the settings, all by default, each once. It decides for a driver of
    ours and for one that is submitted alike, and reads no secret: who submits may have none. UsageError for a sink that
    the settings do not name."""
    chosen = list(names) or list(settings.sinks)
    found = (kind_of(name, settings).spark(options_of(name, settings)) for name in chosen)
    return list({(one.product, one.more_jars, *one.classes): one for one in found if one is not None}.values())


def jar_sets(parts: Iterable[SparkParts]) -> list[str]:
    """The names of their sets of jars, each once."""
    return list(dict.fromkeys(name for part in parts for name in (part.jars, *part.more_jars)))


def needed_classes(parts: Iterable[SparkParts]) -> dict[str, str]:
    """The classes that Spark has to find before the first batch, each with the coordinate of the jar that brings it."""
    return {
        **KAFKA_SOURCE,
        **{name: jar for part in parts for name, jar in ((part.extension, part.coordinate), *part.classes.items())},
    }


def with_parts(parts: Sequence[SparkParts], conf: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The user's settings over those of the parts, beside whose extensions the user may have others. ``folder``: for
    Spark's own catalog, which makes one where the process was started unless it is told another place."""
    if not parts:
        return dict(conf)
    wanted = list(dict.fromkeys(part.extension for part in parts))
    given = [name for name in conf.get(_EXTENSIONS, "").split(",") if name and name not in wanted]
    return {
        **{name: value for part in parts for name, value in part.conf.items()},
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        **conf,
        _EXTENSIONS: ",".join([*wanted, *given]),
    }
