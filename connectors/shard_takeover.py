"""A table's way from one shard of capture to another, and the notes that keep it from going any other way.

A table changes its shard with a new epoch of the one that takes it: all that this one writes lies above what the
former one wrote, and its snapshot reads the table anew. The former shard gives the table up first, while no capture of
it runs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.epochs import EpochsState
from cdc.errors import ConfigError
from cdc.progress import Offsets
from cdc.settings import Settings
from cdc.shard_documents import MovedTable, ShardsState, moved_tables, require_unmoved, tables_of
from cdc.shard_plan import shard_meant, state_topic_of
from cdc.state import SlotState, TopicsState
from cdc.topic import state_topic
from cdc.topic_specs import pipeline_topic_specs
from connectors.epoch import take_lock
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.postgres.connections import Connection
from connectors.postgres.publication import give_up
from connectors.whole_state import read_known_each

declare("shards_noted", "table_given_up")


def note_shards(settings: Settings, admin: TopicAdmin) -> None:
    """Note the shard in the state topic of its pipeline, before anything is made of it (H404).

    ConfigError where the pipeline has a capture without shards.
    """
    own = state_topic(settings.name)
    admin.create([spec for spec in pipeline_topic_specs(settings.log, settings.name) if spec.topic == own])
    admin.end_offsets({own: 1})  # returns when a topic made a moment ago has its leader
    topic = KafkaCompactedTopic(settings.log, own)
    documents = topic.read()
    if TopicsState.find(documents) is not None:
        raise ConfigError(
            f"the capture of {settings.name} has no shards, and its topics are there",
            hint="give the divided pipeline another name; or without [capture.shards] run cdc drop --topics first",
        )
    known = ShardsState.find(documents) or ShardsState()
    if settings.shard not in known.shards:
        noted = ShardsState(shards=[*known.shards, settings.shard])
        topic.write([(noted.key(), noted.to_json())])
    crash_point("shards_noted")


def moved_of(settings: Settings) -> list[MovedTable]:
    """The tables that one shard writes and the settings give to another. LogError when no broker answers."""
    by_shard = read_known_each(settings)
    tables = {table for documents in by_shard.values() for table in tables_of(documents)}
    meant = {table: shard for table in tables if (shard := shard_meant(settings, table)) is not None}
    return moved_tables(by_shard, meant)


def require_own_tables(settings: Settings) -> None:
    """ConfigError where the settings' shard writes a table that they give to another one, or is given one that another
    writes (H402). Nothing for a pipeline without shards. LogError when no broker answers."""
    if settings.shard:
        require_unmoved(moved_of(settings), settings.shard)


def next_epoch(settings: Settings, moved: list[MovedTable]) -> int:
    """The least epoch above all that the former shards of these tables have written."""
    by_shard = read_known_each(settings)
    known = [by_shard[one.writer] for one in moved if one.writer in by_shard]
    latest = [(EpochsState.find(one) or EpochsState()).latest for one in known]
    slots = [slot.epoch for one in known if (slot := SlotState.find(one)) is not None]
    return max([0, *latest, *slots]) + 1


def ends_of(settings: Settings, moved: list[MovedTable], admin: TopicAdmin) -> Offsets:
    """Where the topics of these tables end now."""
    by_shard = read_known_each(settings)
    partitions = {}
    for one in moved:
        topics = TopicsState.find(by_shard[one.writer])
        if topics is not None:
            topic = topics.tables[one.table]
            partitions[topic] = topics.topics[topic]["partitions"]
    return admin.end_offsets(partitions)


def take_over(conn: Connection, settings: Settings, moved: list[MovedTable], clock: Clock) -> None:
    """Let the former shards of these tables give them up: out of their publications, then out of their topics.

    The new epoch of the shard that takes them has been noted before. ActiveError while a capture of a former one runs.
    Killed in between, it is run again.
    """
    by_writer: dict[str, list[str]] = defaultdict(list)
    for one in moved:
        by_writer[one.writer].append(one.table)
    for writer, tables in sorted(by_writer.items()):
        former = settings.named_shard(writer)
        take_lock(conn, former, clock)
        state = KafkaCompactedTopic(former.log, state_topic_of(former))
        documents = state.read()
        slot, topics = SlotState.find(documents), TopicsState.find(documents)
        if slot is not None:
            give_up(conn, slot.publication, tables)
        crash_point("table_given_up")
        if topics is not None:
            kept = {table: topic for table, topic in topics.tables.items() if table not in tables}
            gone = {topics.tables[table] for table in tables if table in topics.tables}
            left = {topic: facts for topic, facts in topics.topics.items() if topic not in gone}
            noted = replace(topics, tables=kept, topics=left)
            state.write([(noted.key(), noted.to_json())])
