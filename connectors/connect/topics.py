"""The topics of a pipeline that Debezium fills, made as the native capture's are, so that the same sinks read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cdc.errors import ConfigError
from cdc.settings import DebeziumSettings, Settings
from cdc.state import TopicsState
from cdc.topic import TableName, collisions, starred, state_topic, table_topic
from cdc.topic_specs import pipeline_topic_specs, table_topic_spec
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
    database = _database(settings)
    tables: dict[TableName, str] = {}
    names = [text for text in settings.source.tables if "*" not in text]
    for text in dict.fromkeys([*names, *map(str, met)]):
        schema, _, table = text.rpartition(".")
        name = TableName(schema, table)
        # SQL Server's topics carry the database before the schema.
        placed = name if database is None else TableName(f"{database}.{schema}", table)
        tables[name] = settings.source.topics.get(text) or table_topic(settings.name, placed)
    return tables


def topics_of_patterns(settings: Settings, topics: Iterable[str]) -> dict[str, str]:
    """topic -> table, for topics of tables that a pattern meets: Debezium makes such a topic at its first record.

    Topics of the pipeline's own have one part behind the pipeline's name; a table's has two at least.
    """
    found = {}
    database, left_out = _database(settings), set(settings.source.exclude)
    for topic in topics:
        rest = topic.removeprefix(f"{settings.name}.")
        table = rest if database is None else rest.removeprefix(f"{database}.")
        if rest != topic and "." in table and table not in left_out and _meets(settings.source.tables, table):
            found[topic] = table
    return found


def _meets(patterns: Iterable[str], table: str) -> bool:
    return any(starred(pattern).fullmatch(table) is not None for pattern in patterns if "*" in pattern)


def prepare_topics(settings: Settings, met: Iterable[TableName] = ()) -> list[str]:
    """Make the pipeline's topics and those of the tables that are named or ``met`` by a pattern, check the ones that
    exist, and note them in ``<name>.state`` for the sinks; returns those made now. Safe to repeat.

    TopicError for a topic that exists otherwise, ConfigError where two tables would share one.
    """
    tables = named_tables(settings, met)
    for problem in collisions(settings.name, tables.items()):
        raise ConfigError(problem, hint='[source.topics] gives one of them another: "schema.table" = "topic"')
    admin = TopicAdmin(settings.log)
    own = pipeline_topic_specs(settings.log, settings.name)
    specs = [*own, *(table_topic_spec(settings.log, topic) for topic in tables.values())]
    made = admin.create(specs)
    facts = admin.describe(spec.topic for spec in specs)
    state = CompactedTopic(settings.log, state_topic(settings.name))
    admin.end_offsets({state_topic(settings.name): 1})  # returns when a topic made a moment ago has its leader
    known = TopicsState.find(state.read())
    for spec in specs:
        if known is None or spec.topic not in known.topics:
            raise_first(spec_problems(spec, facts[spec.topic]))
    names = {str(table): topic for table, topic in tables.items()}
    noted = topics_state(facts, names, admin.cluster_id(), settings.log.encoding)
    if known is not None:
        noted = replace(noted, topics={**noted.topics, **known.topics}, tables={**known.tables, **names})
    if noted != known:
        state.write([(noted.key(), noted.to_json())])
    return made


def _database(settings: Settings) -> str | None:
    debezium: DebeziumSettings | None = settings.debezium
    if debezium is None or debezium.database != "sqlserver":
        return None
    parts = dict(part.split("=", 1) for part in settings.source.dsn.split() if "=" in part)
    return parts.get("dbname")
