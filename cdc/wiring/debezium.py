"""Debezium's connector, and the sinks of topics that it fills, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cdc.capture.topic_specs import KeyedAnewState
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import ConfigError
from cdc.record.ports import Unknown, look
from cdc.record.progress import WriterState
from cdc.record.state import TopicsState
from cdc.wiring import open_schemas, open_state

if TYPE_CHECKING:
    from cdc.checks.findings import Finding
    from cdc.operate.handover import Handover
    from cdc.record.progress import Offsets
    from cdc.settings.model import Settings
    from connectors.debezium.connector import Connector
    from connectors.debezium.offsets import ConnectProgress
    from spark.records.debezium_records import Translation
    from spark.runner.application import SinkApplication


def open_connector(settings: Settings) -> Connector:
    """The Debezium connector that the settings describe. ConfigError without a [debezium] section."""
    from connectors.debezium.connector import Connector

    return Connector(settings)


def check_connect(settings: Settings) -> list[Finding]:
    """The Kafka Connect side of ``cdc check``."""
    from connectors.debezium.checks import check_connect as check

    return check(settings)


def open_feed(settings: Settings) -> ConnectProgress:
    """How far the topics hold the source, asked of Kafka Connect."""
    from cdc.record.progress import epoch_of
    from connectors.debezium.offsets import ConnectProgress
    from connectors.debezium.topics import noted_ends

    connector = open_connector(settings)
    return ConnectProgress(
        connector.offsets,
        partial(noted_ends, settings),
        lambda: epoch_of(open_state(settings).read(), "debezium") or 1,
    )


def snapshot_ends(settings: Settings) -> Offsets | None:
    """Where the topics of a connector's snapshot end, once it is over by the connector's own word. None before. Empty
    where our own capture writes them."""
    from connectors.debezium.offsets import snapshot_state
    from connectors.debezium.topics import noted_ends

    if settings.source.kind != "debezium":
        return {}
    whole = snapshot_state(open_connector(settings).offsets()) == "complete"
    return noted_ends(settings) if whole else None


def reading_debezium(application: SinkApplication, settings: Settings) -> SinkApplication:
    """The same application for topics that Debezium fills, or may have filled: what is not ours is translated.

    How far the topics are is asked of the capture that writes them now. ConfigError for a table whose changes do not
    come whole.
    """
    from connectors.debezium.config import reader_of
    from connectors.debezium.tables import partial_tables
    from connectors.kafka.schema_registry import EmbeddedShapes
    from spark.records.debezium_records import Translation

    shapes, state = EmbeddedShapes(open_schemas(settings)), open_state(settings)

    def keyed_anew(topic: str) -> None:
        note = KeyedAnewState(topic=topic)
        state.write([(note.key(), note.to_json())])

    def translation() -> Translation:
        documents = state.read()
        known, topics = WriterState.find(documents), TopicsState.find(documents)
        return Translation(
            shapes,
            reader_of(settings),
            keyed_anew,
            topic_ids={topic: one["id"] for topic, one in topics.topics.items()} if topics is not None else {},
            handed_over=known.offsets if known is not None else {},
        )

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
    """See :func:`connectors.operate.handover.handover_of`."""
    from connectors.operate.handover import handover_of

    return handover_of(settings, say, clock)
