"""Later snapshots beside a capture's session, put together for :class:`connectors.session.opening.Opening`."""

from __future__ import annotations

from cdc.capture.windows import Windows
from cdc.process.clock import Clock
from cdc.record.topic_names import state_topic
from cdc.settings.model import Settings
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.operate.snapshot import CaptureEdges, PostgresLaterSource
from connectors.session.captured_topics import CapturedTopics, Later
from snapshot.later.request_scheduler import RequestScheduler


def later_of(settings: Settings, clock: Clock) -> Later:
    """The factory of a session's later snapshots. See :data:`connectors.session.captured_topics.Later`."""

    def later(windows: Windows, topics: CapturedTopics, shapes: SchemaRegistry, epoch: int) -> RequestScheduler:
        state = KafkaCompactedTopic(settings.log, state_topic(settings.name), waiting=windows.require_open)
        source = PostgresLaterSource(settings, notes=shapes.notes)
        edges = CaptureEdges(settings, source, state, shapes, topics, windows.require_open)
        return RequestScheduler(edges, windows, epoch=epoch, clock=clock)

    return later
