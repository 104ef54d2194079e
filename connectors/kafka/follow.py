"""Table topics read as they grow, as changes, for people: ``cdc events``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from cdc.record.topic_names import TableName
from cdc.settings.model import LogSettings
from cdc.wire.events import Change, Record, read
from cdc.wire.format import VER
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted_topic import log_error
from connectors.kafka.doubted_topics import LEADERLESS
from connectors.kafka.schema_registry import SchemaRegistry

_BATCH = 500
_POLL_S = 0.2


def follow(
    settings: LogSettings, partitions: Mapping[str, int], *, from_beginning: bool, until_caught_up: bool
) -> Iterator[list[Record]]:
    """Batches of records of these topics (topic -> partition count), from their end or their beginning.

    ``until_caught_up``: stop at the ends as they are at the call. Otherwise for ever. Records of one partition
    come in order. A batch may be empty. LogError when the broker says an error.
    """
    ends = TopicAdmin(settings).end_offsets(partitions)
    consumer = Consumer(reader_config(settings))
    try:
        consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING if from_beginning else end)
                for topic, parts in ends.items()
                for partition, end in parts.items()
            ]
        )
        left = {(topic, partition) for topic, parts in ends.items() for partition, end in parts.items() if end}
        while left or not until_caught_up:
            batch = []
            for message in consumer.consume(_BATCH, timeout=_POLL_S):
                topic, partition, error = message.topic() or "", message.partition() or 0, message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    # A replica that is read instead of the leader shows its last records a little later.
                    if (message.offset() or 0) >= ends[topic][partition]:
                        left.discard((topic, partition))
                elif error is not None and error.code() not in LEADERLESS:
                    raise log_error(error, f"reading {topic}", settings, topic)
                elif error is None:
                    batch.append(_record(message))
            yield batch
    finally:
        consumer.close()


def _record(message: Message) -> Record:
    headers: Any = message.headers() or ()
    return Record(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers={name: text for name, value in headers if (text := _bytes(value)) is not None},
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


log = logging.getLogger(__name__)


class Changes:
    """The table topics, as changes."""

    def __init__(self, settings: LogSettings, schemas: SchemaRegistry) -> None:
        self._settings = settings
        self._schemas = schemas
        self.tables = schemas.tables()
        """Every table the log knows."""

    def follow(
        self, tables: Sequence[TableName], *, from_beginning: bool, until_caught_up: bool
    ) -> Iterator[list[Change]]:
        """Batches of changes of these tables. A record that is not ours is passed over with a warning."""
        topics = {shape.topic: table for table in tables if (shape := self._schemas.latest(table)) is not None}
        facts = TopicAdmin(self._settings).describe(topics)
        counts = {topic: found.partitions for topic, found in facts.items()}
        for records in follow(self._settings, counts, from_beginning=from_beginning, until_caught_up=until_caught_up):
            yield [change for record in records if (change := self._change(topics, record)) is not None]

    def _change(self, topics: Mapping[str, TableName], record: Record) -> Change | None:
        try:
            shape = self._schemas.get(topics[record.topic], int(record.headers[VER]))
            return read(shape, record)
        except (KeyError, ValueError) as fault:
            where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.warning("record_not_understood", extra={**where, "reason": str(fault)})
            return None
