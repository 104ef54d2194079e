"""The sections of the sinks: what all of them have, and the checking by their kinds, which stand above this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from cdc.process.errors import ConfigError
from cdc.settings.setting_types import Secret, SettingsModel, Tables
from cdc.settings.settings_faults import Fault, faults_of, kinds_in, unknown_kind

MOST_EVERY_S = 3_600
"""How long a store may rest between two batches at most."""


def _a_rest(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= MOST_EVERY_S:
        raise ValueError(f"every_s is a number of seconds, 0 for no rest and {MOST_EVERY_S} at most")
    return float(value)


Rest = Annotated[float, BeforeValidator(_a_rest)]
"""Seconds that a store rests at most."""


class SinkSettings(SettingsModel):
    """The settings that every sink has. The kind of store adds its own: see :class:`sinks.contract.kinds.SinkKind`."""

    kind: str = Field(description="kind of store")
    tables: Tables = Field((), description="only these, all captured tables unless set")
    prefix: str | None = Field(None, description="the pipeline's name unless set")
    every_s: Rest = Field(0.0, description="seconds from one batch's start to the next at least")

    schemes_in_the_clear: ClassVar[Mapping[str, str]] = {"http": "https"}
    """Schemes of ``url`` that encrypt nothing, each with the one that does."""

    @property
    def place(self) -> str:
        """Where the store is. Two sinks with one place and one prefix would undo each other's work."""
        return str(sorted((name, str(value)) for name, value in self._own() if not isinstance(value, Secret)))

    def options(self) -> dict[str, Any]:
        """The options that the opener gets as ``SinkSpec.options``: the kind's own settings by name, without
        secrets."""
        return {name: value for name, value in self._own() if isinstance(value, str | int | float | bool | None)}

    def secrets(self) -> dict[str, Secret]:
        """The secrets that the opener gets as ``SinkSpec.secrets``, once revealed."""
        return {name: value for name, value in self._own() if isinstance(value, Secret)}

    def _own(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in type(self).model_fields if name not in _OF_EVERY_SINK)


class WarehouseSettings(SinkSettings):
    """The settings that every warehouse has."""

    history: Tables = Field(
        (), description="tables whose history is kept beside them, in TABLE__history, none unless set"
    )


_OF_EVERY_SINK = frozenset(WarehouseSettings.model_fields)


def histories_in(sink: SinkSettings) -> tuple[str, ...]:
    """The tables of which a sink keeps the history, as patterns."""
    return sink.history if isinstance(sink, WarehouseSettings) else ()


class UnreadSink(SinkSettings):
    """A sink's section as the file has it. The settings of its kind are in ``model_extra``, not checked yet."""

    model_config = ConfigDict(extra="allow")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Unchecked options may hold a password.
        yield "kind", self.kind


def _unread(value: Any) -> Any:
    return value if isinstance(value, SinkSettings) else UnreadSink.model_validate(value)


AnySink = Annotated[SinkSettings, BeforeValidator(_unread)]
"""A section of any kind: unread, or read already."""


class Kinds(Protocol):
    """The kinds of sinks that there are: :mod:`sinks.contract.kinds`, given by the wiring."""

    def names(self) -> Sequence[str]:
        """Every kind."""

    def model(self, kind: str) -> type[SinkSettings] | None:
        """The settings of a kind, None when there is no such kind. ConfigError when its package is broken."""

    def meant(self, name: str) -> str | None:
        """The kind that somebody means who writes another product's name."""

    def manual(self, kind: str) -> str:
        """Where the settings of a kind are described."""


def read_sinks(document: Mapping[str, Any], kinds: Kinds) -> tuple[dict[str, SinkSettings], list[Fault]]:
    """The sections of the sinks, each as its kind's model, and what is wrong with those that cannot be read."""
    read: dict[str, SinkSettings] = {}
    faults: list[Fault] = []
    for name, kind in kinds_in(document).items():
        model = kinds.model(kind)
        if model is None:
            faults.append(unknown_kind(name, kind))
            continue
        try:
            read[name] = model.model_validate(document["sinks"][name])
        except ValidationError as error:
            faults += faults_of(error, ("sinks", name))
    return read, faults


def require_apart(sinks: Mapping[str, SinkSettings], pipeline: str, origin: str) -> None:
    """ConfigError where two sinks have one store under one prefix: each would overwrite the other's rows and
    watermarks."""
    seen: dict[tuple[str, str], str] = {}
    for name, sink in sinks.items():
        other = seen.setdefault((sink.place, sink.prefix or pipeline), name)
        if other != name:
            raise ConfigError(
                f"{origin}: the sinks {other} and {name} write to one store under one prefix",
                hint=f'give one another prefix: [sinks.{name}] prefix = "{name}"',
            )
