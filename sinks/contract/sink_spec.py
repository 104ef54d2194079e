"""Opens a store from plain data, in the driver or in a task of an executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import remember
from cdc.settings.secret_reference import reveal

if TYPE_CHECKING:
    from sinks.contract.port import OpenSink

Option = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """A store, as plain data that pickles.

    ``kind``: what the settings call it. ``opener``: ``module:attribute`` of what opens it, a callable of a spec and a
    clock that returns an OpenSink. A task finds it by that name alone, for archives have no entry points.
    ``prefix``: before all the store's names. ``parallel``: several processes write at once, so that each reads anew
    before each batch what the one that ``leads`` may have changed: the floors, and which generation is in use.
    ``options``: the kind's own, and ``replay_window_s``. ``secrets`` are shown nowhere. ``references``: where those of
    them are read that may change. ``every_s``: from one batch's start to the next at least, 0 for no rest.
    """

    kind: str
    opener: str
    prefix: str
    options: Mapping[str, Option]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    references: Mapping[str, str] = field(default_factory=dict)
    parallel: bool = False
    leads: bool = False
    every_s: float = 0.0

    def renewed(self) -> SinkSpec:
        """The same with its secrets read anew. ConfigError as :func:`cdc.settings.secret_reference.reveal`."""
        read = {name: reveal(reference) for name, reference in self.references.items()}
        return replace(self, secrets={**self.secrets, **read})

    @property
    def follows(self) -> bool:
        """Whether another process decides for this one."""
        return self.parallel and not self.leads

    def text(self, name: str) -> str:
        """An option that has to be there. ConfigError when it is not."""
        value = self.options.get(name)
        if value is None:
            raise ConfigError(f"a sink of kind {self.kind} needs {name}")
        return str(value)

    def optional(self, name: str) -> str | None:
        """An option as text. None where it is not set."""
        value = self.options.get(name)
        return None if value is None else str(value)

    def number(self, name: str, otherwise: float) -> float:
        """An option as a number, ``otherwise`` where it is not set. ValueError where it is no number."""
        value = self.options.get(name)
        return otherwise if value is None else float(value)

    @property
    def replay_window_s(self) -> float:
        """How long deletes are remembered at least."""
        return self.number("replay_window_s", 7 * 86_400.0)


def open_sink(spec: SinkSpec, clock: Clock = SYSTEM_CLOCK) -> OpenSink:
    """Connect to a store. SinkError when it cannot be reached, ConfigError when its client is not installed."""
    remember(spec.secrets.values())
    opened: OpenSink = attribute(spec.opener, spec.kind)(spec, clock)
    return opened


def attribute(name: str, kind: str) -> Any:
    """The object that ``module:attribute`` names. ConfigError, with the extra to install, when a package is missing.

    A store's client is an extra: only the one that is used has to be installed.
    """
    module, _, wanted = name.partition(":")
    try:
        return getattr(import_module(module), wanted)
    except ModuleNotFoundError as error:
        own = module.partition(".")[0] == __package__
        hint = (
            f"pip install 'headrace[{kind}]'" if own else f"install the package that {module} belongs to, and its needs"
        )
        raise ConfigError(f"a sink of kind {kind} needs the package {error.name}", hint=hint) from None
