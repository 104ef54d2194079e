"""``cdc status``, put together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.settings.model import is_postgres
from cdc.status.facts import StatusPorts
from cdc.status.run import StatusPlan, StatusReader
from cdc.wiring.debezium import open_connector
from sinks.contract.stores import open_store

if TYPE_CHECKING:
    from cdc.settings.model import Settings


def open_status(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> StatusReader:
    """A look at the pipeline that the settings describe, to be repeated. Nothing is opened before the first one."""
    from connectors.operate.status import StatusLog, StatusSource, read_fresh
    from connectors.postgres.server.table_selection import takes
    from connectors.views.view_topics import look_at_views
    from sinks.contract.tries import looking

    plan = StatusPlan(
        name=settings.name,
        slot=settings.slot,
        sinks={name: sink.kind for name, sink in settings.sinks.items()},
        views=tuple(settings.views),
        takes=partial(takes, tables=settings.source.tables, exclude=settings.source.exclude),
    )
    ports = StatusPorts(
        log=StatusLog(settings),
        source=StatusSource(settings) if is_postgres(settings) else None,
        connector=(lambda: open_connector(settings).facts()) if settings.source.kind == "debezium" else None,
        open_store=lambda sink: open_store(sink, settings),
        briefly=looking,
        fresh=lambda: read_fresh(settings),
        views=lambda: look_at_views(settings),
    )
    return StatusReader(plan, ports, clock)
