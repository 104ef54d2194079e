"""The stores, from the settings: as plain specs, opened, and what Spark has to be started with to write them itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.process.errors import UsageError
from cdc.settings.model import Settings
from cdc.settings.sink_settings import SinkSettings
from sinks.contract.kinds import SinkKind, SparkParts, kind_named, read_section
from sinks.contract.sink_spec import Option, SinkSpec, open_sink

if TYPE_CHECKING:
    from cdc.settings.model import Settings
    from sinks.contract.port import OpenSink


def spec_of(name: str, settings: Settings, *, parallel: bool = False) -> SinkSpec:
    """A sink as plain data that pickles, its secrets revealed. UsageError when the settings name no such sink."""
    secrets = {option: secret.reveal() for option, secret in sink_settings(name, settings).secrets().items()}
    return replace(hidden_spec_of(name, settings), secrets=secrets, parallel=parallel)


def hidden_spec_of(name: str, settings: Settings) -> SinkSpec:
    """The same without its secrets, which :meth:`SinkSpec.renewed` reads where it is opened."""
    sink, kind = sink_settings(name, settings), kind_of(name, settings)
    return SinkSpec(
        kind=kind.name,
        opener=kind.opener,
        prefix=sink.prefix or settings.name,
        options=options_of(name, settings),
        references={option: secret.reference for option, secret in sink.secrets().items()},
        every_s=sink.every_s,
    )


def options_of(name: str, settings: Settings) -> dict[str, Option]:
    """The options of a sink's spec, for which no secret is read. UsageError when the settings name no such sink."""
    replay_window_s = settings.log.replay_window.total_seconds()
    return {"replay_window_s": replay_window_s, **sink_settings(name, settings).options()}


def kind_of(name: str, settings: Settings) -> SinkKind:
    """The kind of a sink. ConfigError when there is no such kind, UsageError when there is no such sink."""
    return kind_named(sink_settings(name, settings).kind)


def open_store(name: str, settings: Settings, *, parallel: bool = False) -> OpenSink:
    """A store, opened. ``parallel``: others write to it too. SinkError when it cannot be reached."""
    return open_sink(spec_of(name, settings, parallel=parallel))


def sink_settings(name: str, settings: Settings) -> SinkSettings:
    """The sink's section, checked by its kind. UsageError with the likely name when there is none."""
    if name not in settings.sinks:
        close = difflib.get_close_matches(name, settings.sinks, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the sinks are {', '.join(settings.sinks) or 'none'}"
        raise UsageError(f"there is no sink {name}", hint=hint)
    return read_section(name, settings.sinks[name])


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
