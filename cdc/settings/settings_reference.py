"""The settings as a reference: rows for the manual's table and the commented example file, from the models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cdc.settings.event_settings import HistorySettings, OutboxSettings
from cdc.settings.model import (
    CaptureSettings,
    DebeziumSettings,
    LimitSettings,
    LogSettings,
    Settings,
    SnapshotSettings,
    SourceSettings,
    SparkSettings,
    TableSettings,
    ViewRunnerSettings,
    ViewSettings,
)
from cdc.settings.stream_settings import EventsSettings, StreamRunnerSettings, StreamSettings


class Section(NamedTuple):
    """One table of the file. ``optional``: the example shows it as a comment."""

    path: str
    model: type[BaseModel]
    optional: bool = False


class SinkSection(NamedTuple):
    """A sink's section. ``sample``: what the example sets in it."""

    path: str
    model: type[BaseModel]
    sample: Mapping[str, Any]
    optional: bool = False


SECTIONS: tuple[Section, ...] = (
    Section("", Settings),
    Section("source", SourceSettings),
    Section('tables."public.customers"', TableSettings, optional=True),
    Section("log", LogSettings),
    Section("capture", CaptureSettings),
    Section("snapshot", SnapshotSettings),
    Section("spark", SparkSettings),
    Section("views.order_search", ViewSettings, optional=True),
    Section("view_runner", ViewRunnerSettings, optional=True),
    Section("streams.traffic", StreamSettings, optional=True),
    Section("streams.traffic.events.requests", EventsSettings, optional=True),
    Section("stream_runner", StreamRunnerSettings, optional=True),
    Section("limits", LimitSettings),
    Section("debezium", DebeziumSettings, optional=True),
    Section("outbox", OutboxSettings, optional=True),
    Section("history", HistorySettings, optional=True),
)

_SAMPLES: dict[str, Any] = {
    "name": "shop",
    "source.dsn": "host=127.0.0.1 port=5432 dbname=shop user=cdc",
    "source.password": "env:CDC_SOURCE_PASSWORD",
    "source.tables": ["public.orders", "public.customers"],
    "log.bootstrap_servers": "127.0.0.1:9092",
    'tables."public.customers".columns': {"email": "hmac", "ssn": "drop"},
    "views.order_search.sql": "order_search.sql",
    "streams.traffic.sql": "traffic.sql",
    "streams.traffic.key": ["window_start", "path"],
    "streams.traffic.events.requests.topic": "shop.outbox.Request",
    "streams.traffic.events.requests.time": "at",
    "streams.traffic.events.requests.schema": "at timestamp, path string, ms double",
}
"""The values that the example sets. Everything else stands there as a comment with its default."""

_FORMS: dict[str, Any] = {
    "password": "env:NAME",
    "user": "cdc",
    "ca_certs": "/etc/ssl/certs/ca.pem",
    "mask_key": "env:CDC_MASK_KEY",
    "slot": "cdc_shop",
    "publication": "cdc_shop",
    "prefix": "shop",
    "spill_path": "/var/tmp",
    "connector": "shop",
    "signal_table": "public.debezium_signal",
    "table": "public.outbox",
    "database_password": "${file:/secrets/db.properties:password}",
}
"""An example of a value for settings that are unset by default."""


_COMMENT_COLUMN = 46


class SettingRow(NamedTuple):
    """One setting: where it stands, what it takes, what it is unless set, what it means."""

    section: str
    key: str
    kind: str
    default: str
    meaning: str

    @property
    def path(self) -> str:
        """The setting's full name, as ``section.key``."""
        return f"{self.section}.{self.key}" if self.section else self.key


def rows(sinks: Sequence[SinkSection]) -> list[SettingRow]:
    """Every setting, in the file's order. ``sinks``: a section of each kind."""
    return [
        SettingRow(section.path, name, _kind(field), _default(field), field.description or "")
        for section in _with(sinks)
        for name, field in _plain_fields(section.model)
    ]


def example(sinks: Sequence[SinkSection]) -> str:
    """A commented settings file that :func:`cdc.settings.model.parse` accepts as it is."""
    lines = [
        "# Settings of one pipeline. A commented line shows a setting's default, or its form where it has none.",
        "# Any of them can be set by the environment too: CDC_SOURCE__DSN, CDC_LOG__PARTITIONS and so on.",
    ]
    samples = {**_SAMPLES, **{f"{one.path}.{name}": value for one in sinks for name, value in one.sample.items()}}
    for section in _with(sinks):
        mark = "# " if section.optional else ""
        if section.path:
            lines += ["", f"# {_sentence(section.model)}", f"{mark}[{section.path}]"]
        ordered = sorted(_plain_fields(section.model), key=lambda named: _path(section, named[0]) not in samples)
        lines += [
            _line(name, field, samples.get(_path(section, name)), commented=section.optional) for name, field in ordered
        ]
    return "\n".join(lines) + "\n"


def table(sinks: Sequence[SinkSection]) -> str:
    """The manual's table of all settings, in Markdown."""
    lines = ["| setting | takes | unless set | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{r.path}` | {r.kind} | {r.default} | {r.meaning.replace('<', '&lt;')} |" for r in rows(sinks)]
    return "\n".join(lines) + "\n"


def _with(sinks: Sequence[SinkSection]) -> list[Section]:
    """All sections, those of the sinks before Spark's."""
    at = [section.path for section in SECTIONS].index("spark")
    own = [Section(one.path, one.model, one.optional) for one in sinks]
    return [*SECTIONS[:at], *own, *SECTIONS[at:]]


def _plain_fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The model's own settings, without its sub-tables."""
    sections = {"sinks", "streams", "tables", "views", *(section.path for section in SECTIONS if section.path)}
    for name, field in model.model_fields.items():
        if not (model is Settings and name in sections) and not (model is StreamSettings and name == "events"):
            yield field.alias or name, field


def _path(section: Section, name: str) -> str:
    return f"{section.path}.{name}" if section.path else name


def _line(name: str, field: FieldInfo, sample: Any, *, commented: bool) -> str:
    if sample is not None:
        setting = f"{'# ' if commented else ''}{name} = {_toml(sample)}"
    else:
        default = field.get_default(call_default_factory=True)
        value = _FORMS.get(name, (field.examples or [""])[0]) if default is None else _readable(field, default)
        setting = f"# {name} = {_toml(value)}"
    return f"{setting:<{_COMMENT_COLUMN}}  # {field.description}"


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if default is None or default in ((), {}):
        return "-"
    return f"`{_toml(_readable(field, default))}`"


def _kind(field: FieldInfo) -> str:
    names = {
        "timedelta": "duration",
        "int": "number",
        "float": "number",
        "str": "text",
        "bool": "true or false",
        "Secret": "secret",
    }
    if _is_byte_count(field):
        return "size"
    annotation = field.annotation
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list of text"
    if get_origin(annotation) is dict:
        return "table"
    options = [part for part in get_args(annotation) if part is not type(None)] or [annotation]
    first = get_args(options[0])[0] if get_args(options[0]) else options[0]
    return names.get(getattr(first, "__name__", ""), "text")


def _is_byte_count(field: FieldInfo) -> bool:
    return any(getattr(getattr(mark, "func", None), "__name__", "") == "_byte_count" for mark in field.metadata)


def _readable(field: FieldInfo, value: Any) -> Any:
    """A default as a person would write it: ``7d``, ``64MB``."""
    if isinstance(value, timedelta):
        return duration_text(value)
    if _is_byte_count(field):
        return size_text(value)
    return value


def duration_text(value: timedelta) -> str:
    """The shortest whole number and unit.

    >>> duration_text(timedelta(hours=36)), duration_text(timedelta(days=7)), duration_text(timedelta(seconds=0.5))
    ('36h', '7d', '500ms')
    """
    milliseconds = round(value.total_seconds() * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def size_text(value: int) -> str:
    """The largest unit that is whole.

    >>> size_text(64 * 1024**2), size_text(1000)
    ('64MB', '1000')
    """
    for unit, size in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if value and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple() | list():
            return "[" + ", ".join(_toml(member) for member in value) + "]"
        case dict():
            return (
                "{}"
                if not value
                else "{ " + ", ".join(f"{name} = {_toml(member)}" for name, member in value.items()) + " }"
            )
        case _:
            return str(value)


def _sentence(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0].replace("``", "")
