"""The settings of outbox events and of histories."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from cdc.process.errors import ConfigError
from cdc.settings.setting_types import SettingsModel, SomeTime, Tables

_HEADER = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_FOREVER = timedelta(days=36_500)
"""A hundred years stand for ever."""
_TAKEN_HEADERS = frozenset(["pos", "id", "op", "ver", "at"])


def _forever(value: Any) -> Any:
    return _FOREVER if value == "forever" else value


class HistorySettings(SettingsModel):
    """The tables of which every change is kept, in a topic of its own beside the table's."""

    tables: Tables = Field((), description='"schema.table", or "schema.*", none unless set')
    keep: Annotated[SomeTime, BeforeValidator(_forever)] = Field(
        timedelta(days=90), description='how long a change stays in its history, or "forever"'
    )

    @property
    def keep_ms(self) -> int:
        """The retention of a history's topic in ms, -1 for none."""
        return -1 if self.keep >= _FOREVER else int(self.keep.total_seconds() * 1000)


class OutboxSettings(SettingsModel):
    """The outbox: events that transactions write, by a table or by logical messages."""

    table: str | None = Field(None, description="the table whose inserts are events, none unless set")
    message: str = Field("outbox", description="prefix of logical messages that are events, empty for none")
    topic: str = Field("{name}.outbox.{aggregatetype}", description="topic of the events")
    id: str = Field("id", description="column, or JSON member of a message, with the event's unique id")
    aggregatetype: str = Field("aggregatetype", description="column that chooses the topic")
    aggregateid: str = Field("aggregateid", description="column that is the record's key")
    type: str = Field("type", description="column that says what happened")
    payload: str = Field("payload", description="column with the event, as JSON: the record's value")
    headers: dict[str, str] = Field({"eventType": "type"}, description="header = column")
    keep: SomeTime = Field(timedelta(days=7), description="how long events stay in their topics")

    @property
    def keep_ms(self) -> int:
        """The retention of a topic of events in ms."""
        return int(self.keep.total_seconds() * 1000)

    @field_validator("table")
    @classmethod
    def _one_table(cls, value: str | None) -> str | None:
        if value is not None and ("." not in value.strip(".") or "*" in value or '"' in value):
            raise ValueError('name one table with its schema: "public.outbox"')
        return value

    @field_validator("message")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", value):
            raise ValueError("a prefix is 1 to 60 letters, digits, dots, hyphens or underscores")
        return value

    @field_validator("topic")
    @classmethod
    def _own_topic(cls, value: str) -> str:
        if not re.fullmatch(r"\{name\}\.outbox(\.[A-Za-z0-9_-]+)*(\.\{aggregatetype\})?", value):
            raise ValueError('a topic of events is "{name}.outbox.{aggregatetype}", with words of yours between')
        return value

    @field_validator("headers")
    @classmethod
    def _free_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name.lower() in _TAKEN_HEADERS:
                raise ValueError(f"the header {name} has a meaning of its own in records; call it otherwise")
            if not _HEADER.fullmatch(name):
                raise ValueError(f"{name!r} is no header's name: 1 to 100 letters, digits, dots, hyphens, underscores")
        return value


def require_native_history(history: HistorySettings, kind: str, origin: str) -> None:
    """ConfigError for histories under Debezium. ``kind``: of ``[source]``."""
    if history.tables and kind == "debezium":
        raise ConfigError(
            f"{origin}: [history] is for cdc run, and [source] kind is debezium",
            hint="leave [history] out; a topic of Debezium's that is not compacted keeps every change",
        )


def without_outbox(outbox: OutboxSettings | None, kind: str, tables: Collection[str], origin: str) -> tuple[str, ...]:
    """The tables to leave out of ``[source]``: inserts of the outbox table are events, and no rows of a captured table.

    ConfigError for an outbox with neither table nor message, under Debezium, and for an outbox table that is captured.
    ``kind``, ``tables``: of ``[source]``.
    """
    if outbox is None:
        return ()
    if kind == "debezium":
        raise ConfigError(
            f"{origin}: [outbox] is for cdc run, and [source] kind is debezium",
            hint="Debezium routes events itself: io.debezium.transforms.outbox.EventRouter in [debezium.options]",
        )
    if outbox.table is None and not outbox.message:
        raise ConfigError(
            f"{origin}: [outbox] names neither a table nor a message, so there is nothing to read events from",
            hint='table = "public.outbox", or message = "outbox" for pg_logical_emit_message, or both',
        )
    if outbox.table in tables:
        raise ConfigError(
            f"{origin}: {outbox.table} is the outbox and a captured table at once",
            hint="take it out of [source] tables: its rows are events, and go to topics of their own",
        )
    return (outbox.table,) if outbox.table is not None else ()
