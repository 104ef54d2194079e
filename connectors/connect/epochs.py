"""Where a connector's positions started over: noted in ``<name>.state``, read by the sinks."""

from __future__ import annotations

from cdc.epochs import EpochsState
from cdc.progress import Offsets
from cdc.settings import Settings
from cdc.topic import state_topic
from cdc.topic_specs import pipeline_topic_specs
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import CompactedTopic


def next_epoch(settings: Settings) -> int:
    """Note that records after the topics' present ends belong to a new epoch; returns its number.

    Makes the state topic where it is missing. Call it while nothing writes to the table topics.
    """
    admin = TopicAdmin(settings.log)
    admin.create(pipeline_topic_specs(settings.log, settings.name))
    state = state_topic(settings.name)
    admin.end_offsets({state: 1})  # returns when a topic made a moment ago has its leader
    topic = CompactedTopic(settings.log, state)
    held = topic.read().get(EpochsState().key())
    epochs = EpochsState.from_json(held) if held is not None else EpochsState()
    grown = epochs.begin(_ends(admin, settings))
    topic.write([(grown.key(), grown.to_json())])
    return grown.latest


def _ends(admin: TopicAdmin, settings: Settings) -> Offsets:
    topics = [topic for topic in admin.names() if topic.startswith(f"{settings.name}.")]
    facts = admin.describe(topics)
    return admin.end_offsets({topic: found.partitions for topic, found in facts.items()})
