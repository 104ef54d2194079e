"""``cdc connect handover``, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import ConfigError
from cdc.handover.keys import shaping_options
from cdc.handover.ports import Ports
from cdc.handover.rules import Plan
from cdc.handover.run import Handover
from cdc.wiring import open_progress, open_state, require_broker

if TYPE_CHECKING:
    from cdc.settings import Settings


def open_handover(settings: Settings, say: Callable[[str], None], clock: Clock = SYSTEM_CLOCK) -> Handover:
    """A handover of the pipeline that the settings describe, whichever writer they name now.

    ConfigError without a [debezium] section for Postgres; LogError, at once, when no broker takes a connection.
    """
    from connectors.connect.connector import Connector
    from connectors.connect.handover import HandoverConnector, HandoverSource, NativeCapture
    from connectors.kafka.admin import TopicAdmin

    if settings.debezium is None or settings.debezium.database != "postgres":
        raise ConfigError(
            "a handover needs a [debezium] section for Postgres",
            hint='add [debezium] with url = "http://127.0.0.1:8083"',
        )
    native, connector = _with_kind(settings, "postgres"), Connector(_with_kind(settings, "debezium"))
    require_broker(settings)
    source, state = HandoverSource(native), open_state(settings)
    ports = Ports(
        source=source,
        keys=source,
        connector=HandoverConnector(connector),
        native=NativeCapture(native, state, clock),
        topics=TopicAdmin(settings.log),
        state=state,
        progress=open_progress(settings),
    )
    plan = Plan(
        name=settings.name,
        slot=settings.slot,
        publication=settings.publication,
        connector=connector.name,
        shaping=shaping_options(settings.debezium.options),
    )
    return Handover(plan, ports, say, clock)


def _with_kind(settings: Settings, kind: str) -> Settings:
    return settings.model_copy(update={"source": settings.source.model_copy(update={"kind": kind})})
