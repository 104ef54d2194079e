"""The table topics as changes, for ``cdc events``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from cdc.settings import LogSettings
from cdc.topic import TableName
from cdc.wire.events import Change, Record, read
from cdc.wire.format import VER
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.follow import follow
from connectors.kafka.schema_registry import SchemaRegistry

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
