"""``cdc status``, put together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.running import ask_status, fresh_of
from cdc.settings import is_postgres
from cdc.status.facts import FreshFacts
from cdc.status.ports import StatusPorts
from cdc.status.run import StatusPlan, StatusReader
from cdc.wiring.debezium import open_connector
from sinks.stores import open_store

if TYPE_CHECKING:
    from cdc.settings import Settings


def read_fresh(settings: Settings) -> FreshFacts:
    """What the pipeline's processes say at the addresses of the settings."""
    capture = ask_status(settings.capture.http_address, settings.name)
    said = ask_status(settings.spark.http_address, settings.name)
    each = said.get("sinks") if said is not None else None
    stores = {name: each[name] for name in settings.sinks if name in each} if isinstance(each, dict) else {}
    fresh = {name: found for name, one in stores.items() if (found := fresh_of(one)) is not None}
    # The sinks' page has no phase: it may stand at the address of capture.
    captures = capture is not None and "phase" in capture
    asked = frozenset([*(["log"] if captures else []), *stores])
    return FreshFacts(asked=asked, log=fresh_of(capture) if captures else None, sinks=fresh)


def open_status(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> StatusReader:
    """A look at the pipeline that the settings describe, to be repeated. Nothing is opened before the first one."""
    from connectors.asked_status import StatusLog, StatusSource
    from connectors.postgres.selection import takes
    from sinks.store_retry import looking

    plan = StatusPlan(
        name=settings.name,
        slot=settings.slot,
        sinks={name: sink.kind for name, sink in settings.sinks.items()},
        takes=partial(takes, tables=settings.source.tables, exclude=settings.source.exclude),
    )
    ports = StatusPorts(
        log=StatusLog(settings),
        source=StatusSource(settings) if is_postgres(settings) else None,
        connector=(lambda: open_connector(settings).facts()) if settings.source.kind == "debezium" else None,
        open_store=lambda sink: open_store(sink, settings),
        briefly=looking,
        fresh=partial(read_fresh, settings),
    )
    return StatusReader(plan, ports, clock)
