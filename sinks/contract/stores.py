"""The stores, from the settings: as plain specs, and opened."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from cdc.process.errors import UsageError
from cdc.settings.model import Settings
from cdc.settings.sink_settings import SinkSettings
from sinks.contract.kinds import SinkKind, kind_named, read_section
from sinks.contract.registry import Option, SinkSpec, open_sink

if TYPE_CHECKING:
    from sinks.contract.port import OpenSink


def spec_of(name: str, settings: Settings, *, parallel: bool = False) -> SinkSpec:
    """A sink as plain data that pickles, its secrets revealed. UsageError when the settings name no such sink."""
    sink, kind = sink_settings(name, settings), kind_of(name, settings)
    return SinkSpec(
        kind=kind.name,
        opener=kind.opener,
        prefix=sink.prefix or settings.name,
        options=options_of(name, settings),
        secrets={option: secret.reveal() for option, secret in sink.secrets().items()},
        references={option: secret.reference for option, secret in sink.secrets().items()},
        parallel=parallel,
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
