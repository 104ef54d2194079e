"""The probes through which ``cdc check`` asks the servers, put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cdc.shard_plan import each_shard
from sinks.stores import kind_of, spec_of

if TYPE_CHECKING:
    from cdc.checks.finding import Finding
    from cdc.settings import Settings
    from connectors.probes import ServerProbes
    from connectors.whole_state import ShardStates


def open_each_probes(settings: Settings) -> Iterator[tuple[Settings, ServerProbes]]:
    """The probes of each shard of capture, or of a pipeline without. Together they read each state topic once."""
    from connectors.whole_state import ShardStates

    states = ShardStates(settings)
    for one in each_shard(settings):
        yield one, open_probes(one, states)


def open_probes(settings: Settings, states: ShardStates | None = None) -> ServerProbes:
    """Connections open when they are first asked for. ``states``: of the shards that are looked at together."""
    from connectors.probes import ServerProbes

    def store(sink: str) -> Iterable[Finding]:
        return kind_of(sink, settings).findings(sink, spec_of(sink, settings))

    return ServerProbes(settings, store, states)
