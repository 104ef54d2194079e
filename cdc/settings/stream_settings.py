"""The settings of streams: Spark SQL over topics of events."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cdc.settings.setting_types import PATH, SettingsModel, SomeTime

_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_IN_WORDS = re.compile(r"(\d+)\s+(second|minute|hour|day)s?")


def _in_words(value: Any) -> Any:
    said = _IN_WORDS.fullmatch(value.strip()) if isinstance(value, str) else None
    return value if said is None else f"{said[1]}{said[2][0]}"


class EventsSettings(SettingsModel):
    """One input of a stream: a topic of events, and their columns."""

    topic: str = Field(description="a topic that is not compacted: of outbox events, a history, or another program's")
    time: str = Field(description="the column of `schema` with the time of the event, a timestamp")
    late: Annotated[SomeTime, BeforeValidator(_in_words)] = Field(
        timedelta(minutes=10), description="an event that is committed later than this after its time is set apart"
    )
    schema_: str = Field(alias="schema", description="columns of the JSON value, as `at timestamp, n int`")
    as_of: str = Field(
        "", description="a table with a history in a Delta warehouse, whose row at each event's commit the text sees"
    )
    on: tuple[str, ...] = Field(
        (), description="with `as_of`: columns of the events with the table's key, in its order"
    )

    @field_validator("time")
    @classmethod
    def _column(cls, value: str) -> str:
        if not _PATH.fullmatch(value):
            raise ValueError('name a column, or one within another: "at", "after.placed_at"')
        return value

    @field_validator("on")
    @classmethod
    def _columns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(cls._column, value))

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.as_of and "." not in self.as_of.strip("."):
            raise ValueError(f'as_of: {self.as_of} is no table: write "schema.table"')
        if bool(self.as_of) != bool(self.on):
            raise ValueError("as_of and on go together: a table, and the columns of the events that hold its key")
        return self


class StreamSettings(SettingsModel):
    """One stream: Spark SQL over events, whose result is a table of the pipeline."""

    sql: Annotated[str, PATH] = Field(description="file with the text, in Spark SQL")
    key: tuple[str, ...] = Field(min_length=1, description="columns of the result that tell its rows apart")
    mode: Literal["update", "append"] = Field(
        "update", description="when a row is published: at each change, or once when it is final"
    )
    partitions: int = Field(0, ge=0, description="partitions of its topic, 0 for as many as [log] sets")
    events: dict[str, EventsSettings] = Field(min_length=1, description="the inputs, by their names in the text")

    @field_validator("events")
    @classmethod
    def _names(cls, value: dict[str, EventsSettings]) -> dict[str, EventsSettings]:
        for name in value:
            _require_name(name)
        return value


class StreamRunnerSettings(SettingsModel):
    """``cdc stream run``."""

    http_address: str = Field("", description="metrics and health of the streams, empty for none")


def named_streams(value: Any) -> Any:
    """Return the sections of streams. ValueError for a name that no table could have."""
    for name in value if isinstance(value, dict) else ():
        _require_name(name)
    return value


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name here: small letters, digits and _, at most 50, a letter first")
