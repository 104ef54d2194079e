"""The shapes of tables that Debezium captures and nobody has noted yet: from the schemas that records embed.

Of a Postgres's table without a record the catalog says it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

from confluent_kafka import Message

from cdc.errors import CdcError, ConfigError
from cdc.schema import TableSchema
from cdc.settings import LogSettings, Settings, is_postgres
from cdc.state import TopicsState
from cdc.topic import state_topic
from cdc.wire.debezium.reading import DebeziumChange, PartitionReader
from connectors.connect.topics import with_patterns
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic, read_range
from connectors.postgres.catalog_shapes import captured_schema, resolve_tables
from connectors.postgres.connections import connect

_BACK = 64
"""Records at a partition's end that are looked at first: the newest schema counts."""


def table_topics(settings: Settings, admin: TopicAdmin) -> dict[str, str]:
    """The topic of each captured table, by its name as text: those of patterns, too. LogError when no broker
    answers."""
    state = TopicsState.find(KafkaCompactedTopic(settings.log, state_topic(settings.name)).read())
    return {} if state is None else dict(with_patterns(settings, state, admin).tables)


def embedded_shapes(settings: Settings, known: Collection[str]) -> list[TableSchema]:
    """A shape for each captured table whose topic is not among those ``known``, where its records have one.

    The versions are numbers of embedded schemas, and nothing is noted. LogError when no broker answers.
    """
    admin = TopicAdmin(settings.log)
    captured = {table: topic for table, topic in table_topics(settings, admin).items() if topic not in known}
    found = _of_records(settings, admin, list(captured.values()))
    seen = {shape.topic for shape in found}
    empty = {table: topic for table, topic in captured.items() if topic not in seen}
    return [*found, *(_of_catalog(settings, empty) if empty and is_postgres(settings) else ())]


def _of_catalog(settings: Settings, topics: Mapping[str, str]) -> Iterator[TableSchema]:
    """The shapes of tables (name -> topic) by the source's catalog. Nothing where it does not answer."""
    with suppress(CdcError), closing(connect(settings.source, application_name="cdc view", autocommit=True)) as conn:
        for table in resolve_tables(conn, settings, lambda _: None):
            topic = topics.get(str(table.table))
            if topic is None:
                continue
            # One whose masks cannot be kept hides no other.
            with suppress(ConfigError):
                yield captured_schema(conn, settings, table.oid, topic=topic, encoding="readable")


def _of_records(settings: Settings, admin: TopicAdmin, topics: Sequence[str]) -> list[TableSchema]:
    ends = admin.end_offsets(admin.counts(topics))
    found = []
    for topic in topics:
        partitions = ends.get(topic, {})
        starts = [*((p, max(0, end - _BACK)) for p, end in partitions.items()), *((p, 0) for p in partitions)]
        shapes = (shape_in(topic, p, _records(settings.log, topic, p, start)) for p, start in starts if partitions[p])
        shape = next((shape for shape in shapes if shape is not None), None)
        if shape is not None:
            found.append(shape)
    return found


Record = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""


def shape_in(topic: str, partition: int, records: Iterable[Record]) -> TableSchema | None:
    """The first shape that some records of a partition embed. None where none of them does."""
    reader = PartitionReader(topic, partition)
    for offset, key, value in records:
        change = reader.read(offset, key, value)
        if isinstance(change, DebeziumChange) and change.schema is not None and change.op not in ("t", "d"):
            return change.schema
    return None


def _records(settings: LogSettings, topic: str, partition: int, start: int) -> Iterator[Record]:
    return map(_record, read_range(settings, topic, partition, start))


def _record(message: Message) -> Record:
    key, value = message.key(), message.value()
    return message.offset() or 0, key if isinstance(key, bytes) else None, value if isinstance(value, bytes) else None
