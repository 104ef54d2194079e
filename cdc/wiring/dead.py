"""The dead letters, read."""

from __future__ import annotations

from cdc.dead import DeadLetter
from cdc.settings import Settings
from cdc.topic import dead_topic
from cdc.wiring import require_broker


def read_letters(settings: Settings) -> list[DeadLetter]:
    """Every letter of the pipeline, oldest first. TopicError before ``cdc init``."""
    from connectors.kafka.letters import DeadLetterTopic

    require_broker(settings)
    return list(DeadLetterTopic(settings.log, dead_topic(settings.name)).read())
