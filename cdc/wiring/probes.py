"""The probes through which ``cdc check`` asks the servers, put together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sinks.stores import kind_of, spec_of

if TYPE_CHECKING:
    from cdc.checks.finding import Finding
    from cdc.settings import Settings
    from connectors.probes import ServerProbes


def open_probes(settings: Settings) -> ServerProbes:
    """Connections open when they are first asked for."""
    from connectors.probes import ServerProbes

    def store(sink: str) -> Iterable[Finding]:
        return kind_of(sink, settings).findings(sink, spec_of(sink, settings))

    return ServerProbes(settings, store)
