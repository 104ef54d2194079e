"""Where the edges are put together: the only package of ``cdc`` that imports connectors, snapshot, sinks and spark.

Imports stand inside the functions, so that a command loads just what it uses. Each builder takes the
settings and returns a thing ready to use. None keeps anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.record.topic_names import schema_topic, state_topic
from cdc.settings.model import require_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.settings.model import Settings
    from cdc.wire.events import PublishedEvent
    from connectors.kafka.compacted_topic import KafkaCompactedTopic
    from connectors.kafka.feed import Changes
    from connectors.kafka.schema_registry import SchemaRegistry
    from connectors.postgres.server.connections import Connection


def open_source(settings: Settings, *, application_name: str = "cdc", autocommit: bool = True) -> Connection:
    """A session with the source, its text format pinned. SourceError or ConfigError when there is none, and where the
    source is another database than Postgres."""
    from connectors.postgres.server.connections import connect

    require_postgres(settings, application_name)
    return connect(settings.source, application_name=application_name, autocommit=autocommit)


def require_broker(settings: Settings) -> None:
    """LogError, at once, when no broker takes a connection."""
    from connectors.kafka.broker_answers import require_broker as reach

    reach(settings.log)


def open_state(settings: Settings) -> KafkaCompactedTopic:
    """The own memory of the pipeline."""
    return _compacted(settings, state_topic(settings.name))


def open_schemas(settings: Settings) -> SchemaRegistry:
    """Every table's shapes, as the schema topic holds them now."""
    from connectors.kafka.schema_registry import SchemaRegistry

    return SchemaRegistry(_compacted(settings, schema_topic(settings.name)))


def open_changes(settings: Settings) -> Changes:
    """Open the changes that ``cdc events`` reads. TopicError before ``cdc init``."""
    from connectors.kafka.feed import Changes
    from connectors.views.view_topics import known_shapes

    require_broker(settings)
    return Changes(settings.log, known_shapes(settings))


def follow_events(
    settings: Settings, chosen: str, *, from_beginning: bool, until_caught_up: bool
) -> Iterator[list[PublishedEvent]]:
    """Follow outbox events. See :func:`connectors.kafka.feed.follow_events`."""
    from connectors.kafka.feed import follow_events as follow

    require_broker(settings)
    return follow(settings, chosen, from_beginning=from_beginning, until_caught_up=until_caught_up)


def _compacted(settings: Settings, topic: str) -> KafkaCompactedTopic:
    from connectors.kafka.compacted_topic import KafkaCompactedTopic

    return KafkaCompactedTopic(settings.log, topic)
