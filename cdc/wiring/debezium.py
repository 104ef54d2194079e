"""Debezium's connector, and the sinks of topics that it fills, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import ConfigError
from cdc.found import Unknown, look
from cdc.wiring import open_schemas

if TYPE_CHECKING:
    from cdc.checks.finding import Finding
    from cdc.handover.run import Handover
    from cdc.settings import Settings
    from connectors.connect.connector import Connector
    from connectors.debezium.source_progress import ConnectProgress
    from spark.application import SinkApplication
    from spark.debezium_feed import Translation


def open_connector(settings: Settings) -> Connector:
    """The Debezium connector that the settings describe. ConfigError without a [debezium] section."""
    from connectors.connect.connector import Connector

    return Connector(settings)


def warnings_of_connect(settings: Settings) -> list[str]:
    """Warnings about the settings, before Kafka Connect is asked anything."""
    from connectors.connect.checks import connect_warnings

    return connect_warnings(settings)


def check_connect(settings: Settings) -> list[Finding]:
    """The Kafka Connect side of ``cdc check``."""
    from connectors.connect.checks import check_connect as check

    return check(settings)


def open_feed(settings: Settings) -> ConnectProgress:
    """How far the topics hold the source, asked of Kafka Connect."""
    from connectors.connect.connector_epochs import read_epochs
    from connectors.connect.topics import noted_ends
    from connectors.debezium.source_progress import ConnectProgress

    connector = open_connector(settings)
    return ConnectProgress(
        connector.offsets,
        partial(noted_ends, settings),
        partial(read_epochs, settings),
        config=connector.running_config,
        has_lsn=connector.database == "postgres",
    )


def reading_debezium(application: SinkApplication, settings: Settings) -> SinkApplication:
    """The same application for topics that Debezium fills, or may have filled: what is not ours is translated.

    How far the topics are is asked of the capture that writes them now. ConfigError for a table whose changes do not
    come whole.
    """
    from connectors.connect.connector_epochs import NotedEpochs
    from connectors.connect.identities import partial_tables
    from connectors.debezium.partition_reading import reader_of_partitions
    from connectors.kafka.schema_registry import EmbeddedShapes
    from spark.debezium_feed import Translation

    shapes = EmbeddedShapes(open_schemas(settings))

    def translation() -> Translation:
        earlier = kafka.reading.open
        return Translation(
            shapes,
            NotedEpochs(settings, lambda: open_connector(settings).offsets()),
            earlier=earlier,
            reader=reader_of_partitions(settings),
        )

    kafka = application.kafka
    own = settings.source.kind == "debezium" and settings.debezium is not None
    partly = look(partial(partial_tables, settings)) if own else []
    if not isinstance(partly, Unknown):  # a source that does not answer is no reason to stop its stores
        for problem in partly:
            raise ConfigError(problem.message, hint=problem.hint)
    return replace(
        application,
        translation=translation,
        open_feed=partial(open_feed, settings) if own else application.open_feed,
    )


def open_handover(settings: Settings, say: Callable[[str], None], clock: Clock = SYSTEM_CLOCK) -> Handover:
    """See :func:`connectors.connect.handed_over.handover_of`."""
    from connectors.connect.handed_over import handover_of

    return handover_of(settings, say, clock)
