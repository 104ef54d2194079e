"""The topics of a pipeline that Debezium fills, made as the native capture's are, so that the same sinks read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from cdc.capture.topic_specs import (
    pipeline_topic_specs,
    require_kept_topics,
    table_topic_spec,
    topic_problems,
    without_topics,
)
from cdc.process.errors import ConfigError
from cdc.record.progress import Offsets
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName, state_topic
from cdc.settings.model import Settings
from connectors.debezium.config import unnameable
from connectors.debezium.databases import captures, topic_of
from connectors.kafka.admin import TopicAdmin, topics_state
from connectors.kafka.broker_answers import make_known
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.topic_problems import raise_first, spec_problems


def noted_documents(settings: Settings) -> dict[bytes, bytes]:
    """The documents of ``<name>.state``. Empty before the topic is there."""
    state = state_topic(settings.name)
    return KafkaCompactedTopic(settings.log, state).read() if TopicAdmin(settings.log).describe([state]) else {}


def noted_topics(settings: Settings) -> TopicsState | None:
    """The topics that were noted in ``<name>.state``. None before any is."""
    return TopicsState.find(noted_documents(settings))


def noted_ends(settings: Settings) -> Offsets:
    """Where the topics of the pipeline's tables end now, in every partition: Debezium writes to those that were added.
    Empty before any topic is noted."""
    noted = noted_topics(settings)
    if noted is None:
        return {}
    admin, topics = TopicAdmin(settings.log), sorted({*noted.tables.values()} & noted.topics.keys())
    made = {topic: noted.topics[topic]["partitions"] for topic in topics}
    return admin.end_offsets(made | admin.counts(made))


def captured_topics(settings: Settings) -> list[str]:
    """The topics of the captured tables, as far as they were noted."""
    noted = noted_topics(settings)
    known = noted.tables if noted is not None else {}
    return sorted({topic for table, topic in known.items() if captures(settings, table)})


def unfit_topics(settings: Settings, tables: Iterable[TableName]) -> Iterator[tuple[str, str]]:
    """Each sentence and its hint: a topic that one of these tables cannot have, or that is not the one that it has.
    LogError where Kafka does not answer."""
    names = list(tables)
    yield from unnameable(settings, names)
    yield from topic_problems(noted_topics(settings), {str(one): topic_of(settings, str(one)) for one in names})


def require_topics(settings: Settings, tables: Iterable[TableName]) -> None:
    """ConfigError for the first of :func:`unfit_topics`."""
    for problem, hint in unfit_topics(settings, tables):
        raise ConfigError(problem, hint=hint)


def prepare_topics(
    settings: Settings, tables: Iterable[TableName], deleted: Collection[str] = frozenset()
) -> list[str]:
    """Make the pipeline's topics and those of these tables, check the ones that exist, and note them in
    ``<name>.state`` for the sinks. Returns those made now. Safe to repeat. ``deleted``: those whose notes are of former
    ones.

    TopicError for a topic that exists otherwise, ConfigError where one would get a topic with records from before.
    """
    meant = {str(table): topic_of(settings, str(table)) for table in tables}
    admin, state = TopicAdmin(settings.log), KafkaCompactedTopic(settings.log, state_topic(settings.name))
    own = pipeline_topic_specs(settings.log, settings.name)
    specs = [*own, *(table_topic_spec(settings.log, topic) for topic in meant.values())]
    made, facts = make_known(admin, specs)
    admin.end_offsets({state_topic(settings.name): 1})  # returns when a topic made a moment ago has its leader
    known = TopicsState.find(state.read())
    if known is not None and deleted:
        known = without_topics(known, deleted)
    require_kept_topics(known, meant)
    for spec in specs:
        if known is None or spec.topic not in known.topics:
            raise_first(spec_problems(spec, facts[spec.topic], by_offsets=True))
    noted = topics_state(facts, meant, admin.cluster_id(), settings.log.encoding)
    if known is not None:
        merged = replace(known, topics={**noted.topics, **known.topics}, tables={**known.tables, **meant})
        noted = replace(merged, cluster_id=noted.cluster_id, encoding=noted.encoding)
    if noted != known or deleted:
        state.write([(noted.key(), noted.to_json())])
    return made
