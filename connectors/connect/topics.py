"""The topics of a pipeline that Debezium fills, made as the native capture's are, so that the same sinks read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from cdc.errors import ConfigError
from cdc.settings import Settings
from cdc.state import TopicsState
from cdc.topic import TableName, collisions, state_topic
from cdc.topic_specs import pipeline_topic_specs, table_topic_spec
from connectors.connect.published import makes_publication
from connectors.debezium import tables
from connectors.debezium.config import connector_topics
from connectors.kafka.admin import (
    TopicAdmin,
    raise_first,
    spec_problems,
    topics_state,
)
from connectors.kafka.compacted import CompactedTopic


def named_tables(settings: Settings, met: Iterable[TableName] = ()) -> dict[TableName, str]:
    """table -> topic, for the tables that the settings name. ``met``: those that their patterns meet, where the source
    was asked."""
    names = dict.fromkeys([*tables.named_tables(settings), *map(str, met)])
    return {TableName(*text.rsplit(".", 1)): tables.topic_of(settings, text) for text in names}


def topics_of_patterns(settings: Settings, topics: Iterable[str]) -> dict[str, str]:
    """topic -> table, for topics of tables that a pattern meets: Debezium makes such a topic at its first record.

    Nothing for a source that ``cdc connect deploy`` asks for its tables: it has noted each of them.
    """
    if makes_publication(settings):
        return {}
    found = {topic: tables.table_of(settings, topic) for topic in topics}
    return {topic: table for topic, table in found.items() if table is not None}


def _taken(settings: Settings, meant: Mapping[TableName, str]) -> Iterator[str]:
    """A sentence for each table whose topic is one that the connector writes something else to."""
    for table, topic in meant.items():
        if topic in connector_topics(settings):
            yield f"the table {table} would use the topic {topic}, which the connector keeps for itself"


def prepare_topics(settings: Settings, met: Iterable[TableName] = ()) -> list[str]:
    """Make the pipeline's topics and those of the tables that are named or ``met`` by a pattern, check the ones that
    exist, and note them in ``<name>.state`` for the sinks; returns those made now. Safe to repeat.

    TopicError for a topic that exists otherwise, ConfigError where two tables would share one.
    """
    meant = named_tables(settings, met)
    for problem in [*collisions(settings.name, meant.items()), *_taken(settings, meant)]:
        raise ConfigError(problem, hint='[source.topics] gives one of them another: "schema.table" = "topic"')
    admin = TopicAdmin(settings.log)
    own = pipeline_topic_specs(settings.log, settings.name)
    specs = [*own, *(table_topic_spec(settings.log, topic) for topic in meant.values())]
    made = admin.create(specs)
    facts = admin.describe(spec.topic for spec in specs)
    state = CompactedTopic(settings.log, state_topic(settings.name))
    admin.end_offsets({state_topic(settings.name): 1})  # returns when a topic made a moment ago has its leader
    known = TopicsState.find(state.read())
    for spec in specs:
        if known is None or spec.topic not in known.topics:
            raise_first(spec_problems(spec, facts[spec.topic]))
    names = {str(table): topic for table, topic in meant.items()}
    noted = topics_state(facts, names, admin.cluster_id(), settings.log.encoding)
    if known is not None:
        noted = replace(noted, topics={**noted.topics, **known.topics}, tables={**known.tables, **names})
    if noted != known:
        state.write([(noted.key(), noted.to_json())])
    return made
