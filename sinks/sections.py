"""The settings file with its sinks, which the kinds of stores check: :mod:`cdc.settings` knows none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cdc.reference import SinkSection
from cdc.settings import SECTIONS, Settings, load, parse
from cdc.settings_faults import KnownSettings, config_error
from cdc.sink_settings import SinkSettings, UnreadSink, read_sinks
from sinks.kinds import InstalledKinds, kinds_of_ours


def load_settings(path: Path, environment: dict[str, str] | None = None) -> Settings:
    """Read and check a settings file, ``environment`` laid over it: this process's own unless given.

    ConfigError says what is wrong where, with a "did you mean".
    """
    return load(path, environment, InstalledKinds())


def parse_settings(document: dict[str, Any]) -> Settings:
    """Check settings that are a document already. ConfigError as :func:`load_settings`."""
    return parse(document, kinds=InstalledKinds())


def read_section(name: str, sink: SinkSettings) -> SinkSettings:
    """A sink's section, checked by its kind unless it was. ConfigError as :func:`load_settings`."""
    if not isinstance(sink, UnreadSink):
        return sink
    kinds, document = InstalledKinds(), {"sinks": {name: sink.model_dump(exclude_unset=True)}}
    read, faults = read_sinks(document, kinds)
    if faults:
        raise config_error(faults, "the settings", KnownSettings(SECTIONS, document, kinds), {})
    return read[name]


def sink_sections() -> list[SinkSection]:
    """The sections of the kinds that come with this package, for the example file and the manual's table."""
    shown = [(kind, *kind.example) for kind in kinds_of_ours() if kind.example is not None]
    return [
        SinkSection(f"sinks.{name}", kind.settings, {"kind": kind.name, **values}, optional=not kind.shown)
        for kind, name, values in shown
    ]
