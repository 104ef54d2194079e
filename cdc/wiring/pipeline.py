"""A pipeline's beginning and end, put together: what ``cdc init`` makes, ``check`` asks and ``drop`` removes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cdc.settings.model import require_postgres
from sinks.contract.stores import kind_of, spec_of

if TYPE_CHECKING:
    from cdc.checks.findings import Finding
    from cdc.operate.proposal import FoundDatabase
    from cdc.settings.model import Settings
    from connectors.operate.check import ServerProbes


__all__ = ["PreparedPipeline", "Successor", "accept_server", "begin_epoch", "open_drop", "prepare_pipeline"]

if TYPE_CHECKING:
    from cdc.operate.drop import Drop
    from cdc.process.clock import Clock
    from cdc.settings.model import Settings
    from connectors.operate.accepted_server import Successor
    from connectors.operate.init import Prepared as PreparedPipeline


def prepare_pipeline(settings: Settings) -> PreparedPipeline:
    """Make or check publication, topics and shapes. ConfigError where the source is another database than Postgres."""
    from connectors.operate.init import prepare_pipeline as prepare

    require_postgres(settings, "cdc init")
    return prepare(settings)


def begin_epoch(settings: Settings, clock: Clock) -> tuple[int, PreparedPipeline]:
    """End the present epoch and prepare the next one. Its number, and what was made."""
    from connectors.operate.init import begin_pipeline_again

    require_postgres(settings, "cdc init")
    return begin_pipeline_again(settings, clock)


def accept_server(settings: Settings, clock: Clock) -> Successor | None:
    """See :func:`connectors.operate.accepted_server.accept_server`."""
    from connectors.operate.accepted_server import accept

    require_postgres(settings, "cdc init")
    return accept(settings, clock)


def open_drop(settings: Settings) -> Drop:
    """See :func:`connectors.operate.drop.drop_of`."""
    from connectors.operate.drop import drop_of

    return drop_of(settings)


def open_probes(settings: Settings) -> ServerProbes:
    """Connections open when they are first asked for."""
    from connectors.operate.check import ServerProbes

    def store(sink: str) -> Iterable[Finding]:
        return kind_of(sink, settings).findings(sink, spec_of(sink, settings))

    return ServerProbes(settings, store)


def look_at_database(dsn: str, role: str) -> tuple[FoundDatabase, bool]:
    """See :func:`connectors.operate.proposal.read_database`."""
    from connectors.operate.proposal import read_database

    return read_database(dsn, role)
