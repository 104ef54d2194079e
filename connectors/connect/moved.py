"""Whether a deploy would give a table a topic that lacks its rows (H197): asked before anything is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cdc.moved_topics import CONNECT_RESET, MovedTopic, moved_topics, require_kept, require_unused
from cdc.settings import Settings
from cdc.state import TopicsState
from cdc.topic import state_topic
from connectors.connect.published import makes_publication
from connectors.debezium import captured_tables as tables
from connectors.debezium.assignments import met_by_routers, routed
from connectors.debezium.connector_config import connector_config
from connectors.debezium.connector_status import STOPPED, ConnectorStatus
from connectors.debezium.source_progress import part_read
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic


def noted_topics(settings: Settings) -> TopicsState | None:
    """The topics that were noted in ``<name>.state``. None before any is."""
    state = state_topic(settings.name)
    if not TopicAdmin(settings.log).describe([state]):
        return None
    return TopicsState.find(KafkaCompactedTopic(settings.log, state).read())


def moved_tables(
    settings: Settings, known: TopicsState | None, running: Mapping[str, str], topics: Mapping[str, object]
) -> list[MovedTopic]:
    """The captured tables whose records are in another topic than the settings name. Pure.

    ``known``: the notes. ``running``: the configuration in force, whose routers may lead elsewhere than was noted.
    ``topics``: those that exist.
    """
    if known is None:
        return []
    named = {*known.tables}
    if not makes_publication(settings):
        named |= {*tables.renamed_tables(settings), *_routed_tables(settings, running)}
    meant = {table: tables.topic_of(settings, table) for table in named if tables.captures(settings, table)}
    moved = {one.table: one for one in moved_topics(known, meant)}
    for table, topic in meant.items():
        usual = tables.usual_topic(settings, table)
        before = routed(running, usual)
        if before == topic or before not in topics:
            # A configuration that never ran leads to a topic that nobody has made: no row is there (H211).
            continue
        if table in known.tables and running:
            moved.setdefault(table, MovedTopic(table, before, topic))
        elif table not in known.tables:
            # Of a pattern whose tables nobody asked for: Debezium made it, and it was noted by none.
            moved[table] = MovedTopic(table, before, topic)
    return sorted(moved.values())


def _routed_tables(settings: Settings, running: Mapping[str, str]) -> set[str]:
    """The captured tables that the routers in force move, and the settings leave where they are."""
    found = (tables.usual_table_of(settings, topic) for topic in met_by_routers(running))
    return {table for table in found if table is not None}


def ask_moved(settings: Settings, running: Mapping[str, str]) -> list[MovedTopic]:
    """:func:`moved_tables`, by the notes and topics as they are. ConfigError for a topic that was another table's.

    LogError where Kafka does not answer.
    """
    known = noted_topics(settings)
    if known is None:
        return []
    names = TopicAdmin(settings.log).names()
    moved = moved_tables(settings, known, running, dict.fromkeys(names))
    require_unused(known, {one.table: one.now for one in moved if known.tables.get(one.table) != one.now})
    return moved


def begins_anew(status: ConnectorStatus, stored: Collection[object]) -> bool:
    """Whether the connector's next start has no offset, and so a first snapshot. One that runs may store its offsets
    when it ends, so that none now means nothing."""
    return status.state == STOPPED and not status.tasks and not stored


def require_filled(settings: Settings, moved: list[MovedTopic], *, begins: bool) -> None:
    """ConfigError for a moved table, unless the connector ``begins`` with all rows of each table."""
    partly = part_read(connector_config(settings))
    if not begins or partly:
        require_kept(moved, CONNECT_RESET if not partly else "")
