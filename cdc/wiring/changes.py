"""``cdc events``, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.wiring import open_schemas, require_broker

if TYPE_CHECKING:
    from cdc.settings import Settings
    from connectors.kafka.changes import Changes


def open_changes(settings: Settings) -> Changes:
    """What ``cdc events`` reads. TopicError before ``cdc init``."""
    from connectors.kafka.changes import Changes

    require_broker(settings)
    return Changes(settings.log, open_schemas(settings))
