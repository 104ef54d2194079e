"""``cdc status``, put together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.settings import is_postgres
from cdc.shard_plan import each_shard
from cdc.status.ports import StatusPorts
from cdc.status.run import StatusPlan, StatusReader
from cdc.wiring.debezium import open_connector
from sinks.stores import open_store

if TYPE_CHECKING:
    from cdc.settings import Settings
    from connectors.whole_state import ShardStates


def open_each_status(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> Iterator[StatusReader]:
    """One look at each shard of capture, or at a pipeline without. Together they read each state topic once."""
    from connectors.whole_state import ShardStates

    states = ShardStates(settings)
    return (open_status(one, clock, states) for one in each_shard(settings))


def open_status(settings: Settings, clock: Clock = SYSTEM_CLOCK, states: ShardStates | None = None) -> StatusReader:
    """A look at the pipeline that the settings describe, to be repeated. Nothing is opened before the first one.
    ``states``: where this is a part of one look, what that has read. It is not repeated then."""
    from connectors.asked_status import StatusLog, StatusSource, read_fresh
    from connectors.postgres.selection import keeps_some, takes
    from connectors.view_looks import look_at_views
    from sinks.tries import looking

    plan = StatusPlan(
        name=settings.name,
        slot=settings.slot,
        sinks={name: sink.kind for name, sink in settings.sinks.items()},
        views=tuple(settings.views),
        shard=settings.shard,
        feeds=lambda sink, tables: keeps_some(settings.sinks[sink].tables, tables),
        takes=partial(takes, tables=settings.source.tables, exclude=settings.source.exclude),
    )
    ports = StatusPorts(
        log=StatusLog(settings, states),
        source=StatusSource(settings) if is_postgres(settings) else None,
        connector=(lambda: open_connector(settings).facts()) if settings.source.kind == "debezium" else None,
        open_store=lambda sink: open_store(sink, settings),
        briefly=looking,
        fresh=lambda: read_fresh(settings),
        views=lambda: look_at_views(settings),
    )
    return StatusReader(plan, ports, clock)
