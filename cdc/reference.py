"""The settings as a reference: rows for the manual's table and the commented example file, from the models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cdc.settings import (
    CaptureSettings,
    DebeziumSettings,
    DeltaSinkSettings,
    LimitSettings,
    LogSettings,
    OpenSearchSinkSettings,
    RedisSinkSettings,
    Settings,
    SnapshotSettings,
    SourceSettings,
    SparkSettings,
    SqlSinkSettings,
)


class Section(NamedTuple):
    """One table of the file. ``optional``: the example shows it as a comment."""

    path: str
    model: type[BaseModel]
    optional: bool = False


SECTIONS: tuple[Section, ...] = (
    Section("", Settings),
    Section("source", SourceSettings),
    Section("log", LogSettings),
    Section("capture", CaptureSettings),
    Section("snapshot", SnapshotSettings),
    Section("sinks.cache", RedisSinkSettings),
    Section("sinks.search", OpenSearchSinkSettings),
    Section("sinks.warehouse", DeltaSinkSettings),
    Section("sinks.reports", SqlSinkSettings, optional=True),
    Section("spark", SparkSettings),
    Section("limits", LimitSettings),
    Section("debezium", DebeziumSettings, optional=True),
)

_SAMPLES: dict[str, Any] = {
    "name": "shop",
    "source.dsn": "host=127.0.0.1 port=5432 dbname=shop user=cdc",
    "source.password": "env:CDC_SOURCE_PASSWORD",
    "source.tables": ["public.orders", "public.customers"],
    "log.bootstrap_servers": "127.0.0.1:9092",
    "sinks.cache.kind": "redis",
    "sinks.cache.url": "redis://127.0.0.1:6379/0",
    "sinks.search.kind": "opensearch",
    "sinks.search.url": "http://127.0.0.1:9200",
    "sinks.warehouse.kind": "delta",
    "sinks.warehouse.path": "warehouse",
    "sinks.reports.kind": "sql",
    "sinks.reports.url": "postgresql+psycopg://cdc@127.0.0.1:5432/reports",
}
"""What the example sets; everything else stands there as a comment with its default."""

_FORMS: dict[str, Any] = {
    "password": "env:NAME",
    "user": "cdc",
    "ca_certs": "/etc/ssl/certs/ca.pem",
    "slot": "cdc_shop",
    "publication": "cdc_shop",
    "prefix": "shop",
    "spill_path": "/var/tmp",
    "db_schema": "replica",
    "connector": "shop",
    "signal_table": "public.debezium_signal",
    "database_password": "${file:/secrets/db.properties:password}",
}
"""What a value that is unset by default looks like."""


_COMMENT_COLUMN = 46


class Row(NamedTuple):
    """One setting: where it stands, what it takes, what it is unless set, what it means."""

    section: str
    key: str
    kind: str
    default: str
    meaning: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.key}" if self.section else self.key


def rows() -> list[Row]:
    """Every setting, in the file's order."""
    return [
        Row(section.path, name, _kind(field), _default(field), field.description or "")
        for section in SECTIONS
        for name, field in _plain_fields(section.model)
    ]


def example() -> str:
    """A commented settings file that :func:`cdc.settings.parse` accepts as it is."""
    lines = [
        "# Settings of one pipeline. A commented line shows a setting's default, or its form where it has none.",
        "# Any of them can be set by the environment too: CDC_SOURCE__DSN, CDC_LOG__PARTITIONS and so on.",
    ]
    for section in SECTIONS:
        mark = "# " if section.optional else ""
        if section.path:
            lines += ["", f"# {_sentence(section.model)}", f"{mark}[{section.path}]"]
        ordered = sorted(_plain_fields(section.model), key=lambda named: _path(section, named[0]) not in _SAMPLES)
        lines += [_line(_path(section, name), name, field, commented=section.optional) for name, field in ordered]
    return "\n".join(lines) + "\n"


def table() -> str:
    """The manual's table of all settings, in Markdown."""
    lines = ["| setting | takes | unless set | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{r.path}` | {r.kind} | {r.default} | {r.meaning.replace('<', '&lt;')} |" for r in rows()]
    return "\n".join(lines) + "\n"


def _plain_fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The model's own settings, without its sub-tables."""
    sections = {section.path.partition(".")[0] for section in SECTIONS if section.path}
    for name, field in model.model_fields.items():
        if not (model is Settings and name in sections):
            yield name, field


def _path(section: Section, name: str) -> str:
    return f"{section.path}.{name}" if section.path else name


def _line(path: str, name: str, field: FieldInfo, *, commented: bool) -> str:
    if path in _SAMPLES:
        setting = f"{'# ' if commented else ''}{name} = {_toml(_SAMPLES[path])}"
    else:
        default = field.get_default(call_default_factory=True)
        value = _FORMS.get(name, "") if default is None else _readable(field, default)
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
    names = {"timedelta": "duration", "int": "number", "str": "text", "bool": "true or false", "Secret": "secret"}
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
