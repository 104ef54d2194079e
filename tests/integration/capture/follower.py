"""Stores in memory that follow a pipeline's topics: one from the start, others built anew from the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import orjson

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wiring import open_schemas
from connectors.kafka.compacted_topic import read_range
from connectors.kafka.schema_registry import SchemaRegistry
from sinks.contract.batch import Event, events_of
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import OpenSink
from tests.integration.capture.pipeline import Pipeline


@dataclass
class Follower:
    """A store that takes what its tables' topics hold beyond what it has read."""

    pipeline: Pipeline
    store: MemoryStore = field(default_factory=MemoryStore)
    at: dict[tuple[str, int], int] = field(default_factory=dict)
    _sink: OpenSink | None = None

    def follow(self) -> None:
        """Apply what came, partition by partition, as different readers would meet it."""
        if self._sink is None:
            self._sink = self.store.open()
        schemas = open_schemas(self.pipeline.settings)
        topics = self.pipeline.topics()
        tables = {topic: name for name, topic in topics.tables.items()}
        by_topic = {shape.topic: shape.table for shape in schemas.versions()}
        for topic in tables:
            for partition in range(topics.topics[topic]["partitions"]):
                events = self._events(topic, partition)
                if events:
                    self._sink.sink.apply(events_of(events), _Shapes(schemas, by_topic))

    def rows(self, table: str) -> list[bytes]:
        """What shows of a table, sorted, as JSON."""
        held = next((rows for name, rows in self.store.rows.items() if str(name) == f"public.{table}"), {})
        shown = [orjson.loads(row.row) for row in held.values() if row.row is not None]
        return sorted(orjson.dumps(row, option=orjson.OPT_SORT_KEYS) for row in shown)

    def _events(self, topic: str, partition: int) -> list[Event]:
        found = []
        for message in read_range(self.pipeline.settings.log, topic, partition, self.at.get((topic, partition), 0)):
            headers = dict(cast("list[tuple[str, bytes]]", message.headers() or []))
            key, value, offset = message.key(), message.value(), message.offset() or 0
            assert isinstance(key, bytes)
            assert value is None or isinstance(value, bytes)
            pos, op = headers["pos"].decode(), headers["op"].decode()
            found.append(Event(topic, partition, offset, key, value, pos, op, int(headers["ver"])))
            self.at[topic, partition] = offset + 1
        return found


@dataclass(frozen=True)
class _Shapes:
    """:class:`sinks.contract.port.Schemas` over the registry."""

    registry: SchemaRegistry
    tables: dict[str, TableName]

    def __call__(self, topic: str, version: int) -> TableSchema:
        return self.registry.get(self.tables[topic], version)

    def newest(self, topic: str) -> TableSchema:
        found = self.registry.latest(self.tables[topic])
        assert found is not None
        return found


def source_rows(pipeline: Pipeline, table: str) -> list[bytes]:
    """The same of the source."""
    with pipeline.session() as session:
        rows = session.execute(f"select row_to_json(t)::text from {table} t".encode()).fetchall()
    return sorted(orjson.dumps(orjson.loads(row), option=orjson.OPT_SORT_KEYS) for (row,) in rows)


def assert_stores_equal(pipeline: Pipeline, live: Follower, *tables: str) -> None:
    """The store that followed all along, and one built anew from the log, show what the source holds."""
    live.follow()
    rebuilt = Follower(pipeline)
    rebuilt.follow()
    for table in tables:
        source = source_rows(pipeline, table)
        assert live.rows(table) == source, f"{table} in the store that followed"
        assert rebuilt.rows(table) == source, f"{table} in the store built anew"
