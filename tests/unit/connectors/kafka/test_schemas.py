"""The registry of shapes, on a topic in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import ConfigError
from cdc.record.schema import TableSchema
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from tests.memory_log import MemoryCompactedTopic
from tests.unit.connectors.postgres import written as w


def shape(name: str, *more: str) -> TableSchema:
    return w.table(w.column("id", "int4", 0), *(w.column(column, "text") for column in more), name=name)


def test_many_shapes_are_one_write_of_the_new_ones() -> None:
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


def test_a_shape_that_comes_with_records_keeps_its_first_number() -> None:
    topic = MemoryCompactedTopic()
    shapes = EmbeddedShapes(SchemaRegistry(topic))
    old, new = shape("a"), shape("a", "v")
    assert shapes.newest(old.topic) is None
    assert [shapes.version(old.topic, one) for one in (old, new, old, new)] == [1, 2, 1, 2]
    newest = shapes.newest(old.topic)
    assert newest is not None and newest.version == 2
    assert topic.writes == 2


def test_a_shape_written_by_another_is_read_before_a_write() -> None:
    topic = MemoryCompactedTopic()
    mine, other = EmbeddedShapes(SchemaRegistry(topic)), EmbeddedShapes(SchemaRegistry(topic))
    assert other.version("shop.public.a", shape("a")) == mine.version("shop.public.a", shape("a")) == 1
    assert topic.writes == 1


def test_w1_a_key_that_is_written_otherwise_is_another_one() -> None:
    """A topic of a former version has the key in a form that several values share: it is read anew first."""
    registry = SchemaRegistry(MemoryCompactedTopic())
    before = w.table(replace(w.column("at", "timetz", 0), type="time with time zone"), name="a")
    (column,) = before.columns
    after = replace(before, columns=(replace(column, kind="other"),))
    registry.register(before)
    with pytest.raises(ConfigError, match=r"public\.a \(at time with time zone\) is written otherwise now"):
        registry.register(after)
    assert registry.register(after, new_key=True).version == 2
