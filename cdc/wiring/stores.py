"""The stores, from the settings: as plain specs, and opened."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from cdc.errors import UsageError
from cdc.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.sink_settings import SinkSettings
    from cdc.topic import TableName
    from sinks.kinds import SinkKind
    from sinks.port import OpenSink
    from sinks.registry import SinkSpec


def spec_of(name: str, settings: Settings, *, parallel: bool = False) -> SinkSpec:
    """A sink as plain data that pickles, its secrets revealed. UsageError when the settings name no such sink."""
    from sinks.registry import SinkSpec

    sink, kind = sink_settings(name, settings), kind_of(name, settings)
    return SinkSpec(
        kind=kind.name,
        opener=kind.opener,
        prefix=sink.prefix or settings.name,
        options={"replay_window_s": settings.log.replay_window.total_seconds(), **sink.options()},
        secrets={option: secret.reveal() for option, secret in sink.secrets().items()},
        parallel=parallel,
    )


def kind_of(name: str, settings: Settings) -> SinkKind:
    """The kind of a sink. ConfigError when there is no such kind, UsageError when there is no such sink."""
    from sinks.kinds import kind_named

    return kind_named(sink_settings(name, settings).kind)


def open_store(name: str, settings: Settings, *, parallel: bool = False) -> OpenSink:
    """A store, opened; ``parallel``: others write to it too. SinkError when it cannot be reached."""
    from sinks.registry import open_sink

    return open_sink(spec_of(name, settings, parallel=parallel))


def sink_settings(name: str, settings: Settings) -> SinkSettings:
    """The sink's section, checked by its kind. UsageError with the likely name when there is none."""
    from cdc.wiring.settings import read_section

    if name not in settings.sinks:
        close = difflib.get_close_matches(name, settings.sinks, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the sinks are {', '.join(settings.sinks) or 'none'}"
        raise UsageError(f"there is no sink {name}", hint=hint)
    return read_section(name, settings.sinks[name])


def tables_of(name: str, settings: Settings, tables: Sequence[TableName]) -> list[TableName]:
    """Those of the captured tables that the sink keeps: its ``tables`` patterns, all of them without any."""
    from connectors.postgres.selection import Pattern

    patterns = [Pattern.parse(text) for text in sink_settings(name, settings).tables]
    return [table for table in tables if not patterns or any(pattern.takes(table) for pattern in patterns)]
