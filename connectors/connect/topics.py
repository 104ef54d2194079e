"""The topics of a pipeline that Debezium fills, made as the native capture's are, so that the same sinks read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from cdc.capture.topic_specs import pipeline_topic_specs, require_kept_topics, table_topic_spec, topic_problems
from cdc.process.errors import ConfigError
from cdc.record.progress import Offsets
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName, state_topic
from cdc.settings.model import Settings
from connectors.connect.connector_publication import makes_publication
from connectors.debezium import captured_tables as tables
from connectors.debezium.assignments import require_assignable
from connectors.kafka.admin import TopicAdmin, topics_state
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.doubted_topics import make_known
from connectors.kafka.topic_problems import raise_first, spec_problems


def named_tables(settings: Settings, met: Iterable[TableName] = ()) -> dict[TableName, str]:
    """table -> topic, for the tables that the settings name. ``met``: those that their patterns meet, where the source
    was asked."""
    names = dict.fromkeys([*tables.named_tables(settings), *_renamed_within_patterns(settings), *map(str, met)])
    return {TableName(*text.rsplit(".", 1)): tables.topic_of(settings, text) for text in names}


def _renamed_within_patterns(settings: Settings) -> list[str]:
    """Tables of ``[source.topics]`` that patterns meet, where the source is not asked: no other note is kept of their
    topics."""
    renamed = tables.renamed_tables(settings) if not makes_publication(settings) else []
    return [table for table in renamed if tables.captures(settings, table)]


def topics_of_patterns(settings: Settings, topics: Iterable[str]) -> dict[str, str]:
    """topic -> table, for topics of tables that a pattern meets: Debezium makes such a topic at its first record.

    Nothing for a source that ``cdc connect deploy`` asks for its tables: it has noted each of them.
    """
    if makes_publication(settings):
        return {}
    found = {topic: tables.table_of(settings, topic) for topic in topics}
    return {topic: table for topic, table in found.items() if table is not None}


def with_patterns(settings: Settings, state: TopicsState, admin: TopicAdmin) -> TopicsState:
    """The topics that Debezium made for tables of a pattern, too: nobody has noted those."""
    if settings.source.kind != "debezium":
        return state
    made = topics_of_patterns(settings, admin.names())
    new = {topic: table for topic, table in made.items() if topic not in state.topics}
    facts = admin.describe(new)
    tables = {table: topic for topic, table in new.items() if topic in facts}
    found = topics_state(facts, tables, state.cluster_id, state.encoding)
    return replace(state, topics={**found.topics, **state.topics}, tables={**found.tables, **state.tables})


def noted_ends(settings: Settings) -> Offsets:
    """Where the topics of the pipeline's tables end now, those of patterns too, in every partition: Debezium writes to
    those that were added. Empty before any topic is noted."""
    admin = TopicAdmin(settings.log)
    noted = noted_topics(settings)
    state = with_patterns(settings, noted, admin) if noted is not None else None
    tables = set(state.tables.values()) if state is not None else set()
    topics = state.topics if state is not None else {}
    made = {topic: topics[topic]["partitions"] for topic in sorted(tables & topics.keys())}
    return admin.end_offsets(made | admin.counts(made))


def noted_documents(settings: Settings) -> dict[bytes, bytes]:
    """The documents of ``<name>.state``. Empty before the topic is there."""
    state = state_topic(settings.name)
    return KafkaCompactedTopic(settings.log, state).read() if TopicAdmin(settings.log).describe([state]) else {}


def noted_topics(settings: Settings) -> TopicsState | None:
    """The topics that were noted in ``<name>.state``. None before any is."""
    return TopicsState.find(noted_documents(settings))


def moved_topics(settings: Settings) -> list[tuple[str, str]]:
    """Each sentence and its hint for captured tables that would get another topic than the one that their rows are in,
    or one that was another table's. LogError where Kafka does not answer."""
    known = noted_topics(settings)
    if known is None:
        return []
    if not makes_publication(settings):
        # Of a pattern whose tables nobody asked for: Debezium made the topic, and it was noted by none.
        names = {*TopicAdmin(settings.log).names()}
        usual = {table: tables.usual_topic(settings, table) for table in tables.renamed_tables(settings)}
        made = {table: topic for table, topic in usual.items() if topic in names}
        known = replace(known, tables={**made, **known.tables})
    captured = [table for table in known.tables if tables.captures(settings, table)]
    return list(topic_problems(known, {table: tables.topic_of(settings, table) for table in captured}))


def captured_topics(settings: Settings, admin: TopicAdmin) -> list[str]:
    """The topics of the captured tables, as far as they were noted, or made for a table of a pattern."""
    noted = noted_topics(settings)
    found = topics_of_patterns(settings, admin.names())
    known = noted.tables if noted is not None else {}
    return sorted({*found, *(topic for table, topic in known.items() if tables.captures(settings, table))})


def require_topics(settings: Settings) -> None:
    """ConfigError for a topic of ``[source.topics]`` that a table cannot have, or that is not the one it has."""
    require_assignable(settings, asked=makes_publication(settings))
    for problem, hint in moved_topics(settings):
        raise ConfigError(problem, hint=hint)


def prepare_topics(
    settings: Settings, met: Iterable[TableName] = (), deleted: Collection[str] = frozenset()
) -> list[str]:
    """Make the pipeline's topics and those of the tables that are named or ``met`` by a pattern, check the ones that
    exist, and note them in ``<name>.state`` for the sinks. Returns those made now. Safe to repeat. ``deleted``: topics
    whose notes are of former ones.

    TopicError for a topic that exists otherwise, ConfigError where two tables would share one, or one would get a topic
    with records from before.
    """
    meant = named_tables(settings, met)
    require_assignable(settings, met, asked=makes_publication(settings))
    admin = TopicAdmin(settings.log)
    own = pipeline_topic_specs(settings.log, settings.name)
    specs = [*own, *(table_topic_spec(settings.log, topic) for topic in meant.values())]
    made, facts = make_known(admin, specs)
    state = KafkaCompactedTopic(settings.log, state_topic(settings.name))
    admin.end_offsets({state_topic(settings.name): 1})  # returns when a topic made a moment ago has its leader
    known = TopicsState.find(state.read())
    if known is not None and deleted:
        rest = {topic: one for topic, one in known.topics.items() if topic not in deleted}
        known = replace(known, topics=rest, tables={t: topic for t, topic in known.tables.items() if topic in rest})
    names = {str(table): topic for table, topic in meant.items()}
    require_kept_topics(known, names)
    for spec in specs:
        if known is None or spec.topic not in known.topics:
            raise_first(spec_problems(spec, facts[spec.topic], by_offsets=True))
    noted = topics_state(facts, names, admin.cluster_id(), settings.log.encoding)
    if known is not None:
        noted = replace(noted, topics={**noted.topics, **known.topics}, tables={**known.tables, **names})
    if noted != known or deleted:
        state.write([(noted.key(), noted.to_json())])
    return made
