"""The stores, from the settings: as plain specs, and opened."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from cdc.errors import UsageError
from cdc.settings import DeltaSinkSettings, OpenSearchSinkSettings, RedisSinkSettings, Settings, SqlSinkSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.settings import SinkSettings
    from cdc.topic import TableName
    from sinks.port import OpenSink
    from sinks.registry import Option, SinkSpec


def spec_of(name: str, settings: Settings, *, parallel: bool = False) -> SinkSpec:
    """A sink as plain data that pickles, its secrets revealed. UsageError when the settings name no such sink."""
    from sinks.registry import SinkSpec

    sink = sink_settings(name, settings)
    options: dict[str, Option] = {"replay_window_s": settings.log.replay_window.total_seconds()}
    secrets: dict[str, str] = {}
    match sink:
        case RedisSinkSettings():
            options |= {"url": sink.url}
        case OpenSearchSinkSettings():
            own = ("url", "user", "ca_certs", "shards", "replicas", "json_mapping")
            options |= {option: getattr(sink, option) for option in own}
        case DeltaSinkSettings():
            options |= {"path": sink.path, **{f"storage.{key}": value for key, value in sink.storage_options.items()}}
            secrets |= {f"storage.{key}": secret.reveal() for key, secret in sink.storage_secrets.items()}
        case SqlSinkSettings():
            options |= {"url": sink.url, "db_schema": sink.db_schema}
    if not isinstance(sink, DeltaSinkSettings) and sink.password is not None:
        secrets["password"] = sink.password.reveal()
    prefix = sink.prefix or settings.name
    return SinkSpec(kind=sink.kind, prefix=prefix, options=options, secrets=secrets, parallel=parallel)


def open_store(name: str, settings: Settings, *, parallel: bool = False) -> OpenSink:
    """A store, opened; ``parallel``: others write to it too. SinkError when it cannot be reached."""
    from sinks.registry import open_sink

    return open_sink(spec_of(name, settings, parallel=parallel))


def sink_settings(name: str, settings: Settings) -> SinkSettings:
    """The sink's section. UsageError with the likely name when there is none."""
    if name not in settings.sinks:
        close = difflib.get_close_matches(name, settings.sinks, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the sinks are {', '.join(settings.sinks) or 'none'}"
        raise UsageError(f"there is no sink {name}", hint=hint)
    return settings.sinks[name]


def tables_of(name: str, settings: Settings, tables: Sequence[TableName]) -> list[TableName]:
    """Those of the captured tables that the sink keeps: its ``tables`` patterns, all of them without any."""
    from connectors.postgres.selection import Pattern

    patterns = [Pattern.parse(text) for text in sink_settings(name, settings).tables]
    return [table for table in tables if not patterns or any(pattern.takes(table) for pattern in patterns)]
