"""Opens a store from plain data, in the driver or in a task of an executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import ConfigError
from cdc.foreign import remember
from sinks.port import OpenSink

Option = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """A store, as plain data that pickles.

    ``kind``: redis, opensearch, delta, sql. ``prefix``: before all its names. ``parallel``: several processes
    write at once, so that each reads anew before each batch what the one that ``leads`` may have changed: the floors,
    and which generation is in use. ``secrets`` are shown nowhere.

    Options: redis ``url``; opensearch ``url``, ``user``, ``ca_certs``, ``shards``, ``replicas``,
    ``json_mapping``, ``generation`` (None: the one the alias names); delta ``path`` and the object store's own as
    ``storage.<name>``; sql ``url``, ``db_schema``; all ``replay_window_s``. Secrets: ``password``; delta's as
    ``storage.<name>``.
    """

    kind: str
    prefix: str
    options: Mapping[str, Option]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    parallel: bool = False
    leads: bool = False

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
        value = self.options.get(name)
        return None if value is None else str(value)

    def number(self, name: str, otherwise: float) -> float:
        value = self.options.get(name)
        return otherwise if value is None else float(value)

    @property
    def replay_window_s(self) -> float:
        """How long deletes are remembered at least."""
        return self.number("replay_window_s", 7 * 86_400.0)


def open_sink(spec: SinkSpec, clock: Clock = SYSTEM_CLOCK) -> OpenSink:
    """Connect to a store. SinkError when it cannot be reached, ConfigError when it is of no kind we know."""
    remember(spec.secrets.values())
    opener = _OPENERS.get(spec.kind)
    if opener is None:
        raise ConfigError(f"there is no kind of sink called {spec.kind}", hint="redis, opensearch, delta or sql")
    module, function = opener
    try:
        # A store's client is an extra: only the one that is used has to be installed.
        opened: Callable[[SinkSpec, Clock], OpenSink] = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        extra = f"pip install 'headrace[{spec.kind}]'"
        raise ConfigError(f"a sink of kind {spec.kind} needs the package {error.name}", hint=extra) from None
    return opened(spec, clock)


_OPENERS = {
    "redis": ("sinks.cache", "open_cache"),
    "opensearch": ("sinks.search", "open_search"),
    "delta": ("sinks.warehouse_delta", "open_delta"),
    "sql": ("sinks.warehouse_sql", "open_sql"),
}
