"""The registry of shapes, on a topic in memory."""

from __future__ import annotations

from cdc.schema import TableSchema
from cdc.testing import MemoryCompactedTopic
from connectors.kafka.schemas import SchemaRegistry
from tests.unit.connectors.postgres import written as w


def shape(name: str, *more: str) -> TableSchema:
    return w.table(w.column("id", "int4", 0), *(w.column(column, "text") for column in more), name=name)


def test_many_shapes_are_one_write_and_only_what_is_new_is_written() -> None:
    topic = MemoryCompactedTopic()
    registry = SchemaRegistry(topic)
    known = registry.register_all([shape("a"), shape("b", "v")])
    assert [schema.version for schema in known] == [1, 1]
    assert topic.writes == 1
    again = registry.register_all([shape("a"), shape("b", "v", "n"), shape("c")])
    assert [schema.version for schema in again] == [1, 2, 1]
    registry.register_all([shape("a"), shape("c")])
    assert topic.writes == 2
    assert len(topic.read()) == 4
    assert SchemaRegistry(topic).versions() == registry.versions()
