"""The log asked how far it holds the source."""

from __future__ import annotations

from cdc.progress import Progress
from cdc.settings import Settings
from cdc.topic import progress_topic
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.tail import last_progress


def newest_progress(settings: Settings) -> Progress | None:
    """The newest progress record of the pipeline. None before the first one.

    LogError when no broker answers, DamagedError when no record can be read.
    """
    topic = progress_topic(settings.name)
    return last_progress(settings.log, topic, TopicAdmin(settings.log).end_offsets({topic: 1})[topic][0])
