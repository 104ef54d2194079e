"""``cdc status``, put together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.settings import is_postgres
from cdc.status.ports import StatusPorts
from cdc.status.run import StatusPlan, StatusReader
from cdc.wiring.debezium import open_connector
from sinks.stores import open_store

if TYPE_CHECKING:
    from cdc.settings import Settings


def open_status(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> StatusReader:
    """A look at the pipeline that the settings describe, to be repeated. Nothing is opened before the first one."""
    from connectors.asked_status import StatusLog, StatusSource, read_fresh
    from connectors.postgres.selection import takes
    from connectors.view_looks import look_at_views
    from sinks.tries import looking

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
