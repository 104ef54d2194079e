"""The notes that keep a table in its shard of capture, and the servers of a takeover (:mod:`cdc.shard_takeover`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cdc.checks.facts import PublicationFacts, ServerFacts, SlotFacts
from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.epochs import EpochsState
from cdc.errors import ConfigError
from cdc.progress import Offsets
from cdc.settings import Settings
from cdc.shard_documents import (
    Documents,
    MovedTable,
    ShardState,
    moved_tables,
    noted_shards,
    require_named,
    require_unmoved,
    tables_of,
)
from cdc.shard_ending import NotedShard, end_shard, leave_publication
from cdc.shard_plan import publication_meant, shard_meant, shards_of, slot_meant, state_topic_of
from cdc.shard_takeover import take_over
from cdc.state import SlotIntent, SlotState, TopicsState
from cdc.topic import state_topic
from cdc.topic_specs import pipeline_topic_specs
from connectors.epoch import begin_epoch, take_lock
from connectors.kafka.admin import TopicAdmin, topics_state
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.doubted_topics import make_known
from connectors.postgres.catalog_facts import read_publication, read_server, read_slot
from connectors.postgres.connections import Connection
from connectors.postgres.publication import drop_publication, give_up
from connectors.postgres.slot import drop_slot
from connectors.whole_state import ShardStates, read_known_each

declare("shards_noted")


def note_shards(settings: Settings, admin: TopicAdmin) -> None:
    """Note the shard in the state topic of its pipeline, before anything is made of it (H404).

    ConfigError where the pipeline has a capture without shards.
    """
    topic = _made_state(settings.named_shard(""), admin)
    documents = topic.read()
    if TopicsState.find(documents) is not None:
        raise ConfigError(
            f"the capture of {settings.name} has no shards, and its topics are there",
            hint="give the divided pipeline another name; or without [capture.shards] run cdc drop --topics first",
        )
    if settings.shard not in noted_shards(documents):
        noted = ShardState(shard=settings.shard)
        topic.write([(noted.key(), noted.to_json())])
    crash_point("shards_noted")


def require_own_tables(settings: Settings, known: ShardStates | None = None) -> None:
    """ConfigError where the settings' shard writes a table that they give to another one, or is given one that another
    writes (H402), or where they lack a shard that writes tables (H405). Nothing for a pipeline without shards.
    ``known``: of the look that asks. LogError when no broker answers."""
    if settings.shard:
        states = known.each() if known is not None else read_known_each(settings)
        require_unmoved(moved_of(settings, states), settings.shard)
        require_named(settings.name, states, shards_of(settings))


def moved_of(settings: Settings, states: Mapping[str, Documents]) -> list[MovedTable]:
    """The tables that one shard writes and the settings give to another."""
    tables = {table for documents in states.values() for table in tables_of(documents)}
    meant = {table: shard for table in tables if (shard := shard_meant(settings, table)) is not None}
    return moved_tables(states, meant)


def begin_shard_again(conn: Connection, settings: Settings, admin: TopicAdmin, clock: Clock) -> int:
    """End the present epoch of the settings' shard, and take over the tables that they have given to it. Returns the
    number of the next one. See :func:`cdc.shard_takeover.take_over`."""
    note_shards(settings, admin)
    moved = [one for one in moved_of(settings, read_known_each(settings)) if one.wanted == settings.shard]
    servers = _Servers(conn, settings, admin, clock)
    return take_over(servers, settings.shard, moved, shards_of(settings), str(clock.now_ns()))


class _Servers:
    """The servers of a takeover. Implements :class:`cdc.shard_takeover.TakeoverPorts`."""

    def __init__(self, conn: Connection, settings: Settings, admin: TopicAdmin, clock: Clock) -> None:
        self._conn = conn
        self._settings = settings
        self._admin = admin
        self._clock = clock

    def lock(self, shard: str) -> None:
        take_lock(self._conn, self._settings.named_shard(shard), self._clock)

    def states(self) -> Mapping[str, Documents]:
        return read_known_each(self._settings)

    def state(self, shard: str) -> KafkaCompactedTopic:
        return _made_state(self._settings.named_shard(shard), self._admin)

    def made(self, shard: str) -> TopicsState:
        settings = self._settings
        specs = pipeline_topic_specs(settings.log, settings.name, shard)
        _, facts = make_known(self._admin, specs)
        return topics_state(facts, {}, self._admin.cluster_id(), settings.log.encoding)

    def ends(self, partitions: Mapping[str, int]) -> Offsets:
        return self._admin.end_offsets(partitions)

    def begin(self, above: EpochsState | None) -> int:
        state = self.state(self._settings.shard)
        return begin_epoch(self._conn, self._settings, self._admin, state, self._clock, above)

    def leave(self, shard: str, documents: Documents, tables: Collection[str]) -> None:
        leave_publication(PostgresShards(self._conn), self._noted(shard, documents), tables)

    def end(self, shard: str, documents: Documents) -> None:
        end_shard(PostgresShards(self._conn), self._noted(shard, documents))

    def _noted(self, shard: str, documents: Documents) -> NotedShard:
        return NotedShard(
            meant_slot=slot_meant(self._settings, shard),
            meant_publication=publication_meant(self._settings, shard),
            slot=SlotState.find(documents),
            intent=SlotIntent.find(documents),
        )


class PostgresShards:
    """:class:`cdc.shard_ending.ShardSource` on Postgres."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def server(self) -> ServerFacts:
        return read_server(self._conn)

    def slot(self, name: str) -> SlotFacts | None:
        return read_slot(self._conn, name)

    def publication(self, name: str) -> PublicationFacts | None:
        return read_publication(self._conn, name)

    def drop_slot(self, name: str) -> None:
        drop_slot(self._conn, name)

    def drop_publication(self, name: str) -> None:
        drop_publication(self._conn, name)

    def give_up(self, publication: str, tables: Collection[str]) -> None:
        give_up(self._conn, publication, tables)


def _made_state(settings: Settings, admin: TopicAdmin) -> KafkaCompactedTopic:
    own = state_topic(settings.name, settings.shard)
    specs = pipeline_topic_specs(settings.log, settings.name, settings.shard)
    admin.create([spec for spec in specs if spec.topic == own])
    admin.end_offsets({own: 1})  # returns when a topic made a moment ago has its leader
    return KafkaCompactedTopic(settings.log, state_topic_of(settings))
